#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/run_command.hpp"
#include "examples/tiny_bert.hpp"

namespace {

using attn_test::CommandResult;
using nlohmann::json;
using Strings = std::vector<std::string>;

/// The program `embed` with a tiny model of random weights.
class Embed : public testing::Test {
 protected:
  void SetUp() override {
    if (!attn_test::has_program("embed")) GTEST_SKIP() << "the example programs were not built";
    attn_test::write_tiny_bert(model);
  }

  CommandResult embed(Strings arguments, const std::string& input = sentences) {
    arguments.insert(arguments.begin(), {"--model", model.string()});
    return attn_test::run_command(scratch, "embed", arguments, input);
  }
  json embed_json(Strings arguments, const std::string& input = sentences) {
    arguments.insert(arguments.end(), {"--json", "the red cat"});
    const CommandResult result = embed(arguments, input);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  }
  /// Fails unless the run gave this exit code, nothing on stdout and one message with `text` on stderr.
  static void expect_refusal(const CommandResult& result, int exit_code, const std::string& text) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  }

  static inline const std::string sentences =
      "The dog sat.\n\nthe RED cat\nblue train?\r\nred cats sat the train the dog sat\n";
  attn_test::TemporaryDirectory scratch;
  std::filesystem::path model = scratch / "model";
};

TEST_F(Embed, PrintsOneObjectWithTheSentencesInInputOrder) {
  const json all = embed_json({});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all["query"]["text"], "the red cat");
  EXPECT_EQ(all["query"]["ids"], json({2, 5, 10, 6, 3}));
  ASSERT_EQ(all["sentences"].size(), 4u);
  EXPECT_EQ(all["sentences"][0]["text"], "The dog sat.");
  EXPECT_EQ(all["sentences"][1]["text"], "the RED cat");
  EXPECT_EQ(all["sentences"][2]["text"], "blue train?");
  EXPECT_EQ(all["sentences"][3]["ids"], json({2, 10, 6, 9, 8, 5, 12, 5, 7, 8, 3}));
}

TEST_F(Embed, ScoresAreCosinesOfUnitVectors) {
  const json all = embed_json({});
  const auto query = all["query"]["embedding"].get<std::vector<double>>();
  for (const json& sentence : all["sentences"]) {
    const auto embedding = sentence["embedding"].get<std::vector<double>>();
    ASSERT_EQ(embedding.size(), 16u);
    double norm = 0, dot = 0;
    for (std::size_t i = 0; i < 16; ++i) {
      norm += embedding[i] * embedding[i];
      dot += embedding[i] * query[i];
    }
    EXPECT_NEAR(norm, 1, 1e-6);
    EXPECT_NEAR(sentence["score"].get<double>(), dot, 1e-6);
  }
  EXPECT_NEAR(all["sentences"][1]["score"].get<double>(), 1, 1e-6);  // the query but for its case
}

TEST_F(Embed, DoesNotDependOnThreads) {
  EXPECT_EQ(embed_json({"--threads", "1"}), embed_json({"--threads", "3"}));
}

TEST_F(Embed, GivesASentenceTheSameVectorAloneAndInAPaddedBatch) {
  const json together = embed_json({"--batch", "64"})["sentences"],
             apart = embed_json({"--batch", "1"})["sentences"];
  ASSERT_EQ(together.size(), apart.size());
  for (std::size_t s = 0; s < together.size(); ++s)
    for (std::size_t i = 0; i < 16; ++i)
      EXPECT_NEAR(together[s]["embedding"][i].get<double>(), apart[s]["embedding"][i].get<double>(), 1e-5);
}

TEST_F(Embed, RanksTheBestFirstAndShowsAsManyAsAsked) {
  const CommandResult best = embed({"--top", "2", "the red cat"});
  EXPECT_EQ(best.exit_code, 0) << best.err;
  EXPECT_EQ(std::ranges::count(best.out, '\n'), 3);
  EXPECT_LT(best.out.find("1  1.000  the RED cat"), best.out.find("   2  ")) << best.out;
  EXPECT_EQ(std::ranges::count(embed({"--top", "0", "the red cat"}).out, '\n'), 5);
}

TEST_F(Embed, ReadsAFileAsItReadsStandardInput) {
  attn_test::write_text(scratch / "notes.txt", sentences);
  EXPECT_EQ(embed_json({"--file", (scratch / "notes.txt").string()}, ""), embed_json({}));
}

TEST_F(Embed, CutsSentencesToWhatTheModelAllows) {
  std::string line;
  for (int i = 0; i < 100; ++i) line += "cat ";
  EXPECT_EQ(embed_json({}, line)["sentences"][0]["ids"].size(), 12u);  // the model has 12 positions
  EXPECT_EQ(embed_json({"--max-tokens", "5"}, line)["sentences"][0]["ids"].size(), 5u);
}

TEST_F(Embed, NamesTheFileThatTheModelLacks) {
  for (const std::string name : {"config.json", "vocab.txt", "model.safetensors"}) {
    std::filesystem::rename(model / name, scratch / name);
    expect_refusal(embed({"cat"}), 1, name);
    std::filesystem::rename(scratch / name, model / name);
  }
  std::filesystem::remove_all(model);
  expect_refusal(embed({"cat"}), 2, "--model: Directory does not exist: " + model.string());
}

TEST_F(Embed, RefusesAVocabularyThatTheModelHasNoRowsFor) {
  attn_test::write_text(model / "vocab.txt", attn_test::tiny_vocabulary + "green\n");
  expect_refusal(embed({"cat"}), 1, "vocab.txt");
}

TEST_F(Embed, NamesTheLineThatIsNotUtf8) {
  expect_refusal(embed({"cat"}, "cat\nd\xFFg\n"), 1, "standard input line 2 is not UTF-8");
  expect_refusal(embed({"c\xFFt"}), 1, "the query is not UTF-8");
}

TEST_F(Embed, RefusesEmptyInput) {
  expect_refusal(embed({"cat"}, ""), 1, "standard input has no sentence");
  expect_refusal(embed({"cat"}, "\n \n"), 1, "standard input has no sentence");
  expect_refusal(embed({" "}), 1, "the query is empty");
}

TEST_F(Embed, NamesAFileThatCannotBeRead) {
  expect_refusal(embed({"--file", (scratch / "none.txt").string(), "cat"}), 1, "none.txt");
  expect_refusal(embed({"--file", scratch.path().string(), "cat"}), 1, scratch.path().string());
}

TEST_F(Embed, RefusesOptionsItDoesNotKnow) {
  expect_refusal(embed({"--fast", "cat"}), 2, "--fast");
  expect_refusal(embed({"--threads", "0", "cat"}), 2, "--threads");
  expect_refusal(embed({"--top", "-1", "cat"}), 2, "--top");
  expect_refusal(embed({}), 2, "query");
  expect_refusal(attn_test::run_command(scratch, "embed", {"cat"}), 2, "--model");
}

TEST_F(Embed, ShowsNoControlCharactersOfTheText) {
  const CommandResult result = embed({"cat"}, "cat\x1b[31m dog\n");
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(embed_json({}, "cat\x1b[31m dog\n")["sentences"][0]["text"], "cat\x1b[31m dog");
}

}  // namespace
