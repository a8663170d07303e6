// tests/ops/sdpa_test.cpp - laws of attention.
#include "attn/ops/sdpa.hpp"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "support/attention.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::ScoreStage;
using attn_test::distance;
using attn_test::random_tensor;
using attn_test::same_bits;

template <class T>
class Sdpa : public testing::Test {
 protected:
  static constexpr double tolerance = 32 * static_cast<double>(std::numeric_limits<T>::epsilon());
  // Two tiles of keys and more than one task of queries.
  attn::Tensor<T, 4> q = random_tensor<T, 4>({2, 6, 130, 20}, 1), k = random_tensor<T, 4>({2, 2, 150, 20}, 2),
                     v = random_tensor<T, 4>({2, 2, 150, 9}, 3);
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Sdpa, Scalars);

struct OwnCausal {
  static constexpr bool uses_positions = true;
  static bool allows(const attn::Site& s, const attn::Problem& p) {
    return s.k <= s.q + p.query_offset(s.batch);
  }
};
struct OddKeysAreHidden {
  template <class A>
  static A score(A s, const attn::Site& at, const attn::Problem&) {
    return at.k % 2 == 0 ? s : attn::masked_score<A>;
  }
};
struct OddKeysAreFiltered {
  static bool allows(const attn::Site& s, const attn::Problem&) { return s.k % 2 == 0; }
};

/// Rows of x in the order `order` along the axis of lengths.
template <class T>
attn::Tensor<T, 4> reordered(const attn::Tensor<T, 4>& x, const std::vector<Index>& order) {
  attn::Tensor<T, 4> y(x.extents());
  for (Index b = 0; b < x.extent(0); ++b)
    for (Index h = 0; h < x.extent(1); ++h)
      for (Index j = 0; j < x.extent(2); ++j)
        for (Index c = 0; c < x.extent(3); ++c)
          y(b, h, j, c) = x(b, h, order[static_cast<std::size_t>(j)], c);
  return y;
}

TYPED_TEST(Sdpa, EqualsTheFormula) {
  const auto result = attn::sdpa_with_logsumexp(this->q, this->k, this->v);
  const auto expected = attn_test::reference_attention(this->q, this->k, this->v);
  EXPECT_LT(distance(result.out, expected.out), this->tolerance);
  EXPECT_LT(distance(result.logsumexp, expected.logsumexp), this->tolerance);
}

TYPED_TEST(Sdpa, DoesNotDependOnTheOrderOfTheKeys) {
  std::vector<Index> order(150);
  std::iota(order.begin(), order.end(), 0);
  for (Index i = 0; i < 150; ++i)
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(i * 77 % 150)]);
  EXPECT_LT(distance(attn::sdpa(this->q, this->k, this->v),
                     attn::sdpa(this->q, reordered(this->k, order), reordered(this->v, order))),
            this->tolerance);
}

TYPED_TEST(Sdpa, TurnsPermutedQueriesIntoPermutedRowsBitForBit) {
  std::vector<Index> order(130);
  for (Index i = 0; i < 130; ++i) order[static_cast<std::size_t>(i)] = i * 7 % 130;
  EXPECT_TRUE(same_bits(attn::sdpa(reordered(this->q, order), this->k, this->v),
                        reordered(attn::sdpa(this->q, this->k, this->v), order)));
}

TYPED_TEST(Sdpa, GivesConvexCombinationsOfTheValues) {
  auto ones = this->v;
  std::fill(ones.data(), ones.data() + ones.size(), TypeParam(1));
  const auto out = attn::sdpa(this->q, this->k, ones);
  attn::Tensor<TypeParam, 4> expected(out.extents());
  std::fill(expected.data(), expected.data() + expected.size(), TypeParam(1));
  EXPECT_LT(distance(out, expected), this->tolerance);
}

TYPED_TEST(Sdpa, UnderCausalEqualsAUsersOwnMaskBitForBit) {
  for (const Index offset : {-5, 0, 20, 200}) {
    const attn::SdpaOptions options{.query_offset = offset};
    EXPECT_TRUE(same_bits(attn::sdpa(this->q, this->k, this->v, attn::Causal{}, options),
                          attn::sdpa(this->q, this->k, this->v, OwnCausal{}, options)));
  }
}

