// attn/modules/multi_head_attention_config.hpp - what a MultiHeadAttention is made of, and how one call runs.
#pragma once
#include <optional>

#include "attn/masks/mask.hpp"
#include "attn/modules/norm.hpp"
#include "attn/ops/rope_config.hpp"

ATTN_NAMESPACE_BEGIN

/// The shape of a layer and what it does on request.
struct MultiHeadAttentionConfig {
  Index embed_dim = 0;     ///< width of the queries' input and of the output
  Index num_heads = 0;     ///< of the queries
  Index num_kv_heads = 0;  ///< 0: num_heads (MHA); 1: multi-query; a divisor of num_heads: grouped-query
  Index head_dim = 0;      ///< width of a query and key head; 0: embed_dim / num_heads
  Index value_dim = 0;     ///< width of a value head; 0: head_dim
  Index kdim = 0;          ///< width of the keys' input; 0: embed_dim
  Index vdim = 0;          ///< width of the values' input; 0: embed_dim
  bool bias = true;        ///< of all four projections, unless one of these says otherwise:
  std::optional<bool> q_bias{}, k_bias{}, v_bias{}, out_bias{};
  std::optional<double> scale{};  ///< multiplies q.k; default 1 / sqrt(head_dim)
  double soft_cap = 0;            ///< scores become soft_cap * tanh(score / soft_cap); 0: none
  std::optional<NormKind>
      qk_norm{};           ///< normalises each query and key head before the product; default: none
  double norm_eps = 1e-6;  ///< of qk_norm
  /// Rotates each query and key head by its position, after qk_norm: query i stands at query_offset + i and
  /// key j at j; with a cache both stand behind what it holds, and among packed sequences they count on from
  /// one to the next, which changes no distance. Its head_dim is that of the layer, or 0 for that.
  /// Default: none.
  std::optional<RopeConfig> rope{};
  bool add_bias_kv = false;    ///< one learnt key and value more, which every query sees
  bool add_zero_attn = false;  ///< one key and value of zeros more, behind that
  bool head_gates = false;     ///< a learnable multiplier per head, 1 at first, on what the head attends to
  bool output_gate = false;    ///< what the heads attend to is multiplied by sigmoid(gate_proj(query))
};

/// How one call runs.
struct MultiHeadAttentionOptions {
  /// Key position of query 0; must be given if the mask or the layer's rope uses positions and q_len !=
  /// kv_len. See SdpaOptions.
  std::optional<QueryOffset> query_offset{};
  ExecutorRef executor{};          ///< default: the calling thread; results do not depend on it
  Workspace* workspace = nullptr;  ///< default: scratch is allocated in the call
};

namespace detail {

/// The config with every 0 and unset bias replaced by what it stands for.
/// @throws ShapeError if the numbers of heads or the dimensions do not fit.
inline MultiHeadAttentionConfig resolved(MultiHeadAttentionConfig c) {
  check(c.embed_dim > 0 && c.num_heads > 0, "MultiHeadAttention: embed_dim ", c.embed_dim, " and num_heads ",
        c.num_heads, " must be positive");
  check(c.head_dim > 0 || c.embed_dim % c.num_heads == 0, "MultiHeadAttention: num_heads ", c.num_heads,
        " does not divide embed_dim ", c.embed_dim, " and no head_dim is given");
  const auto or_else = [](Index& value, Index fallback) { value = value == 0 ? fallback : value; };
  or_else(c.num_kv_heads, c.num_heads);
  or_else(c.head_dim, c.embed_dim / c.num_heads);
  or_else(c.value_dim, c.head_dim);
  or_else(c.kdim, c.embed_dim);
  or_else(c.vdim, c.embed_dim);
  check(c.num_kv_heads > 0 && c.num_heads % c.num_kv_heads == 0, "MultiHeadAttention: num_kv_heads ",
        c.num_kv_heads, " does not divide num_heads ", c.num_heads);
  for (std::optional<bool>* bias : {&c.q_bias, &c.k_bias, &c.v_bias, &c.out_bias})
    *bias = bias->value_or(c.bias);
  if (c.rope) {
    or_else(c.rope->head_dim, c.head_dim);
    check(c.rope->head_dim == c.head_dim, "MultiHeadAttention: rope is for head_dim ", c.rope->head_dim,
          " and the layer has ", c.head_dim);
  }
  return c;
}

}  // namespace detail
ATTN_NAMESPACE_END
