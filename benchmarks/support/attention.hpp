// benchmarks/support/attention.hpp - one attention call with its inputs and memory, ready to be repeated.
#pragma once
#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "attn/ops/sdpa.hpp"
#include "support/inputs.hpp"

namespace bench {

/// Tensors of a problem, [batch, heads, len, dim] unless they are views of something else; nothing is
/// allocated by the second call.
template <attn::Element T>
struct Attention {
  attn::Problem problem;
  attn::Tensor<T, 4> q, k, v, out;
  attn::Workspace workspace;

  Attention(const attn::Problem& p, NumpyNormal& normal) : problem(p) {
    if (problem.value_dim == 0) problem.value_dim = p.head_dim;
    q = normal_tensor<T, 4>(normal, {p.batch, p.num_heads, p.q_len, p.head_dim});
    k = normal_tensor<T, 4>(normal, {p.batch, p.num_kv_heads, p.kv_len, p.head_dim});
    v = normal_tensor<T, 4>(normal, {p.batch, p.num_kv_heads, p.kv_len, problem.value_dim});
    out = attn::Tensor<T, 4>({p.batch, p.num_heads, p.q_len, problem.value_dim});
  }

  /// The last query stands at the last key.
  template <attn::Mask M>
  void run(const M& mask, attn::SdpaOptions options = {}) {
    options.query_offset = problem.kv_len - problem.q_len;
    options.workspace = &workspace;
    attn::sdpa_into(q, k, v, out, mask, options);
  }
};

}  // namespace bench
