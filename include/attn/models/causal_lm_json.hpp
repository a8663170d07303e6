// attn/models/causal_lm_json.hpp - CausalLMConfig from a Hugging Face config.json.
#pragma once
#include <limits>

#include "attn/models/causal_lm_config.hpp"
#include "attn/models/config_reader.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// Layers have lists of their own in a config, so what a file claims is bounded before memory is taken for
/// it.
inline Index read_num_layers(const ConfigReader& reader, const char* key) {
  constexpr Index limit = 10000;
  const Index layers = reader.count(key);
  check<FormatError>(layers <= limit, reader.file(), ": ", key, " is ", layers, ", more than ", limit);
  return layers;
}

/// What GPT-2 and BLOOM share: layer norms, biases everywhere, a plain network of four times the width.
inline CausalLMConfig read_classic(const ConfigReader& reader, const char* width, const char* layers,
                                   const char* heads) {
  CausalLMConfig c;
  c.vocab_size = reader.count("vocab_size");
  c.embed_dim = reader.count(width);
  c.num_layers = read_num_layers(reader, layers);
  c.num_heads = reader.count(heads);
  c.feed_forward_dim = 4 * c.embed_dim;
  c.gating = Gating::none;
  c.norm_kind = NormKind::layer;
  c.norm_eps = reader.positive_or("layer_norm_epsilon", 1e-5);
  c.attention_bias = c.feed_forward_bias = true;
  c.tied_embeddings = reader.flag_or("tie_word_embeddings", true);
  return c;
}

inline CausalLMConfig read_gpt2(const ConfigReader& reader) {
  reader.require_if_present("scale_attn_weights", true);
  reader.require_if_present("scale_attn_by_inverse_layer_idx", false);
  reader.require_if_present("add_cross_attention", false);
  CausalLMConfig c = read_classic(reader, "n_embd", "n_layer", "n_head");
  c.names = CausalLMNames::gpt2;
  c.positions = PositionKind::learned;
  c.max_len = reader.count("n_positions");
  c.feed_forward_dim = reader.count_or("n_inner", c.feed_forward_dim);
  c.activation = activation_named(reader.text_or("activation_function", "gelu_new"), reader.file(),
                                  "activation_function");
  return c;
}

inline CausalLMConfig read_bloom(const ConfigReader& reader) {
  reader.require_if_present("apply_residual_connection_post_layernorm", false);
  CausalLMConfig c = read_classic(reader, reader.either("hidden_size", "n_embed"),
                                  reader.either("n_layer", "num_hidden_layers"),
                                  reader.either("n_head", "num_attention_heads"));
  c.names = CausalLMNames::bloom;
  c.positions = PositionKind::alibi;
  c.max_len = std::numeric_limits<std::int32_t>::max();  // ALiBi has no last position
  c.activation = Activation::gelu_bloom;
  c.embedding_norm = true;
  return c;
}

/// The keys of rope_scaling (or rope_parameters), whose type has been read.
inline RopeScaling read_rope_scaling(const ConfigReader& reader, const std::string& type, Index max_len) {
  RopeScaling scaling;
  if (type == "default") return scaling;
  scaling.factor = reader.positive("factor");
  if (type == "linear") {
    scaling.kind = RopeScalingKind::linear;
  } else if (type == "llama3") {
    scaling.kind = RopeScalingKind::llama3;
    scaling.low_freq_factor = reader.positive("low_freq_factor");
    scaling.high_freq_factor = reader.positive("high_freq_factor");
    scaling.original_max_len = reader.count("original_max_position_embeddings");
  } else if (type == "yarn") {
    scaling.kind = RopeScalingKind::yarn;
    scaling.original_max_len = reader.count_or("original_max_position_embeddings", max_len);
    scaling.beta_fast = reader.positive_or("beta_fast", scaling.beta_fast);
    scaling.beta_slow = reader.positive_or("beta_slow", scaling.beta_slow);
    scaling.truncate = reader.flag_or("truncate", scaling.truncate);
    if (reader.contains("attention_factor")) scaling.attention_factor = reader.positive("attention_factor");
    scaling.mscale = reader.positive_or("mscale", 0);
    scaling.mscale_all_dim = reader.positive_or("mscale_all_dim", 0);
  } else {
    check<FormatError>(false, reader.file(), ": rope_type is \"", type,
                       "\", which is none of default, linear, llama3, yarn");
  }
  return scaling;
}