TYPED_TEST(Sdpa, TakesAScoreOfMinusInfinityForAPairThatIsNotSeen) {
  EXPECT_LT(distance(attn::sdpa(this->q, this->k, this->v, OddKeysAreHidden{}),
                     attn::sdpa(this->q, this->k, this->v, OddKeysAreFiltered{})),
            this->tolerance);
}

TYPED_TEST(Sdpa, UnderCausalLeavesEarlierRowsUnchangedBitForBitWhateverTheFutureHolds) {
  const attn::SdpaOptions options{.query_offset = 20};
  const auto before = attn::sdpa(this->q, this->k, this->v, attn::Causal{}, options);
  for (const double stored :
       {1e4, -1e30, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    auto keys = this->k, values = this->v;
    for (Index c = 0; c < 20; ++c) keys(1, 0, 100, c) = static_cast<TypeParam>(stored);
    for (Index c = 0; c < 9; ++c) values(1, 0, 100, c) = static_cast<TypeParam>(stored);
    const auto after = attn::sdpa(this->q, keys, values, attn::Causal{}, options);
    for (Index h = 0; h < 6; ++h) {
      EXPECT_TRUE(same_bits(after.view()[0][h], before.view()[0][h]));
      EXPECT_TRUE(same_bits(after.view()[1][h].slice(0, {0, 80}), before.view()[1][h].slice(0, {0, 80})));
      EXPECT_EQ(same_bits(after.view()[1][h], before.view()[1][h]), h >= 3) << "head " << h;
    }
  }
}

TYPED_TEST(Sdpa, WithSharedKeyValueHeadsEqualsRepeatedHeads) {
  attn::Tensor<TypeParam, 4> keys({2, 6, 150, 20}), values({2, 6, 150, 9});
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 6; ++h) {
      attn::copy(std::as_const(this->k).view()[b][h / 3], keys.view()[b][h]);
      attn::copy(std::as_const(this->v).view()[b][h / 3], values.view()[b][h]);
    }
  EXPECT_TRUE(same_bits(attn::sdpa(this->q, this->k, this->v), attn::sdpa(this->q, keys, values)));
  const auto first = this->q.view().slice(2, {0, 1});  // one query: the heads of a group share a task
  EXPECT_LT(distance(attn::sdpa(first, this->k, this->v), attn::sdpa(first, keys, values)), this->tolerance);
}

TYPED_TEST(Sdpa, OfTwoKeySetsMergedByLogsumexpIsThatOfTheirUnion) {
  const auto whole = attn::sdpa_with_logsumexp(this->q, this->k, this->v);
  for (const Index cut : {0, 1, 64, 149}) {
    const attn::Range head{0, cut}, tail{cut, 150};
    const auto part = [&](attn::Range keys) {
      return attn::sdpa_with_logsumexp(this->q, this->k.view().slice(2, keys), this->v.view().slice(2, keys));
    };
    auto left = part(head);
    const auto right = part(tail);
    for (Index b = 0; b < 2; ++b)
      for (Index h = 0; h < 6; ++h)
        for (Index i = 0; i < 130; ++i) {
          const TypeParam merged = attn::kernels::log_add(left.logsumexp(b, h, i), right.logsumexp(b, h, i));
          for (Index c = 0; c < 9; ++c)
            left.out(b, h, i, c) = left.out(b, h, i, c) * std::exp(left.logsumexp(b, h, i) - merged) +
                                   right.out(b, h, i, c) * std::exp(right.logsumexp(b, h, i) - merged);
          left.logsumexp(b, h, i) = merged;
        }
    EXPECT_LT(distance(left.out, whole.out), this->tolerance);
    EXPECT_LT(distance(left.logsumexp, whole.logsumexp), this->tolerance);
  }
}

TYPED_TEST(Sdpa, HasAShiftOfAllScoresInTheLogsumexpOnly) {
  attn::Matrix<TypeParam> bias = attn::Matrix<TypeParam>::Constant(1, 1, TypeParam(3));
  const auto plain = attn::sdpa_with_logsumexp(this->q, this->k, this->v);
  const auto shifted = attn::sdpa_with_logsumexp(this->q, this->k, this->v, attn::AdditiveBias(bias));
  EXPECT_LT(distance(plain.out, shifted.out), this->tolerance);
  for (Index i = 0; i < plain.logsumexp.size(); ++i)
    EXPECT_NEAR(static_cast<double>(shifted.logsumexp.data()[i] - plain.logsumexp.data()[i]), 3,
                this->tolerance);
}

