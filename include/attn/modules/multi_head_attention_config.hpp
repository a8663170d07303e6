// attn/modules/multi_head_attention_config.hpp - what a MultiHeadAttention is made of, and how one call runs.
#pragma once
#include <optional>

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
  /// key j at j (with a cache: behind what it holds). Its head_dim is that of the layer, or 0 for that.
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

ATTN_NAMESPACE_END
