# cmake -DMODE=package|subdirectory -DBUILD_DIR=... -DSOURCE_DIR=... -DWORK_DIR=... -DVERSION=... -DSETTINGS=... -P run.cmake
# Builds and runs tests/consume as a project of its own. SETTINGS: compiler and Eigen of the calling build.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
if(MODE STREQUAL "package")
  run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
  list(APPEND SETTINGS -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCONSUME_VERSION=${VERSION})
else()
  list(APPEND SETTINGS -DCONSUME_SOURCE_DIR=${SOURCE_DIR})
endif()
run(${CMAKE_COMMAND} -G Ninja -S ${SOURCE_DIR}/tests/consume -B ${WORK_DIR}/build ${SETTINGS})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/consume)
run(${WORK_DIR}/build/consume_compiled)
run(${WORK_DIR}/build/consume_io)

# Warnings, optimisation and the processor are the consumer's own choice.
file(READ ${WORK_DIR}/build/compile_commands.json commands)
string(REPLACE "-DATTN_COMPILED" "" commands "${commands}")
if(commands MATCHES "[ ](-W[a-z]|-march=|-m[a-z]+[0-9]|-O[0-9s]|-D[A-Z])[^ ]*")
  message(FATAL_ERROR "attn passes ${CMAKE_MATCH_0} on to its consumers")
endif()
