// attn/models/bert_config.hpp - BertConfig, and how it is read from a Hugging Face config.json.
#pragma once
#include "attn/models/config_reader.hpp"
#include "attn/modules/transformer_config.hpp"

ATTN_NAMESPACE_BEGIN

/// A BERT encoder (Devlin et al. 2019). Defaults: those of the base model.
struct BertConfig {
  Index vocab_size = 30522;
  Index embed_dim = 768;                     ///< hidden_size
  Index num_layers = 12;                     ///< num_hidden_layers
  Index num_heads = 12;                      ///< num_attention_heads
  Index feed_forward_dim = 3072;             ///< intermediate_size
  Index max_len = 512;                       ///< max_position_embeddings
  Index num_token_types = 2;                 ///< type_vocab_size
  Activation activation = Activation::gelu;  ///< hidden_act
  double norm_eps = 1e-12;                   ///< layer_norm_eps

  TransformerConfig encoder() const {
    return {.layer = {.embed_dim = embed_dim,
                      .num_heads = num_heads,
                      .feed_forward_dim = feed_forward_dim,
                      .activation = activation,
                      .norm = NormPlacement::post,
                      .norm_eps = norm_eps},
            .num_layers = num_layers};
  }
};

/// The config of a BERT model from the members of its config.json; `file` is what errors call it.
/// @throws FormatError naming the file and the key if one is missing, has the wrong type, is out of range, or
/// asks for something else than a plain BERT encoder.
inline BertConfig bert_config(const nlohmann::json& json, const std::string& file) {
  const detail::ConfigReader reader(json, file);
  reader.require_if_present("model_type", "bert");
  reader.require_if_present("position_embedding_type", "absolute");
  reader.require_if_present("is_decoder", false);
  BertConfig config;
  config.vocab_size = reader.count("vocab_size");
  config.embed_dim = reader.count("hidden_size");
  config.num_layers = reader.count("num_hidden_layers");
  config.num_heads = reader.count("num_attention_heads");
  config.feed_forward_dim = reader.count("intermediate_size");
  config.max_len = reader.count("max_position_embeddings");
  config.num_token_types = reader.count("type_vocab_size");
  config.activation = detail::activation_named(reader.text("hidden_act"), file, "hidden_act");
  config.norm_eps = reader.positive("layer_norm_eps");
  check<FormatError>(config.embed_dim % config.num_heads == 0, file, ": num_attention_heads ",
                     config.num_heads, " does not divide hidden_size ", config.embed_dim);
  return config;
}

/// As above, from a file.
inline BertConfig read_bert_config(const std::filesystem::path& path) {
  return bert_config(read_json(path), path.string());
}

ATTN_NAMESPACE_END
