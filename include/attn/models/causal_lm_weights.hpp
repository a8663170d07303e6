// attn/models/causal_lm_weights.hpp - the modules of a CausalLM, and how Hugging Face's weights fill them.
#pragma once
#include <vector>

#include "attn/models/causal_lm_config.hpp"
#include "attn/models/weight_reader.hpp"
#include "attn/modules/fused_qkv.hpp"

ATTN_NAMESPACE_BEGIN

/// The modules of a decoder-only language model with weights of type T; all zero at first (norms one).
template <Element T>
struct CausalLMModules {
  CausalLMModules() = default;
  /// @throws ShapeError as the modules.
  explicit CausalLMModules(const CausalLMConfig& c)
      : norm(c.norm()), head({.in_dim = c.embed_dim, .out_dim = c.vocab_size, .bias = false}) {
    if (!c.tied_embeddings) embedding = Parameter<T, 2>("embedding", {c.vocab_size, c.embed_dim});
    if (c.positions == PositionKind::learned)
      positions = Parameter<T, 2>("positions", {c.max_len, c.embed_dim});
    if (c.embedding_norm) embedding_norm = Norm<Accumulator<T>>(c.norm());
    for (Index i = 0; i < c.num_layers; ++i) blocks.emplace_back(c.block());
  }

  Parameter<T, 2> embedding;            ///< [vocab_size, embed_dim]; absent if it is the weight of `head`
  Parameter<T, 2> positions;            ///< [max_len, embed_dim]; absent unless positions are learned
  Norm<Accumulator<T>> embedding_norm;  ///< without parameters if there is none
  std::vector<DecoderBlock<T>> blocks;
  Norm<Accumulator<T>> norm;  ///< before the logits
  Linear<T> head;             ///< hidden state to logits

  /// A row per token.
  const Parameter<T, 2>& table() const { return embedding ? embedding : head.weight(); }
  Parameter<T, 2>& table() { return embedding ? embedding : head.weight(); }

  /// f(linear) for every matrix of the blocks and that of the logits.
  template <class F>
  void for_each_linear(F f) {
    for (DecoderBlock<T>& block : blocks) {
      MultiHeadAttention<T>& attention = block.attention();
      FeedForward<T>& network = block.feed_forward();
      for (Linear<T>* linear :
           {&attention.q_proj(), &attention.k_proj(), &attention.v_proj(), &attention.out_proj(),
            &network.gate_proj(), &network.up_proj(), &network.down_proj()})
        if (linear->weight()) f(*linear);
    }
    f(head);
  }

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("embedding", self.embedding);
    f("positions", self.positions);
    f("embedding_norm", self.embedding_norm);
    f("blocks", self.blocks);
    f("norm", self.norm);
    f("head", self.head);
  }
};

namespace detail {

/// Fills CausalLMModules; every failure is a FormatError that names the weight.
template <Element T>
class CausalLMWeights {
 public:
  /// Borrows all three. `weights` of some checkpoints lack the name of the whole before their own.
  CausalLMWeights(const CausalLMConfig& config, const WeightMap& weights)
      : c_(config), all_(weights), reader_(all_.below(prefix())) {}

  /// The shapes of what takes most memory, before memory is taken for what a config only claims.
  void check() const {
    const Index dim = c_.embed_dim, wide = c_.feed_forward_dim;
    reader_.template require<2>(name_of_table(), {c_.vocab_size, dim});
    if (!c_.tied_embeddings) all_.template require<2>("lm_head.weight", {c_.vocab_size, dim});
    if (c_.positions == PositionKind::learned) reader_.template require<2>("wpe.weight", {c_.max_len, dim});
    for (Index i = 0; i < c_.num_layers; ++i) {
      const WeightReader layer = layer_reader(i);
      if (c_.names == CausalLMNames::llama) {
        layer.template require<2>("self_attn.q_proj.weight", {c_.num_heads * c_.dim_of_heads(), dim});
        layer.template require<2>("mlp.up_proj.weight", {wide, dim});
      } else if (c_.names == CausalLMNames::gpt2) {
        layer.template require<2>("attn.c_attn.weight", {dim, 3 * dim});
        layer.template require<2>("mlp.c_fc.weight", {dim, wide});
      } else {
        layer.template require<2>("self_attention.query_key_value.weight", {3 * dim, dim});
        layer.template require<2>("mlp.dense_h_to_4h.weight", {wide, dim});
      }
    }
  }

  void read(CausalLMModules<T>& m) const {
    reader_.read(name_of_table(), m.table());
    if (m.embedding) all_.read("lm_head", m.head);
    if (m.positions) reader_.read("wpe.weight", m.positions);
    if (c_.embedding_norm) read_norm(reader_, "word_embeddings_layernorm", m.embedding_norm);
    read_norm(reader_, c_.names == CausalLMNames::llama ? "norm" : "ln_f", m.norm);
    for (std::size_t i = 0; i < m.blocks.size(); ++i) {
      const WeightReader layer = layer_reader(static_cast<Index>(i));
      if (c_.names == CausalLMNames::llama)
        read_llama(layer, m.blocks[i]);
      else if (c_.names == CausalLMNames::gpt2)
        read_gpt2(layer, m.blocks[i]);
      else
        read_bloom(layer, m.blocks[i]);
    }
  }

