// Hugging Face's encoder-decoder models T5 and BART: their names mapped onto encoder and decoder layers.
#include <cmath>

#include "attn/masks/causal.hpp"
#include "attn/masks/relative_bias.hpp"
#include "attn/models/weight_reader.hpp"
#include "attn/modules/transformer_decoder.hpp"
#include "masks.hpp"
#include "registry.hpp"

namespace attn_conformance {
namespace {

using attn::WeightReader;

/// Rows of a table [vocab_size, dim] for ids [batch, len], plus rows of a table of positions if there is one.
template <class T>
Tensor<T, 3> embed(const StoredTensor& ids, const Tensor<T, 2>& table,
                   const Tensor<T, 2>* positions = nullptr, Index first_position = 0) {
  const auto id = ids.view<std::int64_t, 2>();
  Tensor<T, 3> x({id.extent(0), id.extent(1), table.extent(1)});
  for (Index b = 0; b < x.extent(0); ++b)
    for (Index i = 0; i < x.extent(1); ++i)
      for (Index d = 0; d < x.extent(2); ++d)
        x(b, i, d) = table(id(b, i), d) + (positions ? (*positions)(first_position + i, d) : T(0));
  return x;
}

/// The stacks of a model, run layer by layer so that all that the case knows can be compared.
template <class T>
struct EncoderDecoder {
  attn::TransformerEncoder<T> encoder;
  attn::TransformerDecoder<T> decoder;
  attn::Linear<T> head;  ///< hidden states to logits

  template <class M>
  void encode(Tensor<T, 3>& x, const M& mask, Comparison& out) {
    attn::Workspace workspace;
    const attn::MultiHeadAttentionOptions options{.workspace = &workspace};
    const Index heads = encoder.config().layer.num_heads, len = x.extent(1);
    for (std::size_t i = 0; i < encoder.layers().size(); ++i) {
      Tensor<T, 4> weights({x.extent(0), heads, len, len});
      encoder.layers()[i].apply(x.view(), attn::AttendWithWeights<T, M>{mask, weights.view()}, options);
      out.expect("encoder_attentions." + std::to_string(i), weights);
    }
    encoder.apply_final_norm(x.view(), options);
  }

  template <class M, class MemoryMask>
  void decode(Tensor<T, 3>& x, const Tensor<T, 3>& memory, const M& mask, const MemoryMask& memory_mask,
              Comparison& out) {
    attn::Workspace workspace;
    const attn::MultiHeadAttentionOptions options{.workspace = &workspace};
    const Index heads = decoder.config().layer.num_heads, len = x.extent(1);
    out.note_deep_stack();
    out.expect("hidden.0", x);
    for (std::size_t i = 0; i < decoder.layers().size(); ++i) {
      const std::string number = std::to_string(i);
      Tensor<T, 4> own({x.extent(0), heads, len, len}), cross({x.extent(0), heads, len, memory.extent(1)});
      decoder.layers()[i].apply(x.view(), memory.view(), attn::AttendWithWeights<T, M>{mask, own.view()},
                                attn::AttendWithWeights<T, MemoryMask>{memory_mask, cross.view()}, options);
      const bool is_last = i + 1 == decoder.layers().size();
      if (is_last && decoder.norm().weight()) decoder.norm().forward_into(x, x);
      out.expect("hidden." + std::to_string(i + 1), x);
      out.expect("decoder_attentions." + number, own);
      out.expect("cross_attentions." + number, cross);
    }
    out.expect("main", head.forward(x));
  }
};

/// T5: pre-norm without biases, a shared relative bias, and scores that are not scaled.
template <class T>
class T5 {
 public:
  explicit T5(const Case& c)
      : case_(c), weights_(c.tensors, "w."), table_(c.at("w.shared.weight").get<T, 2>()) {
    const attn::TransformerLayerConfig layer{.embed_dim = c.config.at("d_model"),
                                             .num_heads = c.config.at("num_heads"),
                                             .head_dim = c.config.at("d_kv"),
                                             .feed_forward_dim = c.config.at("d_ff"),
                                             .activation = attn::Activation::relu,
                                             .norm = attn::NormPlacement::pre,
                                             .norm_kind = attn::NormKind::rms,
                                             .norm_eps = c.config.at("layer_norm_epsilon"),
                                             .bias = false};
    const auto stack = [&](const char* layers) {
      return attn::TransformerConfig{layer, c.config.at(layers), attn::FinalNorm::present};
    };
    model_.encoder = attn::TransformerEncoder<T>(stack("num_layers"));
    model_.decoder = attn::TransformerDecoder<T>(stack("num_decoder_layers"));
    for (std::size_t i = 0; i < model_.encoder.layers().size(); ++i)
      read_layer(i, model_.encoder.layers()[i]);
    for (std::size_t i = 0; i < model_.decoder.layers().size(); ++i)
      read_layer(i, model_.decoder.layers()[i]);
    weights_.read("encoder.final_layer_norm", model_.encoder.norm());
    weights_.read("decoder.final_layer_norm", model_.decoder.norm());
    read_head();
  }

