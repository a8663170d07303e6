// tests/ops/norm_test.cpp - layer_norm and rms_norm against the formula, over axes, strides and hard rows.
#include "attn/ops/norm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attn/core/random.hpp"
#include "attn/core/thread_pool.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"

namespace {

using attn::Index;

template <class T>
attn::Tensor<T, 2> random_matrix(Index rows, Index columns, double offset = 0, std::uint64_t seed = 1) {
  attn::Tensor<T, 2> x({rows, columns});
  const attn::CounterRandom random(seed);
  for (Index i = 0; i < x.size(); ++i)
    x.data()[i] = static_cast<T>(offset + random.normal(static_cast<std::uint64_t>(i)));
  return x;
}

template <class T>
class NormOf : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(NormOf, Scalars);

TYPED_TEST(NormOf, LayerNormFollowsTheFormula) {
  using T = TypeParam;
  for (const Index n : {1, 3, 8, 13, 384})
    for (const double offset : {0.0, 1000.0}) {
      const auto x = random_matrix<T>(4, n, offset);
      const auto weight = random_matrix<T>(1, n, 1, 2), bias = random_matrix<T>(1, n, 0, 3);
      const attn::Matrix<T> y = attn::layer_norm(x, weight, bias, {.eps = 1e-12});
      for (Index row = 0; row < 4; ++row) {
        long double mean = 0, variance = 0;
        for (Index i = 0; i < n; ++i) mean += x(row, i);
        mean /= static_cast<long double>(n);
        for (Index i = 0; i < n; ++i) variance += (x(row, i) - mean) * (x(row, i) - mean);
        variance /= static_cast<long double>(n);
        for (Index i = 0; i < n; ++i) {
          const long double unit = (x(row, i) - mean) / std::sqrt(variance + 1e-12L);
          const auto want = static_cast<double>(unit * weight(0, i) + bias(0, i));
          EXPECT_NEAR(y(row, i), want, 20 * double(std::numeric_limits<T>::epsilon())) << n << " " << offset;
        }
      }
    }
}

TYPED_TEST(NormOf, LayerNormOfEqualValuesIsZeroWithoutAmplifiedRounding) {
  using T = TypeParam;
  const attn::Matrix<T> x = attn::Matrix<T>::Constant(2, 384, T(0.1));
  const attn::Matrix<T> y = attn::layer_norm(x, attn::NoAffine{}, attn::NoAffine{}, {.eps = 1e-12});
  EXPECT_LT(y.cwiseAbs().maxCoeff(), T(0.01));
}

TYPED_TEST(NormOf, RmsNormFollowsTheFormula) {
  using T = TypeParam;
  const auto x = random_matrix<T>(3, 24);
  const auto weight = random_matrix<T>(1, 24, 1, 2);
  const attn::Matrix<T> y = attn::rms_norm(x, weight, {.eps = 0.1});
  for (Index row = 0; row < 3; ++row) {
    long double square = 0;
    for (Index i = 0; i < 24; ++i) square += static_cast<long double>(x(row, i)) * x(row, i);
    for (Index i = 0; i < 24; ++i) {
      const auto want = static_cast<double>(x(row, i) / std::sqrt(square / 24 + 0.1L) * weight(0, i));
      EXPECT_NEAR(y(row, i), want, 10 * double(std::numeric_limits<T>::epsilon()));
    }
  }
}

TYPED_TEST(NormOf, TrailingAxesAreOneLongRow) {
  using T = TypeParam;
  const auto x = random_matrix<T>(6, 20), weight = random_matrix<T>(1, 20, 1, 2);
  const attn::Matrix<T> flat = attn::layer_norm(x, weight);
  const attn::TensorView<const T, 3> folded(x.data(), {6, 4, 5});
  const attn::TensorView<const T, 2> weights(weight.data(), {4, 5});
  const auto y = attn::layer_norm(folded, weights, attn::NoAffine{}, {.axes = {1, -1}});
  for (Index i = 0; i < x.size(); ++i) EXPECT_EQ(y.data()[i], flat.data()[i]);
}

TYPED_TEST(NormOf, ColumnsStridesInPlaceAndExecutorsGiveTheSameBits) {
  using T = TypeParam;
  const auto x = random_matrix<T>(700, 50);
  const auto weight = random_matrix<T>(1, 50, 1, 2), bias = random_matrix<T>(1, 50, 0, 3);
  const attn::Matrix<T> want = attn::layer_norm(x, weight, bias);
  Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic> columns =
      Eigen::Map<const attn::Matrix<T>>(x.data(), 700, 50).transpose();
  attn::ThreadPool pool(2);
  attn::layer_norm_into(columns, weight, bias, columns, {.axes = {0, 0}, .executor = pool});
  EXPECT_EQ(columns.transpose(), want);
}

TEST(Norm, AffineOfAnotherTypeOrStrideIsConverted) {
  const auto x = random_matrix<Eigen::bfloat16>(2, 6);
  const auto weight = random_matrix<double>(6, 1, 1, 2);
  const attn::Tensor<double, 2> spread = random_matrix<double>(6, 3, 0, 3);
  const attn::TensorView<const double, 1> bias(spread.data() + 2, {6}, {3});
  const attn::Matrix<Eigen::bfloat16> y = attn::layer_norm(x, weight, bias);
  attn::Tensor<float, 2> x_float({2, 6}), weight_float({6, 1});
  attn::Tensor<float, 1> bias_float({6});
  copy(attn::TensorView<const Eigen::bfloat16, 2>(x.view()), x_float.view());
  copy(weight.view(), weight_float.view());
  copy(bias, bias_float.view());
  const attn::Matrix<float> want = attn::layer_norm(x_float, weight_float, bias_float);
  EXPECT_EQ(y, want.cast<Eigen::bfloat16>());
}

TEST(Norm, AllocatesNothingWithAWarmWorkspace) {
  auto x = random_matrix<float>(9, 6);
  const auto weight = random_matrix<float>(1, 9, 1, 2);
  attn::Workspace workspace;
  const auto run = [&] { attn::rms_norm_into(x, weight, x, {.axes = {0, 0}, .workspace = &workspace}); };
  run();
  EXPECT_EQ(attn_test::allocations_in(run), 0u);
}

TEST(Norm, NamesAWeightThatDoesNotFit) {
  const auto x = random_matrix<float>(2, 6), weight = random_matrix<float>(1, 5);
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([&] { attn::rms_norm(x, weight); }),
            "attn: rms_norm: weight [1, 5] does not fit rows of 6 elements");
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([&] {
              attn::layer_norm(x, weight, attn::NoAffine{}, {.axes = {1, 2}});
            }),
            "attn: layer_norm: there are no axes 1 to 2 in x [2, 6]");
}

}  // namespace
