// tests/models/tiny_causal_lm.hpp - small decoder-only models of every family with random weights, and
// these weights as a checkpoint would hold them.
#pragma once
#include <cmath>
#include <list>
#include <string>
#include <vector>

#include "attn/models/causal_lm.hpp"
#include "support/random_values.hpp"

namespace attn_test {

using Ids = Eigen::Matrix<attn::Index, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Ids within a vocabulary of 40, all sequences different.
inline Ids make_ids(attn::Index batch, attn::Index n) {
  Ids ids(batch, n);
  for (attn::Index b = 0; b < batch; ++b)
    for (attn::Index i = 0; i < n; ++i) ids(b, i) = (11 * b + 7 * i + i * i + 3) % 40;
  return ids;
}

struct TinyCausalLM {
  std::string name;
  attn::CausalLMConfig config{};

  template <class T>
  attn::CausalLM<T> model() const {
    attn::CausalLM<T> model(config);
    randomize(model, 5);
    return model;
  }
};
inline std::ostream& operator<<(std::ostream& out, const TinyCausalLM& tiny) { return out << tiny.name; }

/// Llama, with grouped heads.
inline attn::CausalLMConfig tiny_llama() {
  attn::CausalLMConfig c;
  c.vocab_size = 40;
  c.embed_dim = 24;
  c.num_layers = 3;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.feed_forward_dim = 20;
  c.max_len = 64;
  c.rope.head_dim = c.dim_of_heads();
  return c;
}
inline attn::CausalLMConfig tiny_gemma2() {
  attn::CausalLMConfig c = tiny_llama();
  c.num_kv_heads = 1;
  c.head_dim = 8;
  c.activation = attn::Activation::gelu_tanh;
  c.norm_weight_offset = 1;
  c.branch_norms = attn::BranchNorms::both_sides;
  c.attention_scale = 0.3;
  c.attention_soft_cap = 2;
  c.logit_soft_cap = 3;
  c.embedding_scale = std::sqrt(24.0);
  c.tied_embeddings = true;
  c.windows = {4, 0, 4};
  return c;
}
/// GPT-2; BLOOM differs by its names, positions and embeddings.
inline attn::CausalLMConfig tiny_gpt2() {
  attn::CausalLMConfig c = tiny_llama();
  c.names = attn::CausalLMNames::gpt2;
  c.num_heads = c.num_kv_heads = 3;
  c.activation = attn::Activation::gelu_tanh;
  c.gating = attn::Gating::none;
  c.norm_kind = attn::NormKind::layer;
  c.attention_bias = c.feed_forward_bias = true;
  c.tied_embeddings = true;
  c.positions = attn::PositionKind::learned;
  return c;
}

inline std::vector<TinyCausalLM> tiny_causal_lms() {
  attn::CausalLMConfig mistral = tiny_llama(), qwen3 = tiny_llama(), scaled = tiny_llama(),
                       bloom = tiny_gpt2();
  mistral.windows = {4, 4, 4};
  qwen3.head_dim = 8;
  qwen3.num_kv_heads = 1;
  qwen3.qk_norm = true;
  scaled.attention_bias = scaled.feed_forward_bias = true;
  scaled.rope.rotary_dim = 4;
  scaled.rope.scaling.kind = attn::RopeScalingKind::yarn;
  scaled.rope.scaling.factor = 4;
  scaled.rope.scaling.original_max_len = 16;
  bloom.names = attn::CausalLMNames::bloom;
  bloom.activation = attn::Activation::gelu_bloom;
  bloom.positions = attn::PositionKind::alibi;
  bloom.embedding_norm = true;
  return {{"Llama", tiny_llama()},   {"Mistral", mistral},  {"Qwen3", qwen3}, {"ScaledRopeAndBiases", scaled},
          {"Gemma2", tiny_gemma2()}, {"GPT2", tiny_gpt2()}, {"Bloom", bloom}};
}

/// The weights of a model as Hugging Face's checkpoints call and lay them out, in float.
class HuggingFaceWeights {
 public:
  template <class T>
  HuggingFaceWeights(const attn::CausalLM<T>& model, bool has_prefix) : c_(model.config()) {
    const auto& m = model.modules();
    const bool is_llama = c_.names == attn::CausalLMNames::llama;
    if (has_prefix) prefix_ = is_llama ? "model." : "transformer.";
    constexpr const char* tables[] = {"embed_tokens.weight", "wte.weight", "word_embeddings.weight"};
    add(tables[static_cast<int>(c_.names)], m.table());
    if (m.positions) add("wpe.weight", m.positions);
    if (c_.embedding_norm) add_norm("word_embeddings_layernorm", m.embedding_norm);
    add_norm(is_llama ? "norm" : "ln_f", m.norm);
    for (std::size_t i = 0; i < m.blocks.size(); ++i) {
      const std::string at = (is_llama ? "layers." : "h.") + std::to_string(i) + ".";
      if (is_llama)
        add_llama(at, m.blocks[i]);
      else
        add_fused(at, m.blocks[i], c_.names == attn::CausalLMNames::gpt2);
    }
    prefix_.clear();
    if (m.embedding) add("lm_head.weight", m.head.weight());
  }
  HuggingFaceWeights(const HuggingFaceWeights&) = delete;
  HuggingFaceWeights& operator=(const HuggingFaceWeights&) = delete;

