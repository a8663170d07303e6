# attn_add_compiled(SOURCE_DIR): the target attn::compiled, built in the calling project and only if something
# links it. An archive built elsewhere would be for one instruction set; this one has the caller's.
function(attn_add_compiled source_dir)
  add_library(attn_compiled STATIC EXCLUDE_FROM_ALL ${source_dir}/attn.cpp)
  add_library(attn::compiled ALIAS attn_compiled)
  target_link_libraries(attn_compiled PUBLIC attn::attn)
  target_compile_definitions(attn_compiled PUBLIC ATTN_COMPILED)
endfunction()
