// tests/models/causal_lm_errors_test.cpp - what CausalLM says about input that it cannot use, and models in
// directories.
#include <gtest/gtest.h>

#include "attn/io/safetensors.hpp"
#include "models/tiny_causal_lm.hpp"
#include "support/error_text.hpp"
#include "support/temporary_directory.hpp"

namespace {

using attn::Index;
using attn_test::error_text;
using attn_test::Ids;
using attn_test::make_ids;

class CausalLMErrors : public testing::Test {
 protected:
  template <class Error>
  std::string error(const Ids& ids, const attn::CausalLMOptions& options = {}) {
    return error_text<Error>([&] { (void)model.forward(ids, cache, options); });
  }
  attn::CausalLM<float> model = attn_test::TinyCausalLM{"Llama", attn_test::tiny_llama()}.model<float>();
  attn::CausalLMCache<float> cache = model.make_cache({.batch = 2, .max_len = 100});
};

TEST_F(CausalLMErrors, NameThePromptThatIsEmptyOrTooLong) {
  EXPECT_EQ(error<std::invalid_argument>(Ids(2, 0)),
            "attn: CausalLM: the prompt is empty: there is no token in ids [2, 0]");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { (void)model.forward(std::vector<Index>{}); }),
            "attn: CausalLM: the prompt is empty: there is no token in ids [1, 0]");
  const Index none[] = {0, 0}, one[] = {3, 0};
  EXPECT_EQ(error<std::invalid_argument>(make_ids(2, 3), {.lengths = none}),
            "attn: CausalLM: the prompt is empty: there is no token in ids [2, 3]");
  EXPECT_EQ(error<std::invalid_argument>(make_ids(2, 3), {.lengths = one}),
            "attn: CausalLM: the prompt of sequence 1 is empty");
  EXPECT_EQ(
      error<std::length_error>(make_ids(2, 65)),
      "attn: CausalLM: sequence 0 of 0 tokens in the cache and 65 new ones is longer than the context, 64");
  const Index unequal[] = {10, 60};
  (void)model.forward(make_ids(2, 60), cache, {.lengths = unequal});
  EXPECT_EQ(
      error<std::length_error>(make_ids(2, 5)),
      "attn: CausalLM: sequence 1 of 60 tokens in the cache and 5 new ones is longer than the context, 64");
  EXPECT_EQ(cache.length(0), 10);
}

TEST_F(CausalLMErrors, NameWhatDoesNotFit) {
  Ids ids = make_ids(2, 3);
  ids(1, 2) = 40;
  EXPECT_EQ(error<std::invalid_argument>(ids), "attn: CausalLM: ids(1, 2) is 40, not within [0, 40)");
  ids(1, 2) = -1;
  EXPECT_EQ(error<std::invalid_argument>(ids), "attn: CausalLM: ids(1, 2) is -1, not within [0, 40)");
  EXPECT_EQ(error<attn::ShapeError>(make_ids(3, 3)),
            "attn: CausalLM: a cache of 3 layers and batch 2 does not fit 3 layers and ids [3, 3]");
  const Index two_of_three[] = {1, 2, 3}, too_long[] = {1, 4};
  EXPECT_EQ(error<attn::ShapeError>(make_ids(2, 3), {.lengths = two_of_three}),
            "attn: CausalLM: 3 lengths for ids [2, 3]");
  EXPECT_EQ(error<attn::ShapeError>(make_ids(2, 3), {.lengths = too_long}),
            "attn: CausalLM: lengths[1] is 4, not within ids [2, 3]");
  attn::Matrix<float> logits(2, 39);
  EXPECT_EQ(error_text<attn::ShapeError>([&] { model.forward_into(make_ids(2, 3), cache, logits); }),
            "attn: CausalLM: logits [2, 39] should be [2, 40]");
  attn::Tensor<float, 3> all({2, 1, 40});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { model.forward_into(make_ids(2, 3), cache, all); }),
            "attn: CausalLM: logits [2, 1, 40] should be [2, 3, 40]");
  auto config = attn_test::tiny_llama();
  config.windows = {4};
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::CausalLM<float>{config}; }),
            "attn: CausalLM: 1 windows for num_layers 3");
}

TEST_F(CausalLMErrors, NameTheCacheThatIsFull) {
  auto small = model.make_cache({.batch = 2, .max_len = 4});
  const std::string text = error_text<std::length_error>([&] { (void)model.forward(make_ids(2, 5), small); });
  EXPECT_NE(text.find("KVCache"), std::string::npos) << text;
  EXPECT_EQ(small.length(0), 0);
}

TEST_F(CausalLMErrors, NameAWeightThatIsMissingOrDiffersBeforeMemoryIsTakenForIt) {
  const attn_test::HuggingFaceWeights weights(model, true);
  const auto error = [&](const attn::CausalLMConfig& config) {
    return error_text<attn::FormatError>([&] { attn::CausalLM<float>(config, weights.map()); });
  };
  auto config = attn_test::tiny_llama();
  config.vocab_size = Index{1} << 30;
  EXPECT_EQ(
      error(config),
      "attn: test weights: weight 'model.embed_tokens.weight' has shape [40, 24], not [1073741824, 24]");
  config = attn_test::tiny_llama();
  config.num_layers = Index{1} << 30;
  EXPECT_EQ(error(config), "attn: test weights: weight 'model.layers.3.self_attn.q_proj.weight' is missing");
  config = attn_test::tiny_llama();
  config.qk_norm = true;
  EXPECT_EQ(error(config), "attn: test weights: weight 'model.layers.0.self_attn.q_norm.weight' is missing");
  EXPECT_EQ(error_text<attn::FormatError>(
                [&] { attn::CausalLM<float>(attn_test::tiny_llama(), attn::WeightMap("an empty file")); }),
            "attn: an empty file: weight 'embed_tokens.weight' is missing");
}

/// config.json of tiny_llama().
constexpr const char* config_text = R"({
  "model_type": "llama", "vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 20, "max_position_embeddings": 64, "rms_norm_eps": 1e-06,
  "eos_token_id": 2})";

TEST_F(CausalLMErrors, ComeFromTheFilesOfADirectoryToo) {
  const attn_test::TemporaryDirectory directory;
  const auto load = [&] { return attn::CausalLM<float>::load(directory.path()); };
  EXPECT_NE(error_text<attn::FormatError>([&] { (void)load(); }).find("config.json"), std::string::npos);
  attn_test::write_text(directory / "config.json", config_text);
  EXPECT_NE(error_text<attn::FormatError>([&] { (void)load(); }).find("model.safetensors"),
            std::string::npos);

  const attn_test::HuggingFaceWeights weights(model, true);
  attn::WeightMap first, second;
  nlohmann::json index;
  for (const std::string& name : weights.map().names()) {
    const bool is_first = name < "model.layers.1.";
    (is_first ? first : second).add(name, weights.map().at(name));
    index["weight_map"][name] =
        is_first ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
  }
  attn::write_safetensors(directory / "model-00001-of-00002.safetensors", first);
  attn_test::write_text(directory / "model.safetensors.index.json", index.dump());
  EXPECT_NE(error_text<attn::FormatError>([&] { (void)load(); }).find("model-00002-of-00002"),
            std::string::npos);
  attn::write_safetensors(directory / "model-00002-of-00002.safetensors", second);
  const attn::CausalLM<float> loaded = load();
  EXPECT_EQ(loaded.forward(make_ids(2, 9)), model.forward(make_ids(2, 9)));
  EXPECT_EQ(loaded.config().end_tokens, std::vector<Index>{2});
}

}  // namespace