/// Rotary positions, as configs state them since 2025 (rope_parameters) and before (rope_theta,
/// rope_scaling).
inline RopeConfig read_rope(const ConfigReader& reader, const CausalLMConfig& c) {
  RopeConfig rope{.pairing = RopePairing::half, .head_dim = c.dim_of_heads()};
  const char* const key = reader.either("rope_parameters", "rope_scaling");
  const bool has_part = reader.contains(key);
  const ConfigReader part = has_part ? reader.below(key) : reader;
  rope.base = part.positive_or("rope_theta", reader.positive_or("rope_theta", rope.base));
  const double rotated =
      part.positive_or("partial_rotary_factor", reader.positive_or("partial_rotary_factor", 1));
  check<FormatError>(rotated <= 1, reader.file(), ": partial_rotary_factor is ", rotated, ", above 1");
  rope.rotary_dim = static_cast<Index>(rotated * static_cast<double>(rope.head_dim));
  check<FormatError>(rope.rotary_dim > 0 && rope.rotary_dim % 2 == 0, reader.file(),
                     ": partial_rotary_factor ", rotated, " makes ", rope.rotary_dim,
                     " rotated elements of head_dim ", rope.head_dim, ", which are not pairs");
  if (has_part)
    rope.scaling = read_rope_scaling(part, part.text_or("rope_type", part.text_or("type", "default").c_str()),
                                     c.max_len);
  return rope;
}

/// The windows of the layers: those that layer_types calls sliding_attention, or those for which
/// is_sliding(layer) where there is no such list. `width`: keys that a query sees.
template <class IsSliding>
std::vector<Index> read_windows(const ConfigReader& reader, Index num_layers, Index width,
                                IsSliding is_sliding) {
  const nlohmann::json types = reader.contains("layer_types") ? reader.json("layer_types") : nlohmann::json();
  check<FormatError>(types.is_null() || (types.is_array() && static_cast<Index>(types.size()) == num_layers),
                     reader.file(), ": layer_types is not a list of ", num_layers, " layers");
  std::vector<Index> windows;
  for (Index i = 0; i < num_layers; ++i) {
    bool slides = is_sliding(i);
    if (!types.is_null()) {
      const nlohmann::json& type = types[as_size(i)];
      slides = type == "sliding_attention";
      check<FormatError>(slides || type == "full_attention", reader.file(), ": layer_types[", i, "] is ",
                         type.dump(), ", neither full_attention nor sliding_attention");
    }
    check<FormatError>(!slides || width > 0, reader.file(), ": layer ", i,
                       " slides, but there is no sliding_window");
    windows.push_back(slides ? width : 0);
  }
  return windows;
}

/// What Llama, Mistral, Qwen3 and Gemma 2 share.
inline CausalLMConfig read_llama(const ConfigReader& reader) {
  CausalLMConfig c;
  c.vocab_size = reader.count("vocab_size");
  c.embed_dim = reader.count("hidden_size");
  c.num_layers = read_num_layers(reader, "num_hidden_layers");
  c.num_heads = reader.count("num_attention_heads");
  c.num_kv_heads = reader.count_or("num_key_value_heads", c.num_heads);
  check<FormatError>(reader.contains("head_dim") || c.embed_dim % c.num_heads == 0, reader.file(),
                     ": num_attention_heads ", c.num_heads, " does not divide hidden_size ", c.embed_dim,
                     " and there is no head_dim");
  c.head_dim = reader.count_or("head_dim", c.embed_dim / c.num_heads);
  c.feed_forward_dim = reader.count("intermediate_size");
  c.max_len = reader.count("max_position_embeddings");
  c.activation = activation_named(reader.text_or("hidden_act", "silu"), reader.file(), "hidden_act");
  c.norm_eps = reader.positive_or("rms_norm_eps", 1e-6);
  c.attention_bias = reader.flag_or("attention_bias", false);
  c.feed_forward_bias = reader.flag_or("mlp_bias", false);
  c.tied_embeddings = reader.flag_or("tie_word_embeddings", false);
  c.rope = read_rope(reader, c);
  return c;
}

