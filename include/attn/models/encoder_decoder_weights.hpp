// attn/models/encoder_decoder_weights.hpp - the modules of an EncoderDecoder, and how Hugging Face's weights
// fill them.
#pragma once
#include <string>

#include "attn/models/encoder_decoder_config.hpp"
#include "attn/models/weight_reader.hpp"
#include "attn/modules/transformer_decoder.hpp"

ATTN_NAMESPACE_BEGIN

/// What stands around one stack of an EncoderDecoder; all absent unless the model has them.
template <Element T>
struct EncoderDecoderInput {
  Parameter<T, 2> positions;  ///< [position_offset + max_len, embed_dim]
  Norm<T> embedding_norm;
  Parameter<T, 2> relative_bias;  ///< [relative_buckets, num_heads]

  EncoderDecoderInput() = default;
  EncoderDecoderInput(const EncoderDecoderConfig& c, const TransformerConfig& stack) {
    if (c.learned_positions)
      positions = Parameter<T, 2>("positions", {c.position_offset + c.max_len, c.embed_dim()});
    if (c.embedding_norm) embedding_norm = Norm<T>(stack.layer.norm_config());
    if (c.relative_buckets > 0)
      relative_bias = Parameter<T, 2>("relative_bias", {c.relative_buckets, stack.layer.num_heads});
  }

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("positions", self.positions);
    f("embedding_norm", self.embedding_norm);
    f("relative_bias", self.relative_bias);
  }
};

/// The modules of a sequence-to-sequence model with weights of type T; all zero at first (norms one).
template <Element T>
struct EncoderDecoderModules {
  EncoderDecoderModules() = default;
  /// @throws ShapeError as the modules.
  explicit EncoderDecoderModules(const EncoderDecoderConfig& c)
      : encoder_input(c, c.encoder),
        decoder_input(c, c.decoder),
        encoder(c.encoder),
        decoder(c.decoder),
        head({.in_dim = c.embed_dim(),
              .out_dim = c.vocab_size,
              .bias = c.names == EncoderDecoderNames::bart}) {
    if (!c.tied_embeddings) embedding = Parameter<T, 2>("embedding", {c.vocab_size, c.embed_dim()});
  }

  Parameter<T, 2> embedding;  ///< [vocab_size, embed_dim]; absent if it is the weight of `head`
  EncoderDecoderInput<T> encoder_input, decoder_input;
  TransformerEncoder<T> encoder;
  TransformerDecoder<T> decoder;
  Linear<T> head;  ///< hidden states to logits

  /// A row per token.
  const Parameter<T, 2>& table() const { return embedding ? embedding : head.weight(); }
  Parameter<T, 2>& table() { return embedding ? embedding : head.weight(); }

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("embedding", self.embedding);
    f("encoder_input", self.encoder_input);
    f("decoder_input", self.decoder_input);
    f("encoder", self.encoder);
    f("decoder", self.decoder);
    f("head", self.head);
  }
};

namespace detail {

/// Fills EncoderDecoderModules; every failure is a FormatError that names the weight.
template <Element T>
class EncoderDecoderWeights {
 public:
  /// Borrows both.
  EncoderDecoderWeights(const EncoderDecoderConfig& config, const WeightMap& weights)
      : c_(config), all_(weights), body_(all_.below(is_t5() ? "" : "model.")) {}

  /// The shapes of what takes most memory, before memory is taken for what a config only claims.
  void check() const {
    const Index dim = c_.embed_dim();
    body_.template require<2>("shared.weight", {c_.vocab_size, dim});
    if (!c_.tied_embeddings) all_.template require<2>("lm_head.weight", {c_.vocab_size, dim});
    for (const bool is_encoder : {true, false}) {
      const TransformerConfig& stack = is_encoder ? c_.encoder : c_.decoder;
      const std::string name = is_encoder ? "encoder." : "decoder.";
      if (c_.learned_positions)
        body_.template require<2>(name + "embed_positions.weight", {c_.position_offset + c_.max_len, dim});
      for (Index i = 0; i < stack.num_layers; ++i) {
        const WeightReader network = feed_forward_reader(layer_reader(name, i), is_encoder);
        network.template require<2>(names_of_network(stack.layer)[1] + ".weight",
                                    {stack.layer.feed_forward_dim, dim});
      }
    }
  }

