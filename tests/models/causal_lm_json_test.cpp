// tests/models/causal_lm_json_test.cpp - what a config.json of a decoder-only model says, and what is wrong
// with it.
#include "attn/models/causal_lm_json.hpp"

#include <gtest/gtest.h>

#include "support/error_text.hpp"

namespace {

using attn::Index;
using attn::RopeScalingKind;
using attn_test::error_text;

nlohmann::json llama_json() {
  return {{"model_type", "llama"},    {"vocab_size", 40},         {"hidden_size", 32},
          {"num_hidden_layers", 4},   {"num_attention_heads", 4}, {"intermediate_size", 24},
          {"rms_norm_eps", 1e-5},     {"rope_theta", 5e5},        {"max_position_embeddings", 128},
          {"num_key_value_heads", 2}, {"eos_token_id", 7}};
}
attn::CausalLMConfig read(const nlohmann::json& changes, nlohmann::json json = llama_json()) {
  if (!changes.is_null()) json.update(changes);
  return attn::causal_lm_config(json, "config.json");
}
std::string error(const nlohmann::json& changes) {
  return error_text<attn::FormatError>([&] { (void)read(changes); });
}

TEST(CausalLMJson, ReadsALlamaWithTheDefaultsOfItsClass) {
  const attn::CausalLMConfig c = read({});
  EXPECT_EQ(c.names, attn::CausalLMNames::llama);
  EXPECT_EQ(c.positions, attn::PositionKind::rotary);
  EXPECT_EQ(c.dim_of_heads(), 8);
  EXPECT_EQ(c.kv_heads(), 2);
  EXPECT_EQ(c.activation, attn::Activation::silu);
  EXPECT_EQ(c.gating, attn::Gating::gated);
  EXPECT_EQ(c.rope.base, 5e5);
  EXPECT_EQ(c.rope.rotary_dim, 8);
  EXPECT_EQ(c.rope.scaling.kind, RopeScalingKind::none);
  EXPECT_FALSE(c.tied_embeddings);
  EXPECT_FALSE(c.attention_bias);
  EXPECT_EQ(c.window(3), 0);
  EXPECT_EQ(c.end_tokens, std::vector<Index>{7});
  EXPECT_EQ(read({{"eos_token_id", {3, 5}}}).end_tokens, (std::vector<Index>{3, 5}));
  EXPECT_EQ(read({{"eos_token_id", nullptr}}).end_tokens, std::vector<Index>{});
  EXPECT_EQ(read({{"num_key_value_heads", nullptr}}).kv_heads(), 4);
}

TEST(CausalLMJson, ReadsRotationsInTheOldAndTheNewForm) {
  const nlohmann::json scaling = {{"rope_type", "llama3"},
                                  {"factor", 8.0},
                                  {"low_freq_factor", 1.0},
                                  {"high_freq_factor", 4.0},
                                  {"original_max_position_embeddings", 64}};
  nlohmann::json parameters = scaling;
  parameters["rope_theta"] = 2e4;
  for (const auto& c : {read({{"rope_scaling", scaling}, {"rope_theta", 2e4}}),
                        read({{"rope_parameters", parameters}, {"rope_theta", 1e3}})}) {
    EXPECT_EQ(c.rope.base, 2e4);
    EXPECT_EQ(c.rope.scaling.kind, RopeScalingKind::llama3);
    EXPECT_EQ(c.rope.scaling.factor, 8);
    EXPECT_EQ(c.rope.scaling.original_max_len, 64);
  }
  const auto linear = read({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}});
  EXPECT_EQ(linear.rope.scaling.kind, RopeScalingKind::linear);
  const auto yarn = read({{"rope_scaling", {{"type", "yarn"}, {"factor", 4}, {"beta_fast", 16}}}});
  EXPECT_EQ(yarn.rope.scaling.kind, RopeScalingKind::yarn);
  EXPECT_EQ(yarn.rope.scaling.beta_fast, 16);
  EXPECT_EQ(yarn.rope.scaling.original_max_len, 128);
  EXPECT_EQ(read({{"partial_rotary_factor", 0.5}}).rope.rotary_dim, 4);
  EXPECT_EQ(
      error({{"partial_rotary_factor", 0.4}}),
      "attn: config.json: partial_rotary_factor 0.4 makes 3 rotated elements of head_dim 8, which are not "
      "pairs");
  EXPECT_EQ(
      error({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}}}),
      "attn: config.json: rope_scaling: rope_type is \"dynamic\", which is none of default, linear, llama3, "
      "yarn");
  EXPECT_EQ(error({{"rope_scaling", {{"rope_type", "linear"}}}}),
            "attn: config.json: rope_scaling: key factor is missing");
}

