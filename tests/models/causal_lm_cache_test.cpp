// tests/models/causal_lm_cache_test.cpp - CausalLMCache: rolling windows, truncation, forks and reordering
// leave each sequence with the logits that it has alone.
#include "attn/models/causal_lm_cache.hpp"

#include <gtest/gtest.h>

#include "models/tiny_causal_lm.hpp"
#include "support/attention.hpp"

namespace {

using attn::Index;
using attn_test::Ids;
using attn_test::make_ids;

TEST(CausalLMCache, OfARollingWindowGivesAModelWithThatWindowTheLogitsOfTheWholeText) {
  attn::CausalLMConfig config = attn_test::tiny_llama();
  config.windows = {4, 4, 4};
  const auto model = attn_test::TinyCausalLM{"Mistral", config}.model<float>();
  const Ids ids = make_ids(2, 40);
  const auto whole = model.forward(ids);
  for (const Index page_rows : {0, 2}) {
    for (const Index chunk : {1, 5}) {
      auto cache = model.make_cache({.batch = 2, .max_len = 12, .page_rows = page_rows, .window = 4});
      for (Index first = 0; first < 40; first += chunk) {
        attn::Tensor<float, 3> logits({2, chunk, 40});
        const Ids part = ids.middleCols(first, chunk);
        model.forward_into(part, cache, logits);
        EXPECT_LT(attn_test::distance(logits, whole.view().slice(1, {first, first + chunk})), 2e-5)
            << "ids from " << first << " in chunks of " << chunk;
      }
      EXPECT_LE(cache.length(0), 12);
      EXPECT_EQ(cache.positions()[1], 40);
    }
  }
}

class CausalLMCacheOf : public testing::Test {
 protected:
  /// The logits behind the last of the ids, computed without a cache.
  attn::Matrix<float> right(const std::vector<Index>& ids) const {
    const auto all = model.forward(ids);
    return Eigen::Map<const attn::Matrix<float>>(all.data(), all.extent(1), all.extent(2)).bottomRows(1);
  }
  void expect_row(const attn::Matrix<float>& logits, Index row, const std::vector<Index>& ids) const {
    EXPECT_LT((logits.row(row) - right(ids)).cwiseAbs().maxCoeff(), 2e-5F) << "row " << row;
  }
  attn::CausalLM<float> model = attn_test::TinyCausalLM{"Llama", attn_test::tiny_llama()}.model<float>();
};

TEST_F(CausalLMCacheOf, IsTruncatedToAnEarlierText) {
  auto cache = model.make_cache({.batch = 2, .max_len = 16});
  (void)model.forward(make_ids(2, 9), cache);
  const Index lengths[] = {5, 7};
  cache.truncate(lengths);
  Ids next(2, 1);
  next << 8, 9;
  const attn::Matrix<float> logits = model.forward(next, cache);
  const Ids ids = make_ids(2, 9);
  for (Index b = 0; b < 2; ++b) {
    std::vector<Index> text(ids.row(b).data(), ids.row(b).data() + lengths[b]);
    text.push_back(next(b, 0));
    expect_row(logits, b, text);
  }
  cache.reset();
  EXPECT_EQ(cache.length(0), 0);
}

TEST_F(CausalLMCacheOf, IsForkedIntoSequencesThatGoTheirOwnWayAndAreReordered) {
  auto prompt = model.make_cache({.max_len = 16, .page_rows = 4});
  const std::vector<Index> text{3, 1, 4, 1, 5};
  (void)model.forward(text, prompt);
  const Index three[] = {0, 0, 0}, order[] = {2, 0, 2};
  auto cache = prompt.fork(three);
  Ids next(3, 1);
  next << 7, 8, 9;
  const attn::Matrix<float> logits = model.forward(next, cache);
  for (Index b = 0; b < 3; ++b) expect_row(logits, b, {3, 1, 4, 1, 5, next(b, 0)});
  cache.reorder(order);
  const attn::Matrix<float> then = model.forward(next, cache);
  expect_row(then, 0, {3, 1, 4, 1, 5, 9, 7});
  expect_row(then, 1, {3, 1, 4, 1, 5, 7, 8});
  expect_row(then, 2, {3, 1, 4, 1, 5, 9, 9});
  EXPECT_EQ(prompt.length(0), 5);
  expect_row(model.forward(std::vector<Index>{2}, prompt), 0, {3, 1, 4, 1, 5, 2});
}

}  // namespace