  void run(Comparison& out) {
    Tensor<T, 3> memory = embed(case_.at("in.ids"), table_), x = embed(case_.at("in.decoder_ids"), table_);
    model_.encode(memory, relative_bias("encoder", attn::RelativeDirection::bidirectional), out);
    const auto bias = relative_bias("decoder", attn::RelativeDirection::causal);
    model_.decode(x, memory, attn::Causal{} & bias, attn::NoMask{}, out);
  }

 private:
  auto relative_bias(const std::string& stack, attn::RelativeDirection direction) const {
    const auto table =
        case_.at("w." + stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight").get<T, 2>();
    return attn::RelativeBias(table, {case_.config.at("relative_attention_num_buckets"),
                                      case_.config.at("relative_attention_max_distance"), direction});
  }
  void read_attention(const WeightReader& reader, attn::MultiHeadAttention<T>& attention) const {
    reader.read("q", attention.q_proj());
    reader.read("k", attention.k_proj());
    reader.read("v", attention.v_proj());
    reader.read("o", attention.out_proj());
    const T unscale = static_cast<T>(std::sqrt(static_cast<double>(attention.config().head_dim)));
    attention.q_proj().weight().edit([&](const TensorView<T, 2>& w) {
      for (Index i = 0; i < w.size(); ++i) w.data()[i] *= unscale;
    });
  }
  void read_feed_forward(const WeightReader& reader, attn::FeedForward<T>& network) const {
    reader.read("DenseReluDense.wi", network.up_proj());
    reader.read("DenseReluDense.wo", network.down_proj());
  }
  void read_layer(std::size_t number, attn::TransformerEncoderLayer<T>& layer) const {
    const WeightReader reader = weights_.below("encoder.block." + std::to_string(number) + ".layer.");
    read_attention(reader.below("0.SelfAttention."), layer.self_attention());
    reader.read("0.layer_norm", layer.norm1());
    read_feed_forward(reader.below("1."), layer.feed_forward());
    reader.read("1.layer_norm", layer.norm2());
  }
  void read_layer(std::size_t number, attn::TransformerDecoderLayer<T>& layer) const {
    const WeightReader reader = weights_.below("decoder.block." + std::to_string(number) + ".layer.");
    read_attention(reader.below("0.SelfAttention."), layer.self_attention());
    reader.read("0.layer_norm", layer.norm1());
    read_attention(reader.below("1.EncDecAttention."), layer.cross_attention());
    reader.read("1.layer_norm", layer.norm2());
    read_feed_forward(reader.below("2."), layer.feed_forward());
    reader.read("2.layer_norm", layer.norm3());
  }
  /// The embeddings, divided by the square root of their width.
  void read_head() {
    model_.head = attn::Linear<T>({table_.extent(1), table_.extent(0), false});
    model_.head.weight().assign(table_);
    const T factor = static_cast<T>(1 / std::sqrt(static_cast<double>(table_.extent(1))));
    model_.head.weight().edit([&](const TensorView<T, 2>& w) {
      for (Index i = 0; i < w.size(); ++i) w.data()[i] *= factor;
    });
  }

  const Case& case_;
  WeightReader weights_;
  Tensor<T, 2> table_;
  EncoderDecoder<T> model_;
};

/// BART: post-norm, learned positions that start at row 2 of their table.
template <class T>
class Bart {
 public:
  explicit Bart(const Case& c)
      : case_(c), weights_(c.tensors, "w.model."), table_(c.at("w.model.shared.weight").get<T, 2>()) {
    const auto stack = [&](const std::string& name) {
      const attn::TransformerLayerConfig layer{.embed_dim = c.config.at("d_model"),
                                               .num_heads = c.config.at(name + "_attention_heads"),
                                               .feed_forward_dim = c.config.at(name + "_ffn_dim"),
                                               .activation = attn::Activation::gelu};
      return attn::TransformerConfig{layer, c.config.at(name + "_layers")};
    };
    model_.encoder = attn::TransformerEncoder<T>(stack("encoder"));
    model_.decoder = attn::TransformerDecoder<T>(stack("decoder"));
    for (std::size_t i = 0; i < model_.encoder.layers().size(); ++i) {
      auto& layer = model_.encoder.layers()[i];
      const WeightReader reader = weights_.below("encoder.layers." + std::to_string(i) + ".");
      read_common(reader, layer);
      reader.read("final_layer_norm", layer.norm2());
    }
    for (std::size_t i = 0; i < model_.decoder.layers().size(); ++i) {
      auto& layer = model_.decoder.layers()[i];
      const WeightReader reader = weights_.below("decoder.layers." + std::to_string(i) + ".");
      read_common(reader, layer);
      read_attention(reader.below("encoder_attn."), layer.cross_attention());
      reader.read("encoder_attn_layer_norm", layer.norm2());
      reader.read("final_layer_norm", layer.norm3());
    }
    model_.head = attn::Linear<T>({table_.extent(1), table_.extent(0), false});
    model_.head.weight().assign(table_);
  }

