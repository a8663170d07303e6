// libFuzzer target: an untrusted config.json of a decoder-only model. What is accepted must be within bounds.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "attn/models/causal_lm_json.hpp"
#include "fuzz/require.hpp"

using attn_fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto json = attn::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    const attn::CausalLMConfig c = attn::causal_lm_config(json, "fuzz");
    for (const attn::Index count : {c.vocab_size, c.embed_dim, c.num_layers, c.num_heads, c.kv_heads(),
                                    c.dim_of_heads(), c.feed_forward_dim, c.max_len})
      require(1 <= count && count < attn::Index{1} << 34);
    require(c.num_heads % c.kv_heads() == 0);
    require(c.norm_eps > 0 && std::isfinite(c.norm_eps));
    require(c.windows.empty() || c.windows.size() == attn::as_size(c.num_layers));
    for (attn::Index i = 0; i < c.num_layers; ++i) require(c.window(i) >= 0);
    if (c.positions == attn::PositionKind::rotary)
      require(c.rope.rotary_dim % 2 == 0 && c.rope.rotary_dim <= c.dim_of_heads() && c.rope.base > 0);
  } catch (const attn::FormatError&) {
    // rejected, as most inputs are
  }
  return 0;
}