TEST(CausalLMJson, GivesEachLayerItsWindow) {
  const auto windows = [](nlohmann::json changes, const char* type) {
    changes["model_type"] = type;
    return read(changes).windows;
  };
  using Windows = std::vector<Index>;
  EXPECT_EQ(windows({{"sliding_window", 16}}, "mistral"), (Windows{16, 16, 16, 16}));
  EXPECT_EQ(windows({{"sliding_window", nullptr}}, "mistral"), (Windows{0, 0, 0, 0}));
  EXPECT_EQ(windows({{"sliding_window", 16}}, "gemma2"), (Windows{16, 0, 16, 0}));
  EXPECT_EQ(windows({}, "gemma2"), (Windows{4096, 0, 4096, 0}));
  EXPECT_EQ(windows({{"sliding_window", 16}, {"max_window_layers", 3}}, "qwen3"), (Windows{0, 0, 0, 0}));
  EXPECT_EQ(
      windows({{"sliding_window", 16}, {"max_window_layers", 3}, {"use_sliding_window", true}}, "qwen3"),
      (Windows{0, 0, 0, 16}));
  const char *const all = "full_attention", *const near = "sliding_attention";
  EXPECT_EQ(windows({{"sliding_window", 9}, {"layer_types", {all, near, near, all}}}, "gemma2"),
            (Windows{0, 9, 9, 0}));
  EXPECT_EQ(error({{"model_type", "gemma2"}, {"layer_types", {all}}}),
            "attn: config.json: layer_types is not a list of 4 layers");
  EXPECT_EQ(error({{"model_type", "gemma2"}, {"layer_types", {all, near, "linear_attention", all}}}),
            "attn: config.json: layer_types[2] is \"linear_attention\", neither full_attention nor "
            "sliding_attention");
  EXPECT_EQ(error({{"model_type", "mistral"}, {"layer_types", {all, near, near, all}}}),
            "attn: config.json: layer 1 slides, but there is no sliding_window");
}

TEST(CausalLMJson, KnowsWhatIsPeculiarToGemmaQwenGptAndBloom) {
  const auto gemma = read({{"model_type", "gemma2"},
                           {"query_pre_attn_scalar", 64},
                           {"attn_logit_softcapping", 50.0},
                           {"final_logit_softcapping", nullptr}});
  EXPECT_EQ(gemma.attention_scale, 0.125);
  EXPECT_EQ(gemma.attention_soft_cap, 50);
  EXPECT_EQ(gemma.logit_soft_cap, 0);
  EXPECT_EQ(gemma.norm_weight_offset, 1);
  EXPECT_EQ(gemma.embedding_scale, std::sqrt(32.0));
  EXPECT_EQ(gemma.activation, attn::Activation::gelu_tanh);
  EXPECT_TRUE(gemma.tied_embeddings);
  EXPECT_TRUE(read({{"model_type", "qwen3"}}).qk_norm);

  const nlohmann::json gpt = {{"model_type", "gpt2"}, {"vocab_size", 40}, {"n_embd", 32},
                              {"n_layer", 2},         {"n_head", 4},      {"n_positions", 64}};
  const auto gpt2 = read({}, gpt);
  EXPECT_EQ(gpt2.positions, attn::PositionKind::learned);
  EXPECT_EQ(gpt2.feed_forward_dim, 128);
  EXPECT_EQ(gpt2.activation, attn::Activation::gelu_tanh);
  EXPECT_EQ(gpt2.norm_kind, attn::NormKind::layer);
  EXPECT_TRUE(gpt2.tied_embeddings);
  EXPECT_EQ(read({{"n_inner", 48}}, gpt).feed_forward_dim, 48);

  const nlohmann::json other = {{"model_type", "bloom"}, {"vocab_size", 40}, {"n_embed", 32},
                                {"n_layer", 2},          {"n_head", 4},      {"layer_norm_epsilon", 1e-4}};
  const auto bloom = read({}, other);
  EXPECT_EQ(bloom.positions, attn::PositionKind::alibi);
  EXPECT_EQ(bloom.norm_eps, 1e-4);
  EXPECT_TRUE(bloom.embedding_norm);
}

TEST(CausalLMJson, NamesTheFileAndWhatIsWrong) {
  EXPECT_EQ(error({{"model_type", "mamba"}}),
            "attn: config.json: model_type is \"mamba\", which is none of llama, mistral, qwen3, gemma2, "
            "gpt2, bloom");
  nlohmann::json json = llama_json();
  json.erase("model_type");
  EXPECT_EQ(error_text<attn::FormatError>([&] { (void)read({}, json); }),
            "attn: config.json: key model_type is missing");
  json = llama_json();
  json.erase("vocab_size");
  EXPECT_EQ(error_text<attn::FormatError>([&] { (void)read({}, json); }),
            "attn: config.json: key vocab_size is missing");
  EXPECT_EQ(error({{"num_hidden_layers", -1}}),
            "attn: config.json: num_hidden_layers is -1, not within [1, 2^31)");
  EXPECT_EQ(error({{"num_hidden_layers", std::uint64_t{1} << 63}}),
            "attn: config.json: num_hidden_layers is 9223372036854775808, not within [1, 2^31)");
  EXPECT_EQ(error({{"num_hidden_layers", 2000000000}}),
            "attn: config.json: num_hidden_layers is 2000000000, more than 10000");
  EXPECT_EQ(error({{"num_key_value_heads", 3}}),
            "attn: config.json: num_key_value_heads 3 does not divide num_attention_heads 4");
  EXPECT_EQ(
      error({{"hidden_size", 30}}),
      "attn: config.json: num_attention_heads 4 does not divide hidden_size 30 and there is no head_dim");
  EXPECT_EQ(error({{"tie_word_embeddings", 1}}),
            "attn: config.json: key tie_word_embeddings is a number, not true or false");
  EXPECT_EQ(
      error({{"eos_token_id", {1, "two"}}}),
      "attn: config.json: eos_token_id is [1,\"two\"], not an integer within [0, 2^31) or a list of them");
  EXPECT_EQ(error({{"hidden_act", "mish"}}).substr(0, 46),
            "attn: config.json: hidden_act is \"mish\", which");
  EXPECT_EQ(
      error_text<attn::FormatError>([] { (void)attn::causal_lm_config(nlohmann::json::array(), "x.json"); }),
      "attn: x.json: is not a JSON object");
}

}  // namespace
