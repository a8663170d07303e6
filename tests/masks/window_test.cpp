#include "attn/masks/window.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/ops/sdpa.hpp"
#include "masks/consistency.hpp"
#include "support/attention.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::Problem;
using attn::SlidingWindow;
using attn_test::Draw;
using attn_test::fill;
using attn_test::Hints;

/// How many of the keys each query sees.
template <class M>
std::vector<Index> visible_keys(const M& mask, const Problem& p) {
  std::vector<Index> counts;
  for (attn::Position q = 0; q < p.q_len; ++q) {
    counts.push_back(0);
    for (attn::Position k = 0; k < p.kv_len; ++k) counts.back() += mask.allows({.q = q, .k = k}, p) ? 1 : 0;
  }
  return counts;
}

TEST(SlidingWindow, IsConsistentAndItsHintsAreExact) {
  attn_test::expect_consistent(
      [](Draw& draw, const Problem&) {
        return SlidingWindow{.left = draw.between(-1, 45), .right = draw.between(-1, 45)};
      },
      Hints::are_exact);
}

// Libraries differ on whether a window of 1 is one key or two; here it is a distance.
TEST(SlidingWindow, CountsDistancesAndIncludesTheQuerysOwnKey) {
  const Problem p{.q_len = 6, .kv_len = 6};
  EXPECT_EQ(visible_keys(attn::Causal{} & SlidingWindow{.left = 1}, p),
            (std::vector<Index>{1, 2, 2, 2, 2, 2}));
  EXPECT_EQ(visible_keys(SlidingWindow{.left = 0, .right = 0}, p), (std::vector<Index>{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(visible_keys(SlidingWindow{.left = 1, .right = 2}, p), (std::vector<Index>{3, 4, 4, 4, 3, 2}));
}

TEST(SlidingWindow, IsUnlimitedToASideOfMinusOne) {
  const Problem p{.q_len = 4, .kv_len = 4};
  EXPECT_EQ(visible_keys(SlidingWindow{}, p), (std::vector<Index>{4, 4, 4, 4}));
  EXPECT_EQ(visible_keys(SlidingWindow{.left = 1}, p), (std::vector<Index>{4, 4, 3, 2}));
  EXPECT_EQ(visible_keys(SlidingWindow{.right = 0}, p), (std::vector<Index>{1, 2, 3, 4}));
}

TEST(SlidingWindow, DoesNotOverflowForTheLargestDistances) {
  constexpr Index largest = std::numeric_limits<Index>::max();
  const Problem p{.q_len = 4, .kv_len = 4};
  const SlidingWindow window{.left = largest, .right = largest};
  EXPECT_EQ(visible_keys(window, p), (std::vector<Index>{4, 4, 4, 4}));
  EXPECT_EQ(window.coverage({.q = {0, 4}, .k = {0, 4}}, p), attn::Coverage::full);
}

TEST(SlidingWindow, StandsWhereTheQueryStandsAmongTheKeys) {
  Problem p{.q_len = 2, .kv_len = 6};
  p.offset = 4;
  const SlidingWindow window{.left = 2, .right = 0};
  EXPECT_TRUE(window.allows({.q = 0, .k = 2}, p));
  EXPECT_FALSE(window.allows({.q = 0, .k = 1}, p));
  EXPECT_FALSE(window.allows({.q = 0, .k = 5}, p));
  EXPECT_TRUE(window.allows({.q = 1, .k = 5}, p));
}

TEST(SlidingWindow, RefusesDistancesBelowMinusOne) {
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([] { SlidingWindow{.left = -2}.validate({}); }),
            "attn: SlidingWindow: left -2 and right -1 must be distances, or -1 for unlimited");
}

TEST(SlidingWindow, WithoutKeysAfterTheQueryAndUnlimitedBeforeItIsCausal) {
  const auto x = attn_test::random_tensor<float, 3>({2, 150, 8}, 1);
  EXPECT_EQ(attn::sdpa(x, x, x, attn::Causal{}), attn::sdpa(x, x, x, SlidingWindow{.right = 0}));
}

TEST(SlidingWindow, OfDistanceZeroReturnsTheValues) {
  const auto x = attn_test::random_tensor<double, 3>({2, 70, 4}, 2);
  EXPECT_EQ(attn::sdpa(x, x, x, SlidingWindow{.left = 0, .right = 0}), x);
}

// Agrees with torch 2.15 in double, given the window as a mask.
TEST(SlidingWindow, OfTwoTokensGivesTheKnownOutput) {
  const auto out = attn::sdpa(fill<double, 2>({6, 4}, 5, 1), fill<double, 2>({6, 4}, 7, 2),
                              fill<double, 2>({6, 2}, 3, 4), attn::Causal{} & SlidingWindow{.left = 1});
  attn::Matrix<double> expected(6, 2);
  expected << -0.5, -0.125, -0.197325, 0.177675, 0.71822, -0.233404, 0.58873, -0.525671, 0.189009, 0.564009,
      0.01774, 0.39274;
  EXPECT_LT((out - expected).cwiseAbs().maxCoeff(), 1e-6);
}

}  // namespace