  void read(EncoderDecoderModules<T>& m) const {
    body_.read("shared.weight", m.table());
    if (m.embedding) all_.read("lm_head.weight", m.head.weight());
    if (m.head.bias() && all_.contains("final_logits_bias")) {
      const auto bias = all_.template get<T, 2>("final_logits_bias", {1, c_.vocab_size});
      m.head.bias().assign(bias.view()[0]);
    }
    read_input("encoder.", m.encoder_input);
    read_input("decoder.", m.decoder_input);
    for (std::size_t i = 0; i < m.encoder.layers().size(); ++i) {
      auto& layer = m.encoder.layers()[i];
      const WeightReader reader = layer_reader("encoder.", static_cast<Index>(i));
      read_shared(reader, layer, true);
      reader.read(is_t5() ? "1.layer_norm" : "final_layer_norm", layer.norm2());
    }
    for (std::size_t i = 0; i < m.decoder.layers().size(); ++i) {
      auto& layer = m.decoder.layers()[i];
      const WeightReader reader = layer_reader("decoder.", static_cast<Index>(i));
      read_shared(reader, layer, false);
      read_attention(reader.below(is_t5() ? "1.EncDecAttention." : "encoder_attn."), layer.cross_attention());
      reader.read(is_t5() ? "1.layer_norm" : "encoder_attn_layer_norm", layer.norm2());
      reader.read(is_t5() ? "2.layer_norm" : "final_layer_norm", layer.norm3());
    }
    if (!is_t5()) return;
    body_.read("encoder.final_layer_norm", m.encoder.norm());
    body_.read("decoder.final_layer_norm", m.decoder.norm());
  }

 private:
  bool is_t5() const { return c_.names == EncoderDecoderNames::t5; }
  WeightReader layer_reader(const std::string& stack, Index i) const {
    const std::string number = std::to_string(i);
    return body_.below(stack + (is_t5() ? "block." + number + ".layer." : "layers." + number + "."));
  }
  WeightReader feed_forward_reader(const WeightReader& layer, bool is_encoder) const {
    return is_t5() ? layer.below(is_encoder ? "1.DenseReluDense." : "2.DenseReluDense.") : layer;
  }
  /// Of gate, up and down projection.
  std::array<std::string, 3> names_of_network(const TransformerLayerConfig& layer) const {
    if (!is_t5()) return {"", "fc1", "fc2"};
    return {"wi_0", layer.gating == Gating::gated ? "wi_1" : "wi", "wo"};
  }

  void read_input(const std::string& stack, EncoderDecoderInput<T>& input) const {
    if (input.positions) body_.read(stack + "embed_positions.weight", input.positions);
    if (c_.embedding_norm) body_.read(stack + "layernorm_embedding", input.embedding_norm);
    if (input.relative_bias)
      body_.read(stack + "block.0.layer.0.SelfAttention.relative_attention_bias.weight", input.relative_bias);
  }
  void read_attention(const WeightReader& reader, MultiHeadAttention<T>& attention) const {
    const std::string tail = is_t5() ? "" : "_proj";
    reader.read("q" + tail, attention.q_proj());
    reader.read("k" + tail, attention.k_proj());
    reader.read("v" + tail, attention.v_proj());
    reader.read(is_t5() ? "o" : "out_proj", attention.out_proj());
  }
  /// What layers of both stacks have.
  void read_shared(const WeightReader& reader, auto& layer, bool is_encoder) const {
    read_attention(reader.below(is_t5() ? "0.SelfAttention." : "self_attn."), layer.self_attention());
    reader.read(is_t5() ? "0.layer_norm" : "self_attn_layer_norm", layer.norm1());
    const WeightReader network = feed_forward_reader(reader, is_encoder);
    const auto [gate, up, down] = names_of_network(layer.config());
    if (layer.config().gating == Gating::gated) network.read(gate, layer.feed_forward().gate_proj());
    network.read(up, layer.feed_forward().up_proj());
    network.read(down, layer.feed_forward().down_proj());
  }

  const EncoderDecoderConfig& c_;
  WeightReader all_, body_;
};

}  // namespace detail
ATTN_NAMESPACE_END
