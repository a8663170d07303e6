// tests/kernels/flash_forward_test.cpp - the fused kernel against the formula over shapes and masks, and
// where a running maximum goes wrong.
#include "attn/kernels/flash_forward.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "support/attention.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::distance;
using attn_test::largest;
using attn_test::random_tensor;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

template <class T>
constexpr double tolerance = std::is_same_v<T, double> ? 1e-14 : 2e-6;

/// Output and logsumexp against the formula in double.
template <class T, int Rank, attn::Mask M = attn::NoMask>
void expect_formula(const attn::Tensor<T, Rank>& q, const attn::Tensor<T, Rank>& k,
                    const attn::Tensor<T, Rank>& v, const M& mask = {}, const attn::SdpaOptions& options = {},
                    double error = tolerance<T>) {
  const auto result = attn::sdpa_with_logsumexp(q, k, v, mask, options);
  const auto expected = attn_test::reference_attention(q, k, v, mask, options);
  EXPECT_LE(distance(result.out, expected.out), error * largest(expected.out, 1));
  EXPECT_LE(distance(result.logsumexp, expected.logsumexp), error * largest(expected.logsumexp, 1));
}

template <class T>
class FlashForward : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(FlashForward, Scalars);

constexpr Index widths[] = {1, 3, 5, 7, 9, 17, 33, 65, 80, 96, 100};
constexpr Index lengths[] = {1, 7, 8, 9, 63, 64, 65, 129};

/// f(q, k, v) for every head_dim, value_dim and number of keys, with few and with many queries.
template <class T, class F>
void for_each_shape(F f) {
  std::uint64_t seed = 1;
  for (const Index q_len : {1, 2, 13})
    for (const Index head_dim : widths)
      for (const Index value_dim : widths)
        for (const Index kv_len : lengths) {
          SCOPED_TRACE(testing::Message() << "q_len " << q_len << ", head_dim " << head_dim << ", value_dim "
                                          << value_dim << ", kv_len " << kv_len);
          f(random_tensor<T, 2>({q_len, head_dim}, seed), random_tensor<T, 2>({kv_len, head_dim}, seed + 1),
            random_tensor<T, 2>({kv_len, value_dim}, seed + 2));
          if (testing::Test::HasFailure()) return;
          seed += 3;
        }
}

TYPED_TEST(FlashForward, EqualsTheFormulaForEveryShape) {
  for_each_shape<TypeParam>([](const auto& q, const auto& k, const auto& v) { expect_formula(q, k, v); });
}

TYPED_TEST(FlashForward, EqualsTheFormulaForEveryShapeUnderCausal) {
  for_each_shape<TypeParam>([](const auto& q, const auto& k, const auto& v) {
    expect_formula(q, k, v, attn::Causal{}, {.query_offset = k.extent(0) - q.extent(0)});
    expect_formula(q, k, v, attn::Causal{}, {.query_offset = k.extent(0) / 2});
  });
}

TYPED_TEST(FlashForward, EqualsTheFormulaForEveryShapeUnderATensorMask) {
  std::vector<unsigned char> flags(13 * 129);
  for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = i * 7 % 11 > 4;
  const auto bias = random_tensor<TypeParam, 2>({13, 129}, 9);
  for_each_shape<TypeParam>([&](const auto& q, const auto& k, const auto& v) {
    const attn::Dims<2> extents{q.extent(0), k.extent(0)};
    const attn::KeepMask keep(attn::TensorView<const unsigned char, 2>(flags.data(), extents));
    const attn::AdditiveBias added(attn::TensorView<const TypeParam, 2>(bias.data(), extents));
    expect_formula(q, k, v, keep);
    expect_formula(q, k, v, added, {.soft_cap = 3});
  });
}

TYPED_TEST(FlashForward, FoldsTheHeadsThatShareKeysForAnyNumberOfQueries) {
  for (const Index q_len : {1, 2, 3, 4, 5, 8, 24, 25, 95, 96, 97, 200})
    for (const Index group : {1, 3, 7}) {
      SCOPED_TRACE(testing::Message() << "q_len " << q_len << ", " << group << " heads per key-value head");
      const auto q = random_tensor<TypeParam, 3>({2 * group, q_len, 6}, 1);
      const auto k = random_tensor<TypeParam, 3>({2, 70, 6}, 2),
                 v = random_tensor<TypeParam, 3>({2, 70, 5}, 3);
      expect_formula(q, k, v);
      expect_formula(q, k, v, attn::Causal{}, {.query_offset = 10});
    }
}

TYPED_TEST(FlashForward, FollowsAMaximumThatRisesWithEveryKey) {
  for (const Index q_len : {1, 30})
    for (const double step : {0.01, 1.0, 6.0, 9.0, 30.0}) {  // around and far above what is left unscaled
      attn::Tensor<TypeParam, 2> q({q_len, 1}), k({300, 1});
      for (Index i = 0; i < q_len; ++i) q(i, 0) = TypeParam(1);
      for (Index j = 0; j < 300; ++j) k(j, 0) = static_cast<TypeParam>(step * static_cast<double>(j));
      const auto v = random_tensor<TypeParam, 2>({300, 9}, 3);
      expect_formula(q, k, v, attn::NoMask{}, {.scale = 1.0},
                     tolerance<TypeParam> * std::max(1.0, 30 * step));
      for (Index j = 0; j < 150; ++j) std::swap(k(j, 0), k(299 - j, 0));  // and falls
      expect_formula(q, k, v, attn::NoMask{}, {.scale = 1.0},
                     tolerance<TypeParam> * std::max(1.0, 30 * step));
    }
}

