// attn/models/encoder_decoder_config.hpp - EncoderDecoderConfig: what T5 and BART are made of, also as their
// config.json says.
#pragma once
#include <filesystem>
#include <limits>
#include <vector>

#include "attn/models/config_reader.hpp"
#include "attn/modules/transformer_config.hpp"

ATTN_NAMESPACE_BEGIN

/// How the weights of a checkpoint are called.
enum class EncoderDecoderNames {
  t5,    ///< T5 and its successors (T5 1.1, Flan-T5)
  bart,  ///< BART
};

/// A sequence-to-sequence model: an encoder of the source, and a decoder that attends to it.
struct EncoderDecoderConfig {
  EncoderDecoderNames names = EncoderDecoderNames::t5;
  Index vocab_size = 0;
  TransformerConfig encoder{};
  TransformerConfig decoder{};
  Index max_len = 0;                  ///< positions that the model knows, of source and target each
  Index relative_buckets = 0;         ///< of the learned biases per distance (RelativeBias); 0: none
  Index relative_max_distance = 128;  ///< from here on, distances share a bucket
  bool learned_positions = false;     ///< a vector per position is added to the embedding
  Index position_offset = 0;          ///< row of position 0 in the table of positions
  bool embedding_norm = false;        ///< a norm of their own behind the embeddings
  double embedding_scale = 1;         ///< multiplies the embeddings of tokens
  bool tied_embeddings = true;        ///< the logits' matrix is the table of embeddings
  double head_scale = 1;              ///< multiplies hidden states before the logits
  Index start_token = 0;              ///< what a target begins with
  std::vector<Index> end_tokens{};    ///< a target ends behind one of them

  Index embed_dim() const { return encoder.layer.embed_dim; }
};

namespace detail {

inline EncoderDecoderConfig read_t5(const ConfigReader& reader) {
  EncoderDecoderConfig c;
  const std::string network = reader.text_or("feed_forward_proj", "relu");
  const bool is_gated = network.starts_with("gated-");
  const std::string activation = network == "gated-gelu" ? "gelu_new" : network.substr(is_gated ? 6 : 0);
  TransformerLayerConfig layer{.embed_dim = reader.count("d_model"),
                               .num_heads = reader.count("num_heads"),
                               .head_dim = reader.count("d_kv"),
                               .feed_forward_dim = reader.count("d_ff"),
                               .activation = activation_named(activation, reader.file(), "feed_forward_proj"),
                               .gating = is_gated ? Gating::gated : Gating::none,
                               .norm = NormPlacement::pre,
                               .norm_kind = NormKind::rms,
                               .norm_eps = reader.positive_or("layer_norm_epsilon", 1e-6),
                               .bias = false,
                               .attention_scale = 1};
  const Index num_layers = reader.count("num_layers");
  c.encoder = {layer, num_layers, FinalNorm::present};
  c.decoder = {layer, reader.count_or("num_decoder_layers", num_layers), FinalNorm::present};
  c.max_len = std::numeric_limits<std::int32_t>::max();  // distances have no end
  c.relative_buckets = reader.count_or("relative_attention_num_buckets", 32);
  c.relative_max_distance = reader.count_or("relative_attention_max_distance", 128);
  c.tied_embeddings = reader.flag_or("tie_word_embeddings", true);
  // newer files say the latter by itself
  if (reader.flag_or("scale_decoder_outputs", c.tied_embeddings))
    c.head_scale = 1 / std::sqrt(static_cast<double>(layer.embed_dim));
  return c;
}

inline EncoderDecoderConfig read_bart(const ConfigReader& reader) {
  EncoderDecoderConfig c;
  c.names = EncoderDecoderNames::bart;
  const auto stack = [&](const std::string& name) {
    const TransformerLayerConfig layer{
        .embed_dim = reader.count("d_model"),
        .num_heads = reader.count((name + "_attention_heads").c_str()),
        .feed_forward_dim = reader.count((name + "_ffn_dim").c_str()),
        .activation = activation_named(reader.text_or("activation_function", "gelu"), reader.file(),
                                       "activation_function")};
    return TransformerConfig{layer, reader.count((name + "_layers").c_str())};
  };
  c.encoder = stack("encoder");
  c.decoder = stack("decoder");
  c.max_len = reader.count("max_position_embeddings");
  c.learned_positions = c.embedding_norm = true;
  c.position_offset = 2;
  reader.require_if_present("tie_word_embeddings", true);
  if (reader.flag_or("scale_embedding", false))
    c.embedding_scale = std::sqrt(static_cast<double>(c.embed_dim()));
  return c;
}

}  // namespace detail

/// The configuration of a config.json of model type "t5" or "bart"; `file` is what errors call it.
/// @throws FormatError naming the key that is missing, has another type or asks for what is not supported.
inline EncoderDecoderConfig encoder_decoder_config(const nlohmann::json& json, const std::string& file) {
  const detail::ConfigReader reader(json, file);
  const std::string type = reader.text("model_type");
  check<FormatError>(type == "t5" || type == "bart", file, ": model_type is \"", type,
                     "\", which is neither t5 nor bart");
  EncoderDecoderConfig c = type == "t5" ? detail::read_t5(reader) : detail::read_bart(reader);
  c.vocab_size = reader.count("vocab_size");
  for (const TransformerConfig* stack : {&c.encoder, &c.decoder})
    check<FormatError>(stack->layer.head_dim > 0 || c.embed_dim() % stack->layer.num_heads == 0, file, ": ",
                       stack->layer.num_heads, " heads do not divide d_model ", c.embed_dim());
  const std::vector<Index> start = reader.numbers(reader.either("decoder_start_token_id", "pad_token_id"));
  c.start_token = start.empty() ? 0 : start.front();
  c.end_tokens = reader.numbers("eos_token_id");
  check<FormatError>(c.start_token < c.vocab_size, file, ": decoder_start_token_id is ", c.start_token,
                     ", not within vocab_size ", c.vocab_size);
  return c;
}

/// Of the file config.json.
inline EncoderDecoderConfig read_encoder_decoder_config(const std::filesystem::path& file) {
  return encoder_decoder_config(read_json(file), file.string());
}

ATTN_NAMESPACE_END
