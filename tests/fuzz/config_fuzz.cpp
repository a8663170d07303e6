// libFuzzer target: an untrusted config.json of a BERT model. What is accepted must be within bounds.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "attn/models/bert_config.hpp"
#include "fuzz/require.hpp"

using attn_fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto json = attn::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    const attn::BertConfig config = attn::bert_config(json, "fuzz");
    for (const attn::Index count : {config.vocab_size, config.embed_dim, config.num_layers, config.num_heads,
                                    config.feed_forward_dim, config.max_len, config.num_token_types})
      require(1 <= count && count < attn::Index{1} << 31);
    require(config.embed_dim % config.num_heads == 0);
    require(config.norm_eps > 0 && std::isfinite(config.norm_eps));
  } catch (const attn::FormatError&) {
    // rejected, as most inputs are
  }
  return 0;
}
