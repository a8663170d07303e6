#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "attn/io/json.hpp"
#include "attn/io/safetensors.hpp"
#include "common/sentence_encoder.hpp"

namespace {

using attn::Index;
using attn::examples::SentenceEncoder;
using attn::examples::TokenIds;

/// all-MiniLM-L6-v2 against a float64 run of transformers. The goldens lie beside the project.
class MiniLM : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& file : {model / "model.safetensors", goldens / "minilm_golden.safetensors"})
      if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file << "; see tools/fetch_minilm.py";
    texts = attn::read_json(goldens / "model_goldens.json")["minilm"]["sentences"];
    golden = attn::open_safetensors(goldens / "minilm_golden.safetensors").weights;
  }
  std::vector<TokenIds> tokenize(const SentenceEncoder& encoder) const {
    std::vector<TokenIds> ids;
    for (const std::string& text : texts) ids.push_back(encoder.tokenize(text));
    return ids;
  }

  std::filesystem::path model = ATTN_TEST_SOURCE_DIR "/models/minilm",
                        goldens = ATTN_TEST_SHARED_DIR "/models";
  std::vector<std::string> texts;
  attn::WeightMap golden;
};

TEST_F(MiniLM, HasTheIdsOfTransformers) {
  const auto ids = golden.view<std::int64_t, 2>("in.ids"),
             mask = golden.view<std::int64_t, 2>("in.attention_mask");
  const std::vector<TokenIds> ours = tokenize(SentenceEncoder(model));
  for (Index s = 0; s < ids.extent(0); ++s) {
    TokenIds expected;
    for (Index t = 0; t < ids.extent(1); ++t)
      if (mask(s, t) != 0) expected.push_back(ids(s, t));
    EXPECT_EQ(ours[static_cast<std::size_t>(s)], expected) << texts[static_cast<std::size_t>(s)];
  }
}

TEST_F(MiniLM, HasTheEmbeddingsOfTransformers) {
  const auto expected = golden.get<float, 2>("out.sentence_embedding");
  const SentenceEncoder encoder(model);
  const attn::Matrix<float> ours = encoder.encode(tokenize(encoder), {.batch = 12});
  const Eigen::Map<const attn::Matrix<float>> theirs(expected.data(), expected.extent(0), expected.extent(1));
  ASSERT_EQ(ours.rows(), theirs.rows());
  EXPECT_LT((ours - theirs).cwiseAbs().maxCoeff(), 1e-4F);
}

TEST_F(MiniLM, GivesASentenceTheSameVectorAloneAndInAPaddedBatch) {
  const SentenceEncoder encoder(model);
  const std::vector<TokenIds> ids = tokenize(encoder);
  const attn::Matrix<float> together = encoder.encode(ids, {.batch = 12}),
                            apart = encoder.encode(ids, {.batch = 1});
  EXPECT_LT((together - apart).cwiseAbs().maxCoeff(), 1e-5F);
}

}  // namespace
