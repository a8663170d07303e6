// attn/models/bert_config.hpp - BertConfig, and how it is read from a Hugging Face config.json.
#pragma once
#include <cmath>
#include <limits>

#include "attn/io/json.hpp"
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

namespace detail {

/// The members of a config.json; every failed read is a FormatError that names the file and the key.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& json, const std::string& file) : json_(json), file_(file) {
    check<FormatError>(json.is_object(), file, ": is not a JSON object");
  }

  bool contains(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }

  /// An integer in [1, 2^31).
  Index count(const char* key) const {
    const nlohmann::json& value = at(key, "an integer", [](const auto& v) { return v.is_number_integer(); });
    constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max();
    const bool fits = value.is_number_unsigned() ? value.template get<std::uint64_t>() <= std::uint64_t{limit}
                                                 : value.template get<std::int64_t>() <= limit;
    const bool positive = value.is_number_unsigned() ? value.template get<std::uint64_t>() > 0
                                                     : value.template get<std::int64_t>() > 0;
    check<FormatError>(fits && positive, file_, ": ", key, " is ", value.dump(), ", not within [1, 2^31)");
    return static_cast<Index>(value.template get<std::int64_t>());
  }
  /// A positive, finite number.
  double positive(const char* key) const {
    const nlohmann::json& value = at(key, "a number", [](const auto& v) { return v.is_number(); });
    const double number = value.template get<double>();
    check<FormatError>(number > 0 && std::isfinite(number), file_, ": ", key, " is ", value.dump(),
                       ", not positive");
    return number;
  }
  std::string text(const char* key) const {
    return at(key, "a string", [](const auto& v) { return v.is_string(); }).template get<std::string>();
  }
  /// If the key is there, it must be `only`: what else it may say changes the model, and is not supported.
  void require_if_present(const char* key, const nlohmann::json& only) const {
    check<FormatError>(!contains(key) || json_.at(key) == only, file_, ": ", key, " is ",
                       contains(key) ? json_.at(key).dump() : "", ", and only ", only.dump(),
                       " is supported");
  }

 private:
  template <class Is>
  const nlohmann::json& at(const char* key, const char* type, Is is) const {
    const auto value = json_.find(key);
    check<FormatError>(value != json_.end(), file_, ": key ", key, " is missing");
    check<FormatError>(is(*value), file_, ": key ", key, " is a ", value->type_name(), ", not ", type);
    return *value;
  }

  const nlohmann::json& json_;
  const std::string& file_;
};

/// The activation that a Hugging Face config calls `name`.
inline Activation activation_named(const std::string& name, const std::string& file, const char* key) {
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::gelu_tanh;
  if (name == "relu") return Activation::relu;
  if (name == "silu" || name == "swish") return Activation::silu;
  check<FormatError>(false, file, ": ", key, " is \"", name,
                     "\", which is none of gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu, silu, swish");
  return Activation::identity;
}

}  // namespace detail

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
