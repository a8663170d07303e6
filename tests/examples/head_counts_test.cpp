#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "attn/modules/multi_head_attention.hpp"
#include "attn/modules/parameters.hpp"
#include "common/head_cost.hpp"
#include "examples/run_command.hpp"

namespace {

using attn::Index;
using attn_test::CommandResult;

class HeadCountsProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (!attn_test::has_program("head_counts")) GTEST_SKIP() << "the example programs were not built";
  }
  CommandResult run(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--length", "16", "--seconds", "0"});
    return attn_test::run_command(scratch, "head_counts", arguments);
  }
  attn_test::TemporaryDirectory scratch;
};

TEST_F(HeadCountsProgram, ListsEveryDivisorOfEveryHeadCount) {
  const CommandResult result = run({"--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto all = nlohmann::json::parse(result.out);
  EXPECT_EQ(all["d_model"], 512);
  ASSERT_EQ(all["configurations"].size(), 1u + 3 + 4 + 5 + 6);
  std::set<Index> work_of_mha;
  for (const auto& c : all["configurations"]) {
    EXPECT_GT(c["seconds"].get<double>(), 0);
    if (c["num_heads"] == c["num_kv_heads"]) work_of_mha.insert(c["flops"].get<Index>());
  }
  EXPECT_EQ(work_of_mha.size(), 1u);
}

TEST_F(HeadCountsProgram, CountsTheParametersThatTheModuleHas) {
  for (const auto& c : attn::examples::head_sweep({.d_model = 96}, {1, 6, 12})) {
    const attn::MultiHeadAttention<float> layer(
        {.embed_dim = c.d_model, .num_heads = c.num_heads, .num_kv_heads = c.num_kv_heads, .bias = false});
    EXPECT_EQ(attn::parameter_count(layer), attn::examples::parameter_count(c));
  }
}

TEST_F(HeadCountsProgram, PrintsARowPerConfigurationAndWritesTheChart) {
  const CommandResult result =
      run({"--d-model", "64", "--heads", "1,2,4", "--plot", (scratch / "heads.svg").string()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 1 + 1 + 2 + 3);
  const std::string svg = attn_test::read_text(scratch / "heads.svg");
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST_F(HeadCountsProgram, RefusesWhatDoesNotFitAndPrintsNothing) {
  const CommandResult indivisible = run({"--heads", "7"});
  EXPECT_EQ(indivisible.exit_code, 1);
  EXPECT_NE(indivisible.err.find("d_model 512 does not divide into 7 heads"), std::string::npos);
  EXPECT_EQ(run({"--heads", "0"}).exit_code, 2);
  EXPECT_EQ(run({"--length", "many"}).exit_code, 2);
  const CommandResult unwritable = run({"--heads", "1", "--plot", "/no/such/folder/heads.svg"});
  EXPECT_EQ(unwritable.exit_code, 1);
  EXPECT_NE(unwritable.err.find("heads.svg"), std::string::npos);
  EXPECT_EQ(indivisible.out + unwritable.out, "");
}

}  // namespace