inline CausalLMConfig read_mistral(const ConfigReader& reader) {
  CausalLMConfig c = read_llama(reader);
  const Index width = reader.count_or("sliding_window", 0);
  c.windows = read_windows(reader, c.num_layers, width, [&](Index) { return width > 0; });
  return c;
}

inline CausalLMConfig read_qwen3(const ConfigReader& reader) {
  CausalLMConfig c = read_llama(reader);
  c.qk_norm = true;
  const Index width = reader.flag_or("use_sliding_window", false) ? reader.count_or("sliding_window", 0) : 0;
  const Index full_layers = reader.count_or("max_window_layers", 28);
  c.windows =
      read_windows(reader, c.num_layers, width, [&](Index i) { return width > 0 && i >= full_layers; });
  return c;
}

inline CausalLMConfig read_gemma2(const ConfigReader& reader) {
  CausalLMConfig c = read_llama(reader);
  c.activation = activation_named(reader.text_or("hidden_activation", "gelu_pytorch_tanh"), reader.file(),
                                  "hidden_activation");
  c.norm_weight_offset = 1;
  c.branch_norms = BranchNorms::both_sides;
  c.attention_scale = 1 / std::sqrt(reader.positive_or("query_pre_attn_scalar", 256));
  c.attention_soft_cap = reader.positive_or("attn_logit_softcapping", 0);
  c.logit_soft_cap = reader.positive_or("final_logit_softcapping", 0);
  c.embedding_scale = std::sqrt(static_cast<double>(c.embed_dim));
  c.tied_embeddings = reader.flag_or("tie_word_embeddings", true);
  c.windows = read_windows(reader, c.num_layers, reader.count_or("sliding_window", 4096),
                           [](Index i) { return i % 2 == 0; });
  return c;
}

inline CausalLMConfig read_causal_lm(const ConfigReader& reader) {
  const std::string type = reader.text("model_type");
  if (type == "llama") return read_llama(reader);
  if (type == "mistral") return read_mistral(reader);
  if (type == "qwen3") return read_qwen3(reader);
  if (type == "gemma2") return read_gemma2(reader);
  if (type == "gpt2") return read_gpt2(reader);
  if (type == "bloom") return read_bloom(reader);
  check<FormatError>(false, reader.file(), ": model_type is \"", type,
                     "\", which is none of llama, mistral, qwen3, gemma2, gpt2, bloom");
  return {};
}

}  // namespace detail

/// The config of a model from the members of its config.json; `file` is what errors call it. Keys that are
/// absent have the values that Hugging Face's classes give them.
/// @throws FormatError naming the file and the key if one is missing, has the wrong type, is out of range, or
/// asks for what is not supported.
inline CausalLMConfig causal_lm_config(const nlohmann::json& json, const std::string& file) {
  const detail::ConfigReader reader(json, file);
  CausalLMConfig c = detail::read_causal_lm(reader);
  check<FormatError>(c.num_heads % c.kv_heads() == 0, file, ": num_key_value_heads ", c.kv_heads(),
                     " does not divide num_attention_heads ", c.num_heads);
  check<FormatError>(c.head_dim > 0 || c.embed_dim % c.num_heads == 0, file, ": ", c.num_heads,
                     " heads do not divide a width of ", c.embed_dim);
  c.end_tokens = reader.numbers("eos_token_id");
  return c;
}

/// As above, from a file.
inline CausalLMConfig read_causal_lm_config(const std::filesystem::path& path) {
  return causal_lm_config(read_json(path), path.string());
}

ATTN_NAMESPACE_END
