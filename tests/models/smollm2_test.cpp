// tests/models/smollm2_test.cpp - SmolLM2-135M-Instruct against a float64 run of transformers.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "attn/core/thread_pool.hpp"
#include "attn/io/safetensors.hpp"
#include "attn/models/causal_lm.hpp"
#include "examples/smollm2.hpp"
#include "support/attention.hpp"

namespace {

using attn::Index;
using Ids = std::vector<Index>;

constexpr const char* prompts[] = {"plain", "chat"};

/// The goldens lie beside the project, the model where tools/ lays it out; read once for all tests.
class SmolLM2 : public testing::Test {
 protected:
  static void TearDownTestSuite() { model.reset(); }
  void SetUp() override {
    const auto directory = attn_test::smollm2_directory();
    const std::filesystem::path goldens = ATTN_TEST_SHARED_DIR "/models/smollm2_golden.safetensors";
    if (!directory) GTEST_SKIP() << "no model; see tools/fetch_smollm2.py";
    if (!std::filesystem::exists(goldens)) GTEST_SKIP() << "no " << goldens;
    if (!model) model = std::make_unique<attn::CausalLM<float>>(attn::CausalLM<float>::load(*directory));
    golden = attn::open_safetensors(goldens).weights;
  }

  Ids ids(const std::string& name) const {
    const attn::StoredTensor& stored = golden.at(name);
    const attn::StoredTensor flat(stored.label(), stored.dtype(), {stored.size()}, {1}, stored.data());
    Ids all(attn::as_size(stored.size()));
    flat.copy_to(attn::TensorView<Index, 1>(all, {stored.size()}));
    return all;
  }
  double distance(const attn::Matrix<float>& logits, const std::string& name) const {
    const auto right = golden.get<float, 1>(name, {logits.cols()});
    return (logits.row(0) - Eigen::Map<const Eigen::RowVectorXf>(right.data(), logits.cols()))
        .cwiseAbs()
        .maxCoeff();
  }
  /// The logits behind the ids, given in chunks of this length.
  attn::Matrix<float> feed(const Ids& all, std::size_t chunk, attn::CausalLMCache<float>& cache) {
    attn::Matrix<float> logits(1, model->config().vocab_size);
    for (std::size_t first = 0; first < all.size(); first += chunk) {
      const std::span<const Index> part =
          std::span<const Index>(all).subspan(first, std::min(chunk, all.size() - first));
      model->forward_into(part, cache, logits, {.executor = pool, .workspace = &workspace});
    }
    return logits;
  }

  static inline std::unique_ptr<attn::CausalLM<float>> model;
  attn::WeightMap golden;
  attn::ThreadPool pool{2};
  attn::Workspace workspace;
};

TEST_F(SmolLM2, WritesTheTokensOfTransformersWhateverTheChunksOfThePrompt) {
  for (const std::string prompt : prompts) {
    const Ids given = ids(prompt + ".in.ids"), right = ids(prompt + ".out.greedy40");
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, given.size()}) {
      auto cache = model->make_cache({.max_len = 100});
      attn::Matrix<float> logits = feed(given, chunk, cache);
      EXPECT_LT(distance(logits, prompt + ".out.last_logits"), 2e-3) << prompt << " in chunks of " << chunk;
      Ids tokens;
      while (tokens.size() < right.size()) {
        Index best = 0;
        logits.row(0).maxCoeff(&best);
        tokens.push_back(best);
        if (tokens.size() == right.size()) break;
        logits = feed({best}, 1, cache);
      }
      EXPECT_EQ(tokens, right) << prompt << " in chunks of " << chunk;
      EXPECT_LT(distance(logits, prompt + ".out.logits_after_39_steps"), 2e-3);
    }
  }
}

TEST_F(SmolLM2, KeepsTheKeysAndValuesOfTransformers) {
  for (const std::string prompt : prompts) {
    auto cache = model->make_cache({.max_len = 64});
    const Ids given = ids(prompt + ".in.ids");
    (void)feed(given, given.size(), cache);
    for (const std::size_t layer : {std::size_t{0}, std::size_t{29}}) {
      const std::string name = prompt + ".out.cache." + std::to_string(layer);
      const auto compare = [&](const attn::StoredRows<float>& rows, const std::string& which) {
        const attn::TensorView<const float, 4> ours(rows.data, rows.extents, rows.strides);
        EXPECT_LT(attn_test::distance(ours, golden.get<float, 4>(name + which)), 1e-4) << name << which;
      };
      compare(cache.layers[layer].keys(), ".k");
      compare(cache.layers[layer].values(), ".v");
    }
  }
}

}  // namespace
