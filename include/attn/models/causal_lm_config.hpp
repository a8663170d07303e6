// attn/models/causal_lm_config.hpp - CausalLMConfig: what a decoder-only language model is made of.
#pragma once
#include <vector>

#include "attn/modules/decoder_block.hpp"

ATTN_NAMESPACE_BEGIN

/// How the weights of a checkpoint are called and laid out.
enum class CausalLMNames {
  llama,  ///< Llama, Mistral, Qwen3, Gemma 2: one matrix per projection
  gpt2,   ///< fused query, key and value, matrices stored as [in, out]
  bloom,  ///< fused per head
};

/// How a model knows where a token stands.
enum class PositionKind {
  rotary,   ///< queries and keys are rotated (CausalLMConfig::rope)
  learned,  ///< a vector per position is added to the embedding
  alibi,    ///< a penalty per distance is added to the scores
};

/// A decoder-only language model: embeddings, pre-norm blocks, a norm, and logits.
struct CausalLMConfig {
  CausalLMNames names = CausalLMNames::llama;
  Index vocab_size = 0;
  Index embed_dim = 0;
  Index num_layers = 0;
  Index num_heads = 0;
  Index num_kv_heads = 0;  ///< 0: num_heads
  Index head_dim = 0;      ///< 0: embed_dim / num_heads
  Index feed_forward_dim = 0;
  Index max_len = 0;  ///< positions that the model knows: of prompt and continuation together
  Activation activation = Activation::silu;
  Gating gating = Gating::gated;
  NormKind norm_kind = NormKind::rms;
  double norm_eps = 1e-6;
  double norm_weight_offset = 0;  ///< added to the norms' weights as they are read: Gemma's 1 + w
  BranchNorms branch_norms = BranchNorms::before;
  bool embedding_norm = false;  ///< a norm of its own between embeddings and blocks
  bool attention_bias = false;  ///< of the four projections
  bool feed_forward_bias = false;
  bool qk_norm = false;                     ///< an rms norm of each query and key head
  std::optional<double> attention_scale{};  ///< multiplies q.k; default 1 / sqrt(head_dim)
  double attention_soft_cap = 0;            ///< of the scores; 0: none
  double logit_soft_cap = 0;                ///< of the logits; 0: none
  double embedding_scale = 1;               ///< multiplies the embeddings
  bool tied_embeddings = false;             ///< the logits' matrix is the table of embeddings
  PositionKind positions = PositionKind::rotary;
  RopeConfig rope{.pairing = RopePairing::half};  ///< head_dim is filled in
  /// Keys that a query of layer i sees, itself included; 0: all before it. Empty: 0 for every layer.
  std::vector<Index> windows{};
  std::vector<Index> end_tokens{};  ///< eos_token_id: a continuation ends behind one of them

  Index window(Index layer) const { return windows.empty() ? 0 : windows[as_size(layer)]; }
  Index kv_heads() const { return num_kv_heads == 0 ? num_heads : num_kv_heads; }
  Index dim_of_heads() const { return head_dim == 0 ? embed_dim / num_heads : head_dim; }
  NormConfig norm() const { return {.dim = embed_dim, .kind = norm_kind, .eps = norm_eps}; }
  DecoderBlockConfig block() const;
};

inline DecoderBlockConfig CausalLMConfig::block() const {
  DecoderBlockConfig block;
  block.attention = {.embed_dim = embed_dim,
                     .num_heads = num_heads,
                     .num_kv_heads = num_kv_heads,
                     .head_dim = head_dim,
                     .bias = attention_bias,
                     .scale = attention_scale,
                     .soft_cap = attention_soft_cap,
                     .norm_eps = norm_eps};
  if (qk_norm) block.attention.qk_norm = NormKind::rms;
  if (positions == PositionKind::rotary) {
    block.attention.rope = rope;
    block.attention.rope->head_dim = dim_of_heads();
  }
  block.feed_forward = {.embed_dim = embed_dim,
                        .hidden_dim = feed_forward_dim,
                        .activation = activation,
                        .gating = gating,
                        .bias = feed_forward_bias};
  block.norm = norm();
  block.branch_norms = branch_norms;
  return block;
}

ATTN_NAMESPACE_END
