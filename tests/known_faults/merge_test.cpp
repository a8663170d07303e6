// Faults that users of other libraries have reported about merging attention, one test per report. Expected
// numbers (six digits) come from a float64 evaluation of the formula outside this project.
#include "attn/ops/merge.hpp"

#include <gtest/gtest.h>

#include <numbers>

#include "support/attention.hpp"

namespace {

using attn_test::distance;
using attn_test::fill;
using Numbers = attn::Matrix<double>;

constexpr double printed = 1e-6;

template <class T>
class MergeFault : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(MergeFault, Scalars);

TYPED_TEST(MergeFault, B41_LogsumexpIsNaturalOnBothSidesOfAMerge) {
  using T = TypeParam;
  const auto q = fill<T, 4>({1, 1, 2, 4}, 5, 1), k = fill<T, 4>({1, 1, 4, 4}, 7, 2),
             v = fill<T, 4>({1, 1, 4, 2}, 3, 4);
  const auto over = [&](attn::Range keys) {
    return attn::sdpa_with_logsumexp(q, k.view().slice(2, keys), v.view().slice(2, keys));
  };
  auto first = over({0, 3}), second = over({3, 4});
  EXPECT_LT(distance(first.logsumexp.view()[0], Numbers{{1.109903, 1.39524}}), printed);
  EXPECT_LT(distance(second.logsumexp.view()[0], Numbers{{0.359375, 0.6875}}), printed);
  const auto merged = attn::merge_attention(first, second);
  EXPECT_LT(distance(merged.out.view()[0][0], Numbers{{-0.017403, -0.144911}, {-0.101199, -0.000894}}),
            printed);
  EXPECT_LT(distance(merged.logsumexp.view()[0], Numbers{{1.496605, 1.795865}}), printed);
  for (auto* part : {&first, &second})
    for (attn::Index i = 0; i < 2; ++i) part->logsumexp(0, 0, i) *= std::numbers::log2e_v<T>;
  EXPECT_NEAR(attn::merge_attention(first, second).out(0, 0, 0, 0), 0.018249, printed)
      << "logarithms to base 2 are another thing, and not guessed";
}

}  // namespace
