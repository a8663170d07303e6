// tests/kernels/row_group_test.cpp - a handful of query rows: ends of rows that fill no packet, places of
// keys.
#include "attn/kernels/row_group.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "attn/masks/alibi.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/window.hpp"
#include "support/attention.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::distance;
using attn_test::largest;
using attn_test::random_tensor;
using attn_test::same_bits;

template <class T>
class RowGroup : public testing::Test {
 protected:
  static constexpr double tolerance = std::is_same_v<T, double> ? 1e-14 : 2e-6;
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(RowGroup, Scalars);

TYPED_TEST(RowGroup, EqualsTheFormulaForEveryHeadSize) {
  for (const Index rows : {1, 2, 3, 4, 7})
    for (Index dim = 1; dim <= 50; ++dim) {
      const Index value_dim = 51 - dim, keys = 3 * dim;
      const auto q = random_tensor<TypeParam, 4>({1, 1, rows, dim}, 1);
      const auto k = random_tensor<TypeParam, 4>({1, 1, keys, dim}, 2);
      const auto v = random_tensor<TypeParam, 4>({1, 1, keys, value_dim}, 3);
      const attn::SdpaOptions options{.soft_cap = dim % 2 == 0 ? 0.0 : 3.0};
      const auto expected = attn_test::reference_attention(q, k, v, attn::NoMask{}, options);
      EXPECT_LE(distance(attn::sdpa(q, k, v, attn::NoMask{}, options), expected.out),
                this->tolerance * largest(expected.out, 1))
          << rows << " rows, head size " << dim;
    }
}

// Rows of one task share tiles of keys; what one of them sees must not change the order of another one's
// sums.
TYPED_TEST(RowGroup, ARowHasTheSameBitsAloneAndAmongOthers) {
  const Index rows = std::min<Index>(5, attn::kernels::RowProducts<TypeParam>::max_rows), keys = 300;
  const auto q = random_tensor<TypeParam, 4>({1, 1, rows, 20}, 1);
  const auto k = random_tensor<TypeParam, 4>({1, 1, keys, 20}, 2);
  const auto v = random_tensor<TypeParam, 4>({1, 1, keys, 13}, 3);
  const auto check = [&](const auto& mask) {
    for (const Index offset : {0, 100, 126, 295}) {
      const auto together = attn::sdpa(q, k, v, mask, {.query_offset = offset});
      for (Index i = 0; i < rows; ++i) {
        const auto alone =
            attn::sdpa(q.view().slice(2, {i, i + 1}), k, v, mask, {.query_offset = offset + i});
        EXPECT_TRUE(same_bits(alone, attn::Tensor<TypeParam, 4>(together.view().slice(2, {i, i + 1}))))
            << "row " << i << " at " << offset;
      }
    }
  };
  check(attn::Causal{});
  check(attn::SlidingWindow{.left = 30, .right = 0});
  check(attn::SlidingWindow{.left = 130, .right = 7} & attn::Alibi(1));
}

// The end of a row is read together with elements before it, which must not enter its product a second time:
// 0 times infinity is not a number.
TYPED_TEST(RowGroup, AKeyWithAScoreOfMinusInfinityHasNoWeight) {
  auto q = random_tensor<TypeParam, 4>({1, 1, 1, 37}, 1), k = random_tensor<TypeParam, 4>({1, 1, 20, 37}, 2);
  auto v = random_tensor<TypeParam, 4>({1, 1, 20, 5}, 3);
  for (Index c = 0; c < 37; ++c) {
    q(0, 0, 0, c) = TypeParam(1);
    auto hidden = k;
    hidden(0, 0, 0, c) = -std::numeric_limits<TypeParam>::infinity();
    const auto expected = attn::sdpa(q, k.view().slice(2, {1, 20}), v.view().slice(2, {1, 20}));
    EXPECT_LE(distance(attn::sdpa(q, hidden, v), expected), this->tolerance) << c;
  }
}

}  // namespace
