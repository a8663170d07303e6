#include "common/cache_cost.hpp"

#include "attn/ops/kv_cache.hpp"

namespace attn::examples {

std::vector<CacheShape> known_cache_shapes() {
  return {
      {"Llama 3 8B", 32, 32, 8, 128},        {"Llama 3 8B if MHA", 32, 32, 32, 128},
      {"Llama 3 8B if MQA", 32, 32, 1, 128}, {"Llama 2 7B", 32, 32, 32, 128},
      {"Llama 3 70B", 80, 64, 8, 128},       {"Mistral 7B", 32, 32, 8, 128},
      {"Gemma 2B", 18, 8, 1, 256},           {"Gemma 7B", 28, 16, 16, 256},
      {"Gemma 2 9B", 42, 16, 8, 256},        {"PaLM 540B", 118, 48, 1, 256},
      {"GPT-2 small", 12, 12, 12, 64},       {"SmolLM2 135M", 30, 9, 3, 64},
  };
}

Index cache_bytes_per_token(const CacheShape& shape, StoredAs type) {
  const Index rows = 2 * shape.num_layers * shape.num_kv_heads;
  return with_type(type, [&]<class T>(TypeTag<T>) {
    const std::size_t scale = std::is_same_v<T, std::int8_t> ? sizeof(float) : 0;
    return rows * (shape.head_dim * static_cast<Index>(sizeof(T)) + static_cast<Index>(scale));
  });
}

Index measured_cache_bytes_per_token(const CacheShape& shape, StoredAs type) {
  constexpr Index room = 64;
  return with_type(type, [&]<class T>(TypeTag<T>) {
    const auto bytes = [&](Index max_len) {
      const KVCache<float, T> layer(
          {.num_kv_heads = shape.num_kv_heads, .head_dim = shape.head_dim, .max_len = max_len});
      return static_cast<Index>(layer.bytes());
    };
    return shape.num_layers * (bytes(2 * room) - bytes(room)) / room;
  });
}

}  // namespace attn::examples
