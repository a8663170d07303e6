// examples/common/head_cost.hpp - what a multi-head attention layer costs, by its head counts alone.
#pragma once
#include <vector>

#include "attn/core/types.hpp"

namespace attn::examples {

/// Self-attention without biases over `batch` sequences of `length` tokens of width d_model, with heads of
/// d_model / num_heads, each key-value head shared by num_heads / num_kv_heads query heads.
struct HeadCounts {
  Index d_model = 512;
  Index length = 512;
  Index batch = 1;
  Index num_heads = 8;
  Index num_kv_heads = 8;

  Index head_dim() const { return d_model / num_heads; }
  Index group_size() const { return num_heads / num_kv_heads; }
};

/// Weights of W^Q, W^K, W^V and W^O.
inline Index parameter_count(const HeadCounts& c) {
  return 2 * c.d_model * c.head_dim() * (c.num_heads + c.num_kv_heads);
}
/// Floating-point operations of the four projections in a forward pass; a multiply-add counts as two.
inline Index projection_flops(const HeadCounts& c) { return 2 * c.batch * c.length * parameter_count(c); }
/// Those of Q K^T and of the weighted sum of V; the softmax is not counted.
inline Index attention_flops(const HeadCounts& c) {
  return 4 * c.batch * c.num_heads * c.length * c.length * c.head_dim();
}
inline Index total_flops(const HeadCounts& c) { return projection_flops(c) + attention_flops(c); }
/// Bytes of the float keys and values of all tokens, as kept for decoding.
inline Index kv_cache_bytes(const HeadCounts& c) {
  return static_cast<Index>(sizeof(float)) * 2 * c.batch * c.length * c.num_kv_heads * c.head_dim();
}

/// For each head count every number of key-value heads that divides it, largest first (multi-head, grouped,
/// multi-query).
/// @throws std::invalid_argument if a head count is below 1 or does not divide base.d_model.
std::vector<HeadCounts> head_sweep(const HeadCounts& base, const std::vector<Index>& head_counts);

}  // namespace attn::examples