TYPED_TEST(Sdpa, ScalesByTheSquareRootOfHeadDimUnlessToldOtherwise) {
  EXPECT_TRUE(
      same_bits(attn::sdpa(this->q, this->k, this->v),
                attn::sdpa(this->q, this->k, this->v, attn::NoMask{}, {.scale = 1 / std::sqrt(20.0)})));
  auto mean = attn::sdpa(this->q, this->k, this->v, attn::NoMask{}, {.scale = 0.0});
  for (Index c = 0; c < 9; ++c) {
    double sum = 0;
    for (Index j = 0; j < 150; ++j) sum += static_cast<double>(this->v(1, 1, j, c));
    EXPECT_NEAR(static_cast<double>(mean(1, 5, 77, c)), sum / 150, this->tolerance);
  }
}

TYPED_TEST(Sdpa, OfMatricesIsThatOfOneHead) {
  const auto queries = this->q.view()[1][4], keys = this->k.view()[1][1], values = this->v.view()[1][1];
  const attn::Matrix<TypeParam> out = attn::sdpa(queries, keys, values);
  EXPECT_TRUE(same_bits(out, attn::sdpa(this->q, this->k, this->v).view()[1][4]));
  const attn::Tensor<TypeParam, 3> heads =
      attn::sdpa(this->q.view()[1], this->k.view()[1], this->v.view()[1]);
  EXPECT_TRUE(same_bits(heads, attn::sdpa(this->q, this->k, this->v).view()[1]));
}

TYPED_TEST(Sdpa, ReturnsWeightsThatSumToOneAndGiveTheOutput) {
  const std::array<Index, 2> lengths{150, 40};
  const auto mask = attn::Causal{} & attn::KeyPadding{lengths};
  const attn::SdpaOptions options{.query_offset = 3};
  const auto result = attn::sdpa_with_weights(this->q, this->k, this->v, mask, options);
  EXPECT_TRUE(same_bits(result.out, attn::sdpa(this->q, this->k, this->v, mask, options)));
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 6; ++h)
      for (Index i = 0; i < 130; ++i) {
        double sum = 0, first = 0;
        for (Index j = 0; j < 150; ++j) {
          const auto weight = static_cast<double>(result.weights(b, h, i, j));
          sum += weight;
          first += weight * static_cast<double>(this->v(b, h / 3, j, 0));
          if (j > i + 3 || j >= lengths[static_cast<std::size_t>(b)]) {
            ASSERT_EQ(weight, 0);
          }
        }
        ASSERT_NEAR(sum, 1, this->tolerance);
        ASSERT_NEAR(first, static_cast<double>(result.out(b, h, i, 0)), this->tolerance);
      }
}

TYPED_TEST(Sdpa, ReturnsTheScoresOfEachStage) {
  const auto bias = random_tensor<TypeParam, 2>({130, 150}, 4);
  const auto mask = attn::AdditiveBias(bias) & attn::Causal{};
  const attn::SdpaOptions options{.scale = 0.5, .soft_cap = 2, .query_offset = 0};
  const auto scores = [&](ScoreStage stage) {
    return attn::sdpa_with_weights(this->q, this->k, this->v, mask, options, stage).weights;
  };
  const auto scaled = scores(ScoreStage::scaled), capped = scores(ScoreStage::capped),
             biased = scores(ScoreStage::biased);
  for (Index h = 0; h < 6; ++h)
    for (Index i = 0; i < 130; ++i)
      for (Index j = 0; j < 150; ++j) {
        double product = 0;
        for (Index c = 0; c < 20; ++c)
          product += static_cast<double>(this->q(0, h, i, c)) * static_cast<double>(this->k(0, h / 3, j, c));
        ASSERT_NEAR(static_cast<double>(scaled(0, h, i, j)), product / 2, this->tolerance);
        ASSERT_NEAR(static_cast<double>(capped(0, h, i, j)), 2 * std::tanh(product / 4), this->tolerance);
        if (j > i)
          ASSERT_EQ(biased(0, h, i, j), attn::masked_score<TypeParam>);
        else
          ASSERT_NEAR(static_cast<double>(biased(0, h, i, j)),
                      2 * std::tanh(product / 4) + static_cast<double>(bias(i, j)), this->tolerance);
      }
}

