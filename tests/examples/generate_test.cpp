#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attn/models/causal_lm.hpp"
#include "attn/ops/build_info.hpp"
#include "common/bpe.hpp"
#include "common/chat.hpp"
#include "examples/run_command.hpp"
#include "examples/smollm2.hpp"
#include "examples/tiny_llama.hpp"

namespace {

using attn::Index;
using attn::examples::Bpe;
using attn_test::CommandResult;
using Strings = std::vector<std::string>;

/// The program `generate` with a tiny model of random weights.
class Generate : public testing::Test {
 protected:
  void SetUp() override {
    if (!attn_test::has_program("generate")) GTEST_SKIP() << "the example programs were not built";
    attn_test::write_tiny_llama(model);
  }

  CommandResult generate(Strings arguments, const std::string& prompt = "the old lighthouse") {
    arguments.insert(arguments.begin(), {"--model", model.string()});
    arguments.push_back(prompt);
    return attn_test::run_command(scratch, "generate", arguments);
  }
  /// `text` but for its first line where that says that the program is built without vectors.
  static std::string without_build_warning(const std::string& text) {
    return attn::build_info().is_fast() ? text : text.substr(text.find('\n') + 1);
  }
  /// What the program writes for 20 tokens.
  std::string text(Strings arguments) {
    arguments.insert(arguments.end(), {"--max-tokens", "20", "--ignore-end"});
    const CommandResult result = generate(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(without_build_warning(result.err), "");
    return result.out;
  }
  /// The likeliest continuation, each token from a run over the whole text.
  std::string greedy_text(const std::string& prompt, int count) const {
    const Bpe tokenizer = Bpe::load(model / "tokenizer.json");
    const auto lm = attn::CausalLM<float>::load(model);
    std::vector<Index> ids = tokenizer.encode(prompt);
    const auto prompt_size = static_cast<std::ptrdiff_t>(ids.size());
    for (int i = 0; i < count; ++i) {
      const attn::Tensor<float, 3> logits = lm.forward(std::span<const Index>(ids));
      const float* const last = &logits(0, static_cast<Index>(ids.size()) - 1, 0);
      ids.push_back(std::max_element(last, last + logits.extent(2)) - last);
    }
    return tokenizer.decode(std::vector<Index>(ids.begin() + prompt_size, ids.end())) + "\n";
  }
  /// Fails unless the run gave this exit code, nothing on stdout and one message with `text` on stderr.
  static void expect_refusal(const CommandResult& result, int exit_code, const std::string& text) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  }

