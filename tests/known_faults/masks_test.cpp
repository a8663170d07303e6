// Faults that users of other libraries have reported about masks and softmax, one test per report. Inputs and
// expected numbers (six digits) come from a float64 evaluation of the formula outside this project.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "support/attention.hpp"

namespace {

using attn::Index;
using attn_test::distance;
using attn_test::fill;
using attn_test::same_bits;
using Flags = Eigen::Matrix<bool, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Numbers = attn::Matrix<double>;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double printed = 1e-6;

const Numbers unmasked{{-0.017403, -0.144911}, {-0.101199, -0.000894}};
const Numbers without_last_key{{0.151424, -0.213325}, {0.033718, -0.001335}};

template <class T>
class MaskFault : public testing::Test {
 protected:
  attn::Matrix<T> q = matrix(2, 4, 5, 1), k = matrix(4, 4, 7, 2), v = matrix(4, 2, 3, 4);

  static attn::Matrix<T> matrix(Index rows, Index columns, Index step, Index start) {
    const auto values = fill<T, 2>({rows, columns}, step, start);
    return Eigen::Map<const attn::Matrix<T>>(values.data(), rows, columns);
  }
  template <attn::Mask M = attn::NoMask>
  void expect(const Numbers& expected, const M& mask = {}, const attn::SdpaOptions& options = {}) const {
    const attn::Matrix<T> out = attn::sdpa(q, k, v, mask, options);
    EXPECT_LT(distance(out, expected), printed) << out;
  }
  template <attn::Mask M = attn::NoMask>
  void expect_logsumexp(const Numbers& expected, const M& mask = {},
                        const attn::SdpaOptions& options = {}) const {
    const auto result = attn::sdpa_with_logsumexp(q, k, v, mask, options);
    EXPECT_LT(distance(result.logsumexp, expected), printed);
  }
  template <attn::Mask M = attn::NoMask>
  attn::Matrix<T> weights(const M& mask = {}, const attn::SdpaOptions& options = {}) const {
    return attn::sdpa_with_weights(q, k, v, mask, options).weights;
  }
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(MaskFault, Scalars);

TYPED_TEST(MaskFault, B00_TheStandardInputsGiveTheStandardResults) {
  this->expect(unmasked);
  this->expect_logsumexp(Numbers{{1.496605, 1.795865}});
}

TYPED_TEST(MaskFault, B01_AFullyMaskedRowGivesZeroNotNaN) {
  Flags flags = Flags::Constant(2, 4, true);
  flags.row(1).setConstant(false);
  const attn::KeepMask keep(flags);
  this->expect(Numbers{{-0.017403, -0.144911}, {0, 0}}, keep);
  this->expect_logsumexp(Numbers{{1.496605, -inf}}, keep);
  EXPECT_EQ(this->weights(keep).row(1).cwiseAbs().maxCoeff(), 0);
}

TYPED_TEST(MaskFault, B02_ARowOfTheLowestNumberIsABiasOfEqualScoresAndNotAMask) {
  attn::Matrix<TypeParam> bias = attn::Matrix<TypeParam>::Zero(2, 4);
  bias.row(1).setConstant(std::numeric_limits<TypeParam>::lowest());
  this->expect(Numbers{{-0.017403, -0.144911}, {0.09375, -0.0625}}, attn::AdditiveBias(bias));
  EXPECT_TRUE((this->weights(attn::AdditiveBias(bias)).row(1).array() == TypeParam(0.25)).all());
  Flags drop = Flags::Constant(2, 4, false);
  drop.row(1).setConstant(true);
  this->expect(Numbers{{-0.017403, -0.144911}, {0, 0}}, attn::DropMask(drop));
}

TYPED_TEST(MaskFault, B02_MasksAreCombinedByAndAndNotByAddingSentinels) {
  Flags first = Flags::Constant(2, 4, false), second = first;
  first(1, 0) = second(1, 0) = true;  // both drop one pair
  first(1, 1) = second(1, 2) = true;
  Flags both = first;
  both(1, 2) = true;
  EXPECT_TRUE(same_bits(attn::sdpa(this->q, this->k, this->v, attn::DropMask(first) & attn::DropMask(second)),
                        attn::sdpa(this->q, this->k, this->v, attn::DropMask(both))));
}

TYPED_TEST(MaskFault, B03_WhatIsStoredAtAMaskedKeyNeverReachesTheOutput) {
  Flags flags(1, 4);
  flags << true, true, true, false;
  attn::Matrix<TypeParam> bias = attn::Matrix<TypeParam>::Zero(2, 4);
  bias.col(3).setConstant(-std::numeric_limits<TypeParam>::infinity());
  const std::array<Index, 1> lengths{3};
  for (const double stored : {nan, inf, -inf, 1e30}) {
    this->k.row(3).setConstant(static_cast<TypeParam>(stored));
    this->v.row(3).setConstant(static_cast<TypeParam>(stored));
    this->expect(without_last_key, attn::KeepMask(flags));
    this->expect(without_last_key, attn::KeyPadding{lengths});
    this->expect(without_last_key, attn::AdditiveBias(bias));
    this->expect(without_last_key, attn::KeepMask(flags), {.soft_cap = 1e9});
    EXPECT_LT(std::abs(this->weights(attn::KeepMask(flags)).row(0).sum() - 1), printed);
  }
}

TYPED_TEST(MaskFault, B04_KeepAndDropAreTypesAndOppositeFlagsAgree) {
  Flags keep(1, 4), drop(1, 4);
  keep << true, true, true, false;
  drop << false, false, false, true;
  this->expect(without_last_key, attn::KeepMask(keep));
  this->expect(without_last_key, attn::DropMask(drop));
  EXPECT_FALSE(attn::Mask<Flags>);
}

TYPED_TEST(MaskFault, B05_NumbersAreABiasAndFlagsAreAMask) {
  Eigen::Matrix<int, 1, 4> flags(1, 1, 1, 0);
  attn::Matrix<TypeParam> bias(1, 4);
  bias << 1, 1, 1, 0;
  this->expect(Numbers{{0.073524, -0.181757}, {-0.029002, -0.00113}}, attn::AdditiveBias(bias));
  this->expect(without_last_key, attn::KeepMask(flags));
}

TYPED_TEST(MaskFault, B06_TheCausalCornerIsNamedByTheCaller) {
  this->expect(Numbers{{-0.5, -0.125}, {-0.197325, 0.177675}}, attn::Causal{}, {.query_offset = 0});
  this->expect(Numbers{{0.151424, -0.213325}, {-0.101199, -0.000894}}, attn::Causal{}, {.query_offset = 2});
  EXPECT_THROW(this->expect(unmasked, attn::Causal{}), attn::ShapeError);
  const attn::Matrix<TypeParam> last = this->q.row(0);
  EXPECT_LT(distance(attn::sdpa(last, this->k, this->v, attn::Causal{}, {.query_offset = 3}),
                     Numbers{{-0.017403, -0.144911}}),
            printed);
}

TYPED_TEST(MaskFault, B08_CausalHoldsWhateverElseIsAskedFor) {
  const auto x = this->matrix(6, 4, 5, 1);
  auto changed = x;
  changed.row(5).array() += TypeParam(100);
  const std::array<Index, 1> lengths{5};
  const auto padded = attn::Causal{} & attn::KeyPadding{lengths};
  const auto out = attn::sdpa(x, x, x, attn::Causal{});
  EXPECT_TRUE(same_bits(out, attn::sdpa_with_weights(x, x, x, attn::Causal{}).out));
  EXPECT_TRUE(same_bits(attn::sdpa(x, x, x, padded), attn::sdpa_with_weights(x, x, x, padded).out));
  const auto earlier = [](const auto& result) { return attn::Matrix<TypeParam>(result.topRows(5)); };
  EXPECT_TRUE(same_bits(earlier(out), earlier(attn::sdpa(changed, changed, changed, attn::Causal{}))));
  EXPECT_TRUE(
      same_bits(earlier(out), earlier(attn::sdpa_with_weights(changed, changed, changed, padded).out)));
}

TYPED_TEST(MaskFault, B09_CausalAndPaddingMerge) {
  const auto x = this->matrix(3, 4, 5, 1);
  Flags keep(1, 3), both(3, 3);
  keep << true, true, false;
  both << true, false, false, true, true, false, true, true, false;
  EXPECT_TRUE(same_bits(attn::sdpa(x, x, x, attn::Causal{} & attn::KeepMask(keep)),
                        attn::sdpa(x, x, x, attn::KeepMask(both))));
  const auto result = attn::sdpa_with_weights(x, x, x, attn::Causal{} & attn::KeepMask(keep));
  EXPECT_GT(result.weights(2, 1), 0);
  EXPECT_EQ(result.weights(2, 2), 0);
}

TYPED_TEST(MaskFault, B10_EveryBroadcastShapeOfAMaskGivesTheSame) {
  const auto queries = fill<TypeParam, 4>({2, 3, 5, 4}, 5, 1), keys = fill<TypeParam, 4>({2, 3, 6, 4}, 7, 2);
  const auto values = fill<TypeParam, 4>({2, 3, 6, 2}, 3, 4);
  const auto seen = [](Index query, Index key) { return (query + 2 * key) % 3 != 0; };
  std::vector<unsigned char> flags(2 * 3 * 5 * 6);
  for (std::size_t i = 0; i < flags.size(); ++i)
    flags[i] = seen(static_cast<Index>(i) / 6 % 5, static_cast<Index>(i) % 6);
  const unsigned char* const data = flags.data();
  const auto attend = [&](const auto& extents) {
    constexpr int rank = static_cast<int>(sizeof(extents.values) / sizeof(Index));
    const attn::KeepMask keep(attn::TensorView<const unsigned char, rank>(data, extents));
    return attn::sdpa_with_weights(queries, keys, values, keep);
  };
  const auto whole = attend(attn::Dims<4>{2, 3, 5, 6});
  EXPECT_TRUE(same_bits(attend(attn::Dims<2>{5, 6}).out, whole.out));
  EXPECT_TRUE(same_bits(attend(attn::Dims<3>{3, 5, 6}).out, whole.out));
  EXPECT_TRUE(same_bits(attend(attn::Dims<4>{2, 1, 5, 6}).weights, whole.weights));
  EXPECT_TRUE(same_bits(attend(attn::Dims<4>{1, 3, 5, 6}).weights, whole.weights));
}

TYPED_TEST(MaskFault, B10_AMaskOfKeysAloneServesEveryHeadAndQuery) {
  const auto queries = fill<TypeParam, 4>({2, 3, 5, 4}, 5, 1), keys = fill<TypeParam, 4>({2, 3, 6, 4}, 7, 2);
  const std::array<unsigned char, 12> flags{1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0};
  const std::array<Index, 2> lengths{4, 2};
  const attn::KeepMask keep(attn::TensorView<const unsigned char, 4>(flags.data(), {2, 1, 1, 6}));
  EXPECT_TRUE(same_bits(attn::sdpa(queries, keys, keys, keep),
                        attn::sdpa(queries, keys, keys, attn::KeyPadding{lengths})));
}

TYPED_TEST(MaskFault, B13_SoftmaxRunsOverTheKeysOfEachSample) {
  const auto x = fill<TypeParam, 4>({2, 1, 3, 4}, 5, 1);
  const std::array<Index, 2> lengths{2, 3};
  const auto result = attn::sdpa_with_weights(x, x, x, attn::KeyPadding{lengths});
  for (Index b = 0; b < 2; ++b)
    for (Index i = 0; i < 3; ++i) {
      double sum = 0;
      for (Index j = 0; j < 3; ++j) sum += static_cast<double>(result.weights(b, 0, i, j));
      EXPECT_NEAR(sum, 1, printed);
      EXPECT_EQ(result.weights(b, 0, i, 2) == 0, b == 0);
    }
}

TYPED_TEST(MaskFault, B14_LengthsPerSampleAreHonoured) {
  auto x = fill<TypeParam, 4>({2, 1, 3, 4}, 5, 1);
  auto q4 = x;
  const std::array<Index, 2> lengths{3, 1};
  const auto before = attn::sdpa(q4, x, x, attn::KeyPadding{lengths});
  for (Index c = 0; c < 4; ++c) x(1, 0, 1, c) = x(1, 0, 2, c) = TypeParam(1e6);
  EXPECT_TRUE(same_bits(before, attn::sdpa(q4, x, x, attn::KeyPadding{lengths})));
  const std::array<Index, 2> none{3, 0};
  const auto empty = attn::sdpa(q4, x, x, attn::KeyPadding{none});
  EXPECT_EQ(attn_test::largest(empty.view()[1]), 0);
}

TYPED_TEST(MaskFault, B16_TheSoftCapOfLargeScoresIsTheCap) {
  attn::Matrix<TypeParam> one = attn::Matrix<TypeParam>::Ones(1, 1), keys(6, 1);
  keys << 1, 100, 5000, 10000, -10000, 4400;
  const auto scores = attn::sdpa_with_weights(one, keys, keys, attn::NoMask{}, {.scale = 1.0, .soft_cap = 50},
                                              attn::ScoreStage::capped)
                          .weights;
  EXPECT_LT(distance(scores, Numbers{{0.999867, 48.201379, 50, 50, -50, 50}}), 50 * printed);
}

TYPED_TEST(MaskFault, B17_TheSoftCapComesBeforeTheBias) {
  attn::Matrix<TypeParam> bias(1, 4);
  bias << 0, -3, 2, 0;
  this->expect(Numbers{{0.611912, -0.562055}, {0.424577, -0.467542}}, attn::AdditiveBias(bias),
               {.soft_cap = 2});
}

TYPED_TEST(MaskFault, B19_VeryLargeScoresStayFinite) {
  const attn::Matrix<TypeParam> x = attn::Matrix<TypeParam>::Constant(1, 64, TypeParam(133120));
  EXPECT_TRUE(same_bits(attn::sdpa(x, x, x), x));
}

TEST(MaskFault16Bit, B19_ScoresBeyondTheRangeOfHalfAreSummedInFloat) {
  using Half = Eigen::half;
  attn::Tensor<Half, 2> q({1, 128}), k({2, 128}), v({2, 1});
  for (Index i = 0; i < q.size(); ++i) q.data()[i] = Half(256.f);
  for (Index i = 0; i < k.size(); ++i) k.data()[i] = Half(256.f);
  v(0, 0) = Half(1.f);
  v(1, 0) = Half(2.f);
  EXPECT_EQ(static_cast<float>(attn::sdpa(q, k, v)(0, 0)), 1.5f);
  attn::Tensor<Eigen::bfloat16, 2> x({1, 64});
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = Eigen::bfloat16(133120.f);
  EXPECT_EQ(static_cast<float>(attn::sdpa(x, x, x)(0, 0)), 133120.f);
}

TYPED_TEST(MaskFault, B21_ASinkTakesPartInTheDenominatorOnly) {
  const std::array<double, 1> sinks{0.5};
  this->expect(Numbers{{-0.012711, -0.105841}, {-0.079455, -0.000702}}, attn::NoMask{}, {.sinks = sinks});
  this->expect_logsumexp(Numbers{{1.810781, 2.03776}}, attn::NoMask{}, {.sinks = sinks});
  const attn::Matrix<TypeParam> w = this->weights(attn::NoMask{}, {.sinks = sinks});
  EXPECT_NEAR(static_cast<double>(w.row(0).sum()), 0.73039, printed);
  EXPECT_NEAR(static_cast<double>(w.row(1).sum()), 0.785138, printed);
  const Flags none = Flags::Constant(1, 4, false);
  this->expect(Numbers::Zero(2, 2), attn::KeepMask(none), {.sinks = sinks});
  this->expect_logsumexp(Numbers{{0.5, 0.5}}, attn::KeepMask(none), {.sinks = sinks});
}

TYPED_TEST(MaskFault, B21_ASinkOfMinusInfinityIsNoSinkEvenForARowThatSeesNothing) {
  const std::array<double, 1> sinks{-inf};
  this->expect(unmasked, attn::NoMask{}, {.sinks = sinks});
  const Flags none = Flags::Constant(1, 4, false);
  this->expect(Numbers::Zero(2, 2), attn::KeepMask(none), {.sinks = sinks});
  this->expect_logsumexp(Numbers{{-inf, -inf}}, attn::KeepMask(none), {.sinks = sinks});
}

// Every row sees only keys 64 to 149, all with one score.
template <class T, attn::Mask M>
void expect_mean_of_visible_values(const M& mask, double score) {
  const attn::Matrix<T> q = attn::Matrix<T>::Ones(30, 1);
  const attn::Matrix<T> k = attn::Matrix<T>::Constant(150, 1, static_cast<T>(score));
  attn::Matrix<T> v(150, 1);
  for (Index i = 0; i < 150; ++i) v(i, 0) = static_cast<T>(i);
  const auto result = attn::sdpa_with_weights(q, k, v, mask, {.scale = 1.0});
  const double tolerance = 2e-6 * std::max(1.0, std::abs(score) / 10);
  for (Index i = 0; i < 30; ++i) {
    EXPECT_NEAR(static_cast<double>(result.out(i, 0)), 106.5, 150 * 2e-6) << "score " << score;
    for (Index j = 0; j < 150; ++j)
      EXPECT_NEAR(static_cast<double>(result.weights(i, j)), j < 64 ? 0 : 1 / 86.0, tolerance);
  }
}

TYPED_TEST(MaskFault, L01_ARowWhoseFirstTileIsMaskedTakesItsMaximumFromTheKeysItSees) {
  Flags keep = Flags::Constant(1, 150, true);
  keep.leftCols(64).setConstant(false);
  attn::Matrix<TypeParam> bias = attn::Matrix<TypeParam>::Zero(1, 150);
  bias.leftCols(64).setConstant(-std::numeric_limits<TypeParam>::infinity());
  for (const double score : {-96.0, -160.0, -1e4, 1e4}) {
    expect_mean_of_visible_values<TypeParam>(attn::KeepMask(keep), score);
    expect_mean_of_visible_values<TypeParam>(attn::AdditiveBias(bias), score);
    expect_mean_of_visible_values<TypeParam>(attn::KeepMask(keep) & attn::AdditiveBias(bias), score);
  }
}

TYPED_TEST(MaskFault, B45_AskingForMoreNeverChangesABitOfTheOutput) {
  Flags keep(1, 4);
  keep << true, true, true, false;
  const std::array<double, 1> sinks{0.5};
  const attn::SdpaOptions options{.soft_cap = 3, .sinks = sinks};
  const attn::KeepMask mask(keep);
  const auto out = attn::sdpa(this->q, this->k, this->v, mask, options);
  EXPECT_TRUE(same_bits(out, attn::sdpa_with_logsumexp(this->q, this->k, this->v, mask, options).out));
  for (const auto stage : {attn::ScoreStage::scaled, attn::ScoreStage::capped, attn::ScoreStage::biased,
                           attn::ScoreStage::weights})
    EXPECT_TRUE(same_bits(out, attn::sdpa_with_weights(this->q, this->k, this->v, mask, options, stage).out));
}

}  // namespace