TYPED_TEST(FlashForward, IsRightForLargeAndForFarApartScores) {
  for (const Index q_len : {1, 30})
    for (const double size : {20.0, 1e3, 1e6}) {
      auto q = random_tensor<TypeParam, 2>({q_len, 1}, 1), k = random_tensor<TypeParam, 2>({200, 1}, 2);
      for (Index i = 0; i < q_len; ++i) q(i, 0) = static_cast<TypeParam>(std::round(q(i, 0) * 8));
      // Whole numbers: the scores are exact, and what is left is the softmax's own error.
      for (Index j = 0; j < 200; ++j)
        k(j, 0) = static_cast<TypeParam>(std::round(static_cast<double>(k(j, 0)) * 4) * size);
      const auto v = random_tensor<TypeParam, 2>({200, 4}, 3);
      const attn::Matrix<TypeParam> zero = attn::Matrix<TypeParam>::Zero(1, 1);
      // The bias keeps scores in natural units, which are exact here.
      expect_formula(q, k, v, attn::AdditiveBias(zero), {.scale = 1.0});
    }
}

/// Hides keys 50 to 99 from every query, in each way there is.
template <class T, class F>
void with_each_mask_of_the_last_keys(F f) {
  const std::array<Index, 1> length{50};
  std::vector<unsigned char> keep(100, 1), drop(100, 0);
  std::vector<int> words(100, 1);
  attn::Matrix<T> bias = attn::Matrix<T>::Zero(1, 100);
  for (std::size_t j = 50; j < 100; ++j) keep[j] = 0, drop[j] = 1, words[j] = 0;
  bias.rightCols(50).setConstant(-std::numeric_limits<T>::infinity());
  const attn::TensorView<const unsigned char, 2> kept(keep.data(), {1, 100}), dropped(drop.data(), {1, 100});
  f(attn::KeyPadding{length});
  f(attn::KeepMask(kept));
  f(attn::DropMask(dropped));
  f(attn::KeepMask(attn::TensorView<const int, 2>(words.data(), {1, 100})));
  f(attn::AdditiveBias(bias));
  f(attn::AdditiveBias(bias) & attn::KeepMask(kept));
}

TYPED_TEST(FlashForward, NeverLetsThroughWhatIsStoredAtMaskedKeys) {
  for (const Index q_len : {1, 30})
    for (const double stored : {nan, inf, -inf, 1e30}) {
      const auto q = random_tensor<TypeParam, 2>({q_len, 8}, 1);
      auto k = random_tensor<TypeParam, 2>({100, 8}, 2), v = random_tensor<TypeParam, 2>({100, 5}, 3);
      const auto expected =
          attn_test::reference_attention(q, k.view().slice(0, {0, 50}), v.view().slice(0, {0, 50}));
      for (Index j = 50; j < 100; ++j) {
        for (Index c = 0; c < 8; ++c) k(j, c) = static_cast<TypeParam>(stored);
        for (Index c = 0; c < 5; ++c) v(j, c) = static_cast<TypeParam>(stored);
      }
      with_each_mask_of_the_last_keys<TypeParam>([&](const auto& mask) {
        for (const double soft_cap : {0.0, 1e9}) {
          const auto result = attn::sdpa_with_logsumexp(q, k, v, mask, {.soft_cap = soft_cap});
          EXPECT_LE(distance(result.out, expected.out), 10 * tolerance<TypeParam>) << stored;
          EXPECT_LE(distance(result.logsumexp, expected.logsumexp), 10 * tolerance<TypeParam>) << stored;
        }
      });
    }
}

TYPED_TEST(FlashForward, ShowsWhatIsStoredAtVisibleKeys) {
  const auto q = random_tensor<TypeParam, 2>({30, 8}, 1), k = random_tensor<TypeParam, 2>({100, 8}, 2);
  auto v = random_tensor<TypeParam, 2>({100, 5}, 3);
  v(77, 2) = std::numeric_limits<TypeParam>::quiet_NaN();
  const auto out = attn::sdpa(q, k, v, attn::Causal{}, {.query_offset = 60});
  for (Index i = 0; i < 30; ++i) {
    EXPECT_EQ(std::isnan(out(i, 2)), i >= 17) << "row " << i;
    EXPECT_FALSE(std::isnan(out(i, 1))) << "row " << i;
  }
}

TYPED_TEST(FlashForward, TakesARowOfTheLowestNumberAsEqualScores) {
  for (const Index q_len : {1, 30}) {
    const auto q = random_tensor<TypeParam, 2>({q_len, 8}, 1), k = random_tensor<TypeParam, 2>({150, 8}, 2),
               v = random_tensor<TypeParam, 2>({150, 5}, 3);
    attn::Matrix<TypeParam> bias =
        attn::Matrix<TypeParam>::Constant(q_len, 150, std::numeric_limits<TypeParam>::lowest());
    const auto mean = attn_test::reference_attention(q, k, v, attn::NoMask{}, {.scale = 0.0});
    EXPECT_LE(distance(attn::sdpa(q, k, v, attn::AdditiveBias(bias)), mean.out), tolerance<TypeParam>);
    bias.col(140).setZero();  // one real score among them takes everything
    const auto out = attn::sdpa(q, k, v, attn::AdditiveBias(bias));
    for (Index i = 0; i < q_len; ++i)
      for (Index c = 0; c < 5; ++c) EXPECT_EQ(out(i, c), v(140, c));
  }
}

}  // namespace