  void run(Comparison& out) {
    const std::vector<Index> lengths = prefix_lengths(case_.at("in.attention_mask"));
    const attn::KeyPadding padding{lengths};
    Tensor<T, 3> memory = embed_normed("in.ids", "encoder"), x = embed_normed("in.decoder_ids", "decoder");
    model_.encode(memory, padding, out);
    model_.decode(x, memory, attn::Causal{}, padding, out);
  }

 private:
  void read_attention(const WeightReader& reader, attn::MultiHeadAttention<T>& attention) const {
    reader.read("q_proj", attention.q_proj());
    reader.read("k_proj", attention.k_proj());
    reader.read("v_proj", attention.v_proj());
    reader.read("out_proj", attention.out_proj());
  }
  void read_common(const WeightReader& reader, auto& layer) const {
    read_attention(reader.below("self_attn."), layer.self_attention());
    reader.read("self_attn_layer_norm", layer.norm1());
    reader.read("fc1", layer.feed_forward().up_proj());
    reader.read("fc2", layer.feed_forward().down_proj());
  }
  Tensor<T, 3> embed_normed(const char* ids, const std::string& stack) const {
    const auto positions = case_.at("w.model." + stack + ".embed_positions.weight").get<T, 2>();
    Tensor<T, 3> x = embed(case_.at(ids), table_, &positions, 2);
    attn::Norm<T> norm({.dim = x.extent(2)});
    weights_.read(stack + ".layernorm_embedding", norm);
    norm.forward_into(x, x);
    return x;
  }

  const Case& case_;
  WeightReader weights_;
  Tensor<T, 2> table_;
  EncoderDecoder<T> model_;
};

}  // namespace

std::vector<Kind> transformers_encoder_decoder_kinds() {
  return {make_kind<float, double>("transformers:T5ForConditionalGeneration",
                                   []<class T>(const Case& c, Comparison& out) { T5<T>(c).run(out); }),
          make_kind<float, double>("transformers:BartForConditionalGeneration",
                                   []<class T>(const Case& c, Comparison& out) { Bart<T>(c).run(out); })};
}

}  // namespace attn_conformance
