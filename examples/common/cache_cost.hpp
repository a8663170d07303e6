// examples/common/cache_cost.hpp - what the KV cache of a model takes, by its shape.
#pragma once
#include <string>
#include <vector>

#include "attn/core/types.hpp"
#include "common/stored_as.hpp"

namespace attn::examples {

/// As much of a decoder as its cache depends on.
struct CacheShape {
  std::string model;
  Index num_layers = 0;
  Index num_heads = 0;
  Index num_kv_heads = 0;
  Index head_dim = 0;

  /// Query heads that share a key-value head: how many times smaller the cache is than with one each.
  Index group_size() const { return num_heads / num_kv_heads; }
  /// MHA, GQA or MQA.
  const char* kind() const { return num_kv_heads == num_heads ? "MHA" : num_kv_heads == 1 ? "MQA" : "GQA"; }
};

/// Shapes of published models, and that of Llama 3 8B with as many key-value heads as query heads and with
/// one.
std::vector<CacheShape> known_cache_shapes();

/// Bytes of one token's keys and values in all layers: 2 * layers * num_kv_heads * head_dim elements; with
/// int8 also a float scale for each key row and value row of a head.
Index cache_bytes_per_token(const CacheShape& shape, StoredAs type);

/// The same, found out from attn::KVCache: by how much one of twice the room is larger.
Index measured_cache_bytes_per_token(const CacheShape& shape, StoredAs type);

}  // namespace attn::examples