  attn::WeightMap& map() { return map_; }
  const attn::WeightMap& map() const { return map_; }

 private:
  using Index = attn::Index;

  template <int Rank>
  attn::TensorView<float, Rank> place(const std::string& name, const attn::Dims<Rank>& extents) {
    auto& kept = [this]() -> auto& {
      if constexpr (Rank == 1)
        return vectors_;
      else
        return matrices_;
    }
    ();
    kept.emplace_back(extents);
    map_.add(prefix_ + name, kept.back());
    return kept.back().view();
  }
  template <class T, int Rank>
  void add(const std::string& name, const attn::Parameter<T, Rank>& parameter) {
    attn::copy(parameter.view(), place<Rank>(name, parameter.extents()));
  }
  template <class T>
  void add(const std::string& name, const attn::Linear<T>& linear) {
    add(name + ".weight", linear.weight());
    if (linear.bias()) add(name + ".bias", linear.bias());
  }
  template <class T>
  void add_norm(const std::string& name, const attn::Norm<T>& norm) {
    const auto weight = place<1>(name + ".weight", norm.weight().extents());
    for (Index i = 0; i < weight.size(); ++i)
      weight(i) = static_cast<float>(norm.weight().data()[i]) - static_cast<float>(c_.norm_weight_offset);
    if (norm.bias()) add(name + ".bias", norm.bias());
  }
  /// A linear layer, its matrix transposed if asked for.
  template <class T>
  void add_linear(const std::string& name, const attn::Linear<T>& linear, bool is_transposed) {
    if (!is_transposed) return add(name, linear);
    const attn::TensorView<const T, 2> w = linear.weight().view();
    const auto to = place<2>(name + ".weight", {w.extent(1), w.extent(0)});
    for (Index i = 0; i < w.extent(0); ++i)
      for (Index j = 0; j < w.extent(1); ++j) to(j, i) = static_cast<float>(w(i, j));
    add(name + ".bias", linear.bias());
  }

  template <class Block>
  void add_llama(const std::string& at, const Block& block) {
    const bool has_both = c_.branch_norms == attn::BranchNorms::both_sides;
    add(at + "self_attn.q_proj", block.attention().q_proj());
    add(at + "self_attn.k_proj", block.attention().k_proj());
    add(at + "self_attn.v_proj", block.attention().v_proj());
    add(at + "self_attn.o_proj", block.attention().out_proj());
    if (c_.qk_norm) {
      add(at + "self_attn.q_norm.weight", block.attention().q_norm().weight());
      add(at + "self_attn.k_norm.weight", block.attention().k_norm().weight());
    }
    add(at + "mlp.gate_proj", block.feed_forward().gate_proj());
    add(at + "mlp.up_proj", block.feed_forward().up_proj());
    add(at + "mlp.down_proj", block.feed_forward().down_proj());
    add_norm(at + "input_layernorm", block.attention_norm());
    add_norm(at + (has_both ? "pre_feedforward_layernorm" : "post_attention_layernorm"),
             block.feed_forward_norm());
    if (!has_both) return;
    add_norm(at + "post_attention_layernorm", block.attention_out_norm());
    add_norm(at + "post_feedforward_layernorm", block.feed_forward_out_norm());
  }

  template <class Block>
  void add_fused(const std::string& at, const Block& block, bool is_gpt2) {
    const auto& attention = block.attention();
    const Index dim = c_.embed_dim, head = dim / c_.num_heads;
    const std::string name = at + (is_gpt2 ? "attn.c_attn" : "self_attention.query_key_value");
    const auto weight = place<2>(name + ".weight", {is_gpt2 ? dim : 3 * dim, is_gpt2 ? 3 * dim : dim});
    const auto bias = place<1>(name + ".bias", {3 * dim});
    Index part = 0;
    for (const auto* linear : {&attention.q_proj(), &attention.k_proj(), &attention.v_proj()}) {
      for (Index i = 0; i < dim; ++i) {
        const Index row = is_gpt2 ? part * dim + i : (i / head * 3 + part) * head + i % head;
        bias(row) = static_cast<float>(linear->bias().data()[i]);
        for (Index j = 0; j < dim; ++j)
          (is_gpt2 ? weight(j, row) : weight(row, j)) = static_cast<float>(linear->weight().view()(i, j));
      }
      ++part;
    }
    add_linear(at + (is_gpt2 ? "attn.c_proj" : "self_attention.dense"), attention.out_proj(), is_gpt2);
    add_linear(at + (is_gpt2 ? "mlp.c_fc" : "mlp.dense_h_to_4h"), block.feed_forward().up_proj(), is_gpt2);
    add_linear(at + (is_gpt2 ? "mlp.c_proj" : "mlp.dense_4h_to_h"), block.feed_forward().down_proj(),
               is_gpt2);
    add_norm(at + (is_gpt2 ? "ln_1" : "input_layernorm"), block.attention_norm());
    add_norm(at + (is_gpt2 ? "ln_2" : "post_attention_layernorm"), block.feed_forward_norm());
  }

  attn::CausalLMConfig c_;
  std::string prefix_;
  std::list<attn::Tensor<float, 1>> vectors_;
  std::list<attn::Tensor<float, 2>> matrices_;
  attn::WeightMap map_{"test weights"};
};

}  // namespace attn_test