TYPED_TEST(Sdpa, GivesZerosWhereThereIsNoKey) {
  const auto none = this->k.view().slice(2, {0, 0});
  const auto result = attn::sdpa_with_logsumexp(this->q, none, this->v.view().slice(2, {0, 0}));
  EXPECT_EQ(result.out.extents(), (attn::Dims<4>{2, 6, 130, 9}));
  EXPECT_EQ(attn_test::largest(result.out), 0);
  for (Index i = 0; i < result.logsumexp.size(); ++i)
    EXPECT_EQ(result.logsumexp.data()[i], attn::masked_score<TypeParam>);
}

TYPED_TEST(Sdpa, GivesAnEmptyResultForEmptyInputs) {
  using Tensor4 = attn::Tensor<TypeParam, 4>;
  const auto extents_of = [](const attn::Dims<4>& queries, const attn::Dims<4>& keys,
                             const attn::Dims<4>& values) {
    const auto result = attn::sdpa_with_weights(Tensor4(queries), Tensor4(keys), Tensor4(values));
    EXPECT_EQ(result.weights.extents(), (attn::Dims<4>{queries[0], queries[1], queries[2], keys[2]}));
    EXPECT_EQ(attn::sdpa_with_logsumexp(Tensor4(queries), Tensor4(keys), Tensor4(values)).logsumexp.extents(),
              (attn::Dims<3>{queries[0], queries[1], queries[2]}));
    return result.out.extents();
  };
  EXPECT_EQ(extents_of({0, 2, 3, 4}, {0, 2, 5, 4}, {0, 2, 5, 6}), (attn::Dims<4>{0, 2, 3, 6}));
  EXPECT_EQ(extents_of({1, 0, 3, 4}, {1, 0, 5, 4}, {1, 0, 5, 6}), (attn::Dims<4>{1, 0, 3, 6}));
  EXPECT_EQ(extents_of({1, 0, 3, 4}, {1, 2, 5, 4}, {1, 2, 5, 6}), (attn::Dims<4>{1, 0, 3, 6}));
  EXPECT_EQ(extents_of({1, 2, 0, 4}, {1, 2, 5, 4}, {1, 2, 5, 6}), (attn::Dims<4>{1, 2, 0, 6}));
  EXPECT_EQ(extents_of({1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 5, 0}), (attn::Dims<4>{1, 2, 3, 0}));
  EXPECT_EQ(extents_of({1, 2, 0, 4}, {1, 2, 0, 4}, {1, 2, 0, 6}), (attn::Dims<4>{1, 2, 0, 6}));
}

TYPED_TEST(Sdpa, KeepsANaNOfAQueryInItsOwnRow) {
  auto queries = this->q;
  queries(0, 2, 17, 3) = std::numeric_limits<TypeParam>::quiet_NaN();
  const auto before = attn::sdpa_with_logsumexp(this->q, this->k, this->v);
  const auto after = attn::sdpa_with_logsumexp(queries, this->k, this->v);
  for (Index i = 0; i < 130; ++i) {
    EXPECT_EQ(std::isnan(after.out(0, 2, i, 0)), i == 17);
    EXPECT_EQ(std::isnan(after.logsumexp(0, 2, i)), i == 17);
    if (i != 17) {
      EXPECT_EQ(after.out(0, 2, i, 5), before.out(0, 2, i, 5));
    }
  }
}

TEST(SdpaOfFloat, EqualsThatOfDouble) {
  const auto q = random_tensor<float, 3>({4, 33, 64}, 1), k = random_tensor<float, 3>({4, 77, 64}, 2),
             v = random_tensor<float, 3>({4, 77, 64}, 3);
  const auto widened = [](const attn::Tensor<float, 3>& x) {
    attn::Tensor<double, 3> y(x.extents());
    std::copy(x.data(), x.data() + x.size(), y.data());
    return y;
  };
  EXPECT_LT(distance(attn::sdpa(q, k, v), attn::sdpa(widened(q), widened(k), widened(v))), 2e-6);
}

}  // namespace