  attn_test::TemporaryDirectory scratch;
  std::filesystem::path model = scratch / "model";
};

TEST_F(Generate, WritesTheLikeliestContinuationWithoutThePrompt) {
  EXPECT_EQ(text({}), greedy_text("the old lighthouse", 20));
}

TEST_F(Generate, GivesAChatModelTheMessageInItsForm) {
  const CommandResult result =
      generate({"--chat", "--system", "be brief", "--ignore-end", "-n", "8"}, "hello");
  EXPECT_EQ(result.out,
            greedy_text("<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
                        "<|im_start|>assistant\n",
                        8));
}

TEST_F(Generate, DoesNotDependOnThreads) { EXPECT_EQ(text({"--threads", "1"}), text({"--threads", "3"})); }

TEST_F(Generate, DrawsTheSameTextFromTheSameSeed) {
  EXPECT_EQ(text({"--seed", "5"}), text({"--seed", "5"}));
  EXPECT_NE(text({"--seed", "5"}), text({"--seed", "6"}));
  EXPECT_EQ(text({"--seed", "5", "--top-k", "1"}), text({}));
  EXPECT_EQ(text({"--seed", "5", "--temperature", "0"}), text({}));
  EXPECT_NE(text({"--top-p", "0.9"}), text({}));
}

TEST_F(Generate, StoresWeightsAndCacheAsAsked) {
  for (const std::string weights : {"f32", "bf16", "int8"})
    for (const std::string cache : {"f32", "f16", "bf16", "int8"})
      EXPECT_NE(text({"--weights", weights, "--cache", cache}), "") << weights << " " << cache;
}

TEST_F(Generate, WritesUtf8WhateverTheModelSays) {
  for (const std::string seed : {"1", "2", "3"})
    EXPECT_FALSE(
        attn::examples::find_invalid_utf8(text({"--temperature", "100", "--seed", seed})).has_value());
}

TEST_F(Generate, EndsWhereTheModelEndsTheText) {
  const std::string all = text({"--seed", "5"});
  nlohmann::json config = attn_test::tiny_llama_config(64);
  config["eos_token_id"] = nlohmann::json::array();
  for (Index id = 0; id < attn_test::TinyLlamaWeights::vocabulary; ++id) config["eos_token_id"].push_back(id);
  attn_test::write_text(model / "config.json", config.dump());
  EXPECT_EQ(generate({}).out, "\n");  // each token is an end
  EXPECT_EQ(text({"--seed", "5"}), all);
}

TEST_F(Generate, StopsWhereTheContextEnds) {
  const CommandResult result = generate({"--max-tokens", "1000", "--ignore-end", "--stats"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("for 64 tokens, 63 of them in use"), std::string::npos) << result.err;
}

TEST_F(Generate, TellsSpeedAndMemoryApartFromTheText) {
  const CommandResult plain = generate({"--ignore-end", "-n", "9"});
  const CommandResult stats = generate({"--ignore-end", "-n", "9", "--stats", "--cache", "int8"});
  EXPECT_EQ(generate({"--ignore-end", "-n", "9", "--stats"}).out, plain.out);
  for (const char* line :
       {"prefill: ", "decode: 8 tokens in ", "weights: f32, ", "cache: int8, ", "threads: "})
    EXPECT_NE(stats.err.find(line), std::string::npos) << line << stats.err;
}

TEST_F(Generate, NamesTheFileThatTheModelLacks) {
  for (const std::string name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    std::filesystem::rename(model / name, scratch / name);
    expect_refusal(generate({}), 1, name);
    std::filesystem::rename(scratch / name, model / name);
  }
}

TEST_F(Generate, SaysThatAModelIsAFolder) {
  const auto refusal = [&](const std::filesystem::path& path) {
    return attn_test::run_command(scratch, "generate", {"--model", path.string(), "hello"});
  };
  expect_refusal(refusal(scratch / "elsewhere"), 2, "--model: Directory does not exist");
  expect_refusal(refusal(model / "config.json"), 2, "--model: Directory is actually a file");
}

TEST_F(Generate, RefusesAModelThatItDoesNotKnowOrThatIsDamaged) {
  nlohmann::json config = attn_test::tiny_llama_config(64);
  config["model_type"] = "mamba";
  attn_test::write_text(model / "config.json", config.dump());
  expect_refusal(generate({}), 1, "mamba");
  attn_test::write_tiny_llama(model);
  attn_test::TinyLlamaWeights().write(model / "model.safetensors", "model.layers.1.mlp.up_proj.weight");
  expect_refusal(generate({}), 1, "layers.1.mlp.up_proj");
}

TEST_F(Generate, RefusesATokenizerThatIsNoneOrOfAnotherModel) {
  attn_test::write_text(model / "tokenizer.json", "[PAD]\n[UNK]\n");
  expect_refusal(generate({}), 1, "tokenizer.json: is not JSON");
  attn_test::write_text(model / "tokenizer.json", "{}");
  expect_refusal(generate({}), 1, "tokenizer.json: is not a tokenizer.json");
  attn_test::write_tiny_llama(model);
  nlohmann::json config = attn_test::tiny_llama_config(64);
  config["vocab_size"] = 100;
  attn_test::write_text(model / "config.json", config.dump());
  expect_refusal(generate({}), 1, "tokenizer.json has ids up to 480, but the model has a vocab_size of 100");
}

TEST_F(Generate, RefusesAPromptThatIsEmptyOrLongerThanTheContext) {
  expect_refusal(generate({}, ""), 1, "the prompt is empty");
  expect_refusal(generate({"--chat"}, ""), 1, "the prompt is empty");
  expect_refusal(generate({}, std::string(100, '?')), 1,
                 "the prompt has 100 tokens, which leaves no room in the model's context of 64");
}

TEST_F(Generate, RefusesAChatWithAModelThatKnowsNone) {
  std::string file = attn_test::read_text(model / "tokenizer.json");
  for (std::size_t at; (at = file.find("im_start")) != std::string::npos;) file.replace(at, 8, "start_im");
  attn_test::write_text(model / "tokenizer.json", file);
  expect_refusal(generate({"--chat"}), 1, "tokenizer.json has no <|im_start|>");
}

TEST_F(Generate, RefusesOptionsItDoesNotKnow) {
  expect_refusal(generate({"--fast"}), 2, "generate: there is no option --fast; see --help");
  expect_refusal(generate({"--max-tokns", "20"}, "a text"), 2, "generate: there is no option --max-tokns;");
  expect_refusal(generate({"two"}, "words"), 2,
                 "one word too many: words (a text of several words goes in quotes)");
  expect_refusal(generate({"--cache", "f8"}), 2, "--cache");
  expect_refusal(generate({"--weights", "f16"}), 2, "--weights");
  expect_refusal(generate({"--temperature", "-1"}), 2, "--temperature");
  expect_refusal(generate({"--top-p", "0"}), 2, "--top-p");
  expect_refusal(generate({"--max-tokens", "0"}), 2, "--max-tokens");
  expect_refusal(attn_test::run_command(scratch, "generate", {"hello"}), 2, "--model");
}

TEST_F(Generate, AnInterruptEndsTheTextCleanly) {
  attn_test::write_tiny_llama(model, 1 << 17);
  const std::string program =
      ATTN_TEST_EMULATOR + attn_test::quoted(ATTN_TEST_BINARY_DIR "/examples/generate");
  const std::string command = "timeout --preserve-status --signal=INT 2 " + program +
                              " --ignore-end -n 1000000" + " --temperature 9 --model " +
                              attn_test::quoted(model.string()) + " hello >" +
                              attn_test::quoted((scratch / "out").string());
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 130);
  const std::string out = attn_test::read_text(scratch / "out");
  EXPECT_TRUE(out.ends_with("\n"));
  EXPECT_GT(out.size(), 100u);
  EXPECT_FALSE(attn::examples::find_invalid_utf8(out).has_value());
}

/// SmolLM2-135M-Instruct against a float64 run of transformers. The goldens lie beside the project.
TEST(GenerateSmolLM2, WritesTheTextOfTransformers) {
  const auto model = attn_test::smollm2_directory();
  const std::filesystem::path goldens = ATTN_TEST_SHARED_DIR "/models/model_goldens.json";
  if (!model || !std::filesystem::exists(goldens) || !attn_test::has_program("generate"))
    GTEST_SKIP() << "no models/smollm2 (see tools/fetch_smollm2.py), no goldens or no program";
  const nlohmann::json golden = nlohmann::json::parse(attn_test::read_text(goldens))["smollm2"];
  const attn_test::TemporaryDirectory scratch;
  const auto generate = [&](Strings arguments) {
    arguments.insert(arguments.end(), {"--model", model->string(), "--max-tokens", "40"});
    return attn_test::run_command(scratch, "generate", arguments).out;
  };
  EXPECT_EQ(generate({golden["plain"]["prompt"]}), golden["plain"]["greedy_text"].get<std::string>() + "\n");
  EXPECT_EQ(generate({"--chat", "What is the capital of France, and why do people visit it?"}),
            golden["chat"]["greedy_text"].get<std::string>() + "\n");
}

}  // namespace
