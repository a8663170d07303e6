// attn/modules/transformer_config.hpp - what transformer layers and stacks are configured by, and the
// configurations of the paper by name.
#pragma once
#include <optional>

#include "attn/modules/feed_forward.hpp"
#include "attn/modules/multi_head_attention.hpp"
#include "attn/modules/norm.hpp"
#include "attn/modules/residual.hpp"

ATTN_NAMESPACE_BEGIN

/// Whether a stack normalises its result (pre-norm stacks need it; PyTorch's nn.Transformer always does).
enum class FinalNorm { absent, present };

/// One layer of an encoder or decoder.
struct TransformerLayerConfig {
  Index embed_dim = 0;
  Index num_heads = 0;
  Index num_kv_heads = 0;  ///< 0: num_heads
  Index head_dim = 0;      ///< 0: embed_dim / num_heads
  Index feed_forward_dim = 0;
  Activation activation = Activation::relu;
  Gating gating = Gating::none;
  NormPlacement norm = NormPlacement::post;
  NormKind norm_kind = NormKind::layer;
  double norm_eps = 1e-5;
  bool bias = true;                         ///< of projections and norms
  std::optional<double> attention_scale{};  ///< multiplies q.k; default 1 / sqrt(head_dim)

  MultiHeadAttentionConfig attention() const {
    return {.embed_dim = embed_dim,
            .num_heads = num_heads,
            .num_kv_heads = num_kv_heads,
            .head_dim = head_dim,
            .bias = bias,
            .scale = attention_scale};
  }
  FeedForwardConfig feed_forward() const {
    return {.embed_dim = embed_dim,
            .hidden_dim = feed_forward_dim,
            .activation = activation,
            .gating = gating,
            .bias = bias};
  }
  NormConfig norm_config() const {
    return {.dim = embed_dim, .kind = norm_kind, .eps = norm_eps, .bias = bias};
  }
};

/// A stack of equal layers.
struct TransformerConfig {
  TransformerLayerConfig layer{};
  Index num_layers = 0;
  FinalNorm final_norm = FinalNorm::absent;
};

/// The base model of "Attention Is All You Need" (Vaswani et al. 2017, table 3): encoder and decoder each
/// have this stack.
inline TransformerConfig transformer_base() {
  return {.layer = {.embed_dim = 512, .num_heads = 8, .feed_forward_dim = 2048}, .num_layers = 6};
}
/// The big model of the same table.
inline TransformerConfig transformer_big() {
  return {.layer = {.embed_dim = 1024, .num_heads = 16, .feed_forward_dim = 4096}, .num_layers = 6};
}

ATTN_NAMESPACE_END