 private:
  std::string prefix() const {
    const std::string whole = c_.names == CausalLMNames::llama ? "model." : "transformer.";
    return all_.contains(whole + name_of_table()) ? whole : "";
  }
  const char* name_of_table() const {
    constexpr const char* names[] = {"embed_tokens.weight", "wte.weight", "word_embeddings.weight"};
    return names[static_cast<int>(c_.names)];
  }
  WeightReader layer_reader(Index i) const {
    return reader_.below((c_.names == CausalLMNames::llama ? "layers." : "h.") + std::to_string(i) + ".");
  }

  void read_norm(const WeightReader& reader, const std::string& name, Norm<Accumulator<T>>& norm) const {
    reader.read(name, norm);
    if (c_.norm_weight_offset == 0) return;
    const auto offset = static_cast<Accumulator<T>>(c_.norm_weight_offset);
    norm.weight().edit([&](const TensorView<Accumulator<T>, 1>& weight) {
      for (Index i = 0; i < weight.size(); ++i) weight(i) += offset;
    });
  }

  /// A matrix that the checkpoint keeps as [in, out].
  static void read_transposed(const WeightReader& reader, const std::string& name, Linear<T>& linear) {
    const Index in = linear.config().in_dim, out = linear.config().out_dim;
    const auto stored = reader.template get<T, 2>(name + ".weight", {in, out});
    linear.weight().assign(TensorView<const T, 2>(stored.data(), {out, in}, {1, out}));
    reader.read(name + ".bias", linear.bias());
  }

  void read_llama(const WeightReader& reader, DecoderBlock<T>& block) const {
    const bool has_both = c_.branch_norms == BranchNorms::both_sides;
    MultiHeadAttention<T>& attention = block.attention();
    reader.read("self_attn.q_proj", attention.q_proj());
    reader.read("self_attn.k_proj", attention.k_proj());
    reader.read("self_attn.v_proj", attention.v_proj());
    reader.read("self_attn.o_proj", attention.out_proj());
    if (c_.qk_norm) {
      reader.read("self_attn.q_norm", attention.q_norm());
      reader.read("self_attn.k_norm", attention.k_norm());
    }
    reader.read("mlp.gate_proj", block.feed_forward().gate_proj());
    reader.read("mlp.up_proj", block.feed_forward().up_proj());
    reader.read("mlp.down_proj", block.feed_forward().down_proj());
    read_norm(reader, "input_layernorm", block.attention_norm());
    read_norm(reader, has_both ? "pre_feedforward_layernorm" : "post_attention_layernorm",
              block.feed_forward_norm());
    if (has_both) {
      read_norm(reader, "post_attention_layernorm", block.attention_out_norm());
      read_norm(reader, "post_feedforward_layernorm", block.feed_forward_out_norm());
    }
  }

  void read_gpt2(const WeightReader& reader, DecoderBlock<T>& block) const {
    const Index dim = c_.embed_dim, rows = 3 * dim;
    const auto fused = reader.template get<T, 2>("attn.c_attn.weight", {dim, rows});
    assign_fused_qkv(block.attention(), TensorView<const T, 2>(fused.data(), {rows, dim}, {1, rows}),
                     QkvLayout::blocks);
    assign_fused_qkv(block.attention(), reader.template get<T, 1>("attn.c_attn.bias", {rows}),
                     QkvLayout::blocks);
    read_transposed(reader, "attn.c_proj", block.attention().out_proj());
    read_transposed(reader, "mlp.c_fc", block.feed_forward().up_proj());
    read_transposed(reader, "mlp.c_proj", block.feed_forward().down_proj());
    read_norm(reader, "ln_1", block.attention_norm());
    read_norm(reader, "ln_2", block.feed_forward_norm());
  }

  void read_bloom(const WeightReader& reader, DecoderBlock<T>& block) const {
    const Index dim = c_.embed_dim;
    const WeightReader attention = reader.below("self_attention.");
    assign_fused_qkv(block.attention(),
                     attention.template get<T, 2>("query_key_value.weight", {3 * dim, dim}),
                     QkvLayout::per_head);
    assign_fused_qkv(block.attention(), attention.template get<T, 1>("query_key_value.bias", {3 * dim}),
                     QkvLayout::per_head);
    attention.read("dense", block.attention().out_proj());
    reader.read("mlp.dense_h_to_4h", block.feed_forward().up_proj());
    reader.read("mlp.dense_4h_to_h", block.feed_forward().down_proj());
    read_norm(reader, "input_layernorm", block.attention_norm());
    read_norm(reader, "post_attention_layernorm", block.feed_forward_norm());
  }

  const CausalLMConfig& c_;
  WeightReader all_, reader_;
};

}  // namespace detail

ATTN_NAMESPACE_END
