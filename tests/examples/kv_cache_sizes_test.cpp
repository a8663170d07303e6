#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/cache_cost.hpp"
#include "examples/run_command.hpp"

namespace {

using attn::Index;
using attn::examples::CacheShape;
using attn::examples::StoredAs;
using attn_test::CommandResult;

constexpr StoredAs all_types[] = {StoredAs::f32, StoredAs::f16, StoredAs::bf16, StoredAs::int8};

TEST(CacheCost, IsWhatACacheReallyTakes) {
  for (const CacheShape& shape : attn::examples::known_cache_shapes())
    for (const StoredAs type : all_types)
      EXPECT_EQ(attn::examples::measured_cache_bytes_per_token(shape, type),
                attn::examples::cache_bytes_per_token(shape, type))
          << shape.model << " " << name_of(type);
}

TEST(CacheCost, OfLlama3IsFourTimesSmallerThanWithAKeyValueHeadPerQueryHead) {
  const std::vector<CacheShape> shapes = attn::examples::known_cache_shapes();
  EXPECT_EQ(shapes[0].group_size(), 4);
  EXPECT_EQ(cache_bytes_per_token(shapes[0], StoredAs::bf16), 131072);  // 2 * 32 * 8 * 128 * 2 bytes
  for (const StoredAs type : all_types)
    EXPECT_EQ(measured_cache_bytes_per_token(shapes[1], type),
              4 * measured_cache_bytes_per_token(shapes[0], type));
}

class KVCacheSizes : public testing::Test {
 protected:
  void SetUp() override {
    if (!attn_test::has_program("kv_cache_sizes")) GTEST_SKIP() << "the example programs were not built";
  }
  CommandResult run(const std::vector<std::string>& arguments) {
    return attn_test::run_command(scratch, "kv_cache_sizes", arguments);
  }
  attn_test::TemporaryDirectory scratch;
};

TEST_F(KVCacheSizes, PrintsARowPerModelAndWritesTheChart) {
  const CommandResult result = run({"--context", "1024", "--plot", (scratch / "cache.svg").string()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(result.out, '\n')),
            attn::examples::known_cache_shapes().size() + 2);
  EXPECT_NE(result.out.find("131,072"), std::string::npos);
  const std::string svg = attn_test::read_text(scratch / "cache.svg");
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST_F(KVCacheSizes, TakesTheShapeOfAModelFolder) {
  attn_test::write_text(scratch / "config.json",
                        R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3,
                            "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 96,
                            "vocab_size": 10, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
                            "rope_theta": 10000.0, "hidden_act": "silu"})");
  const CommandResult result = run({"--json", "--model", scratch.path().string()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto model = nlohmann::json::parse(result.out)["models"].back();
  EXPECT_EQ(model["kind"], "GQA");
  EXPECT_EQ(model["bytes_per_token"]["f32"], 2 * 3 * 2 * 8 * 4);
}

TEST_F(KVCacheSizes, RefusesWhatItCannotReadOrWriteAndPrintsNothing) {
  const CommandResult no_model = run({"--model", (scratch / "none").string()});
  EXPECT_EQ(no_model.exit_code, 1);
  EXPECT_NE(no_model.err.find("config.json"), std::string::npos);
  const CommandResult unwritable = run({"--plot", "/no/such/folder/cache.svg"});
  EXPECT_EQ(unwritable.exit_code, 1);
  EXPECT_NE(unwritable.err.find("cache.svg"), std::string::npos);
  EXPECT_EQ(run({"--context", "0"}).exit_code, 2);
  EXPECT_EQ(no_model.out + unwritable.out, "");
}

}  // namespace
