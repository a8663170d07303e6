// tests/ops/activation_test.cpp - activations against the standard library in extended precision.
#include "attn/ops/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "support/error_text.hpp"

namespace {

using attn::Activation;
using attn::Index;

long double exact(Activation activation, long double x) {
  switch (activation) {
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return x * 0.5L * std::erfc(-x * std::sqrt(0.5L));
    case Activation::gelu_tanh:
      return x / (1 + std::exp(-2 * std::sqrt(2 / std::acos(-1.0L)) * (x + 0.044715L * x * x * x)));
    case Activation::gelu_bloom:
      return x / (1 + std::exp(-2 * 0.79788456L * (x + 0.044715L * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::identity:
      break;
  }
  return x;
}

constexpr Activation all[] = {Activation::identity,  Activation::relu,      Activation::gelu,
                              Activation::gelu_tanh, Activation::silu,      Activation::tanh,
                              Activation::sigmoid,   Activation::gelu_bloom};

/// Both signs, from near zero to far beyond where the functions saturate, in steps of about one percent.
template <class T>
attn::Tensor<T, 1> inputs() {
  std::vector<double> values{0};
  for (double x = 1e-6; x < 300; x *= 1.01) values.insert(values.end(), {x, -x});
  attn::Tensor<T, 1> x({static_cast<Index>(values.size())});
  for (Index i = 0; i < x.size(); ++i) x(i) = static_cast<T>(values[static_cast<std::size_t>(i)]);
  return x;
}

template <class T>
class ActivationOf : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(ActivationOf, Scalars);

TYPED_TEST(ActivationOf, IsAccurateRelativeToEachValueUntilItVanishes) {
  using T = TypeParam;
  const auto x = inputs<T>();
  // x^2 / 2 in the exponent of a tail loses digits in proportion; below 1e-30 a value counts as vanished.
  const double rounding = std::numeric_limits<T>::epsilon();
  for (const Activation activation : all) {
    const auto y = attn::activate(activation, x);
    for (Index i = 0; i < x.size(); ++i) {
      const auto want = static_cast<double>(exact(activation, x(i)));
      const double slack = rounding * (8 + std::min(80.0, double(x(i)) * double(x(i))));
      EXPECT_NEAR(y(i), want, std::abs(want) * slack + 1e-30) << activation << " of " << x(i);
    }
  }
}

TYPED_TEST(ActivationOf, HasItsLimitsAtInfinityAndKeepsNaN) {
  using T = TypeParam;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  attn::Matrix<T> x(1, 3);
  x << -infinity, infinity, std::numeric_limits<T>::quiet_NaN();
  for (const Activation activation : all) {
    const auto y = attn::activate(activation, x);
    EXPECT_TRUE(std::isnan(y(0, 2))) << activation;
    if (activation == Activation::identity) continue;
    const bool bounded = activation == Activation::tanh || activation == Activation::sigmoid;
    if (bounded)
      EXPECT_NEAR(y(0, 1), T(1), 4 * std::numeric_limits<T>::epsilon()) << activation;
    else
      EXPECT_EQ(y(0, 1), infinity) << activation;
    if (activation == Activation::tanh)
      EXPECT_EQ(y(0, 0), -y(0, 1));
    else
      EXPECT_NEAR(y(0, 0), T(0), T(1e-30)) << activation;
  }
}

TYPED_TEST(ActivationOf, DoesNotDependOnStridesOffsetOrExecutor) {
  using T = TypeParam;
  const auto x = inputs<T>();
  const Index n = x.size();
  for (const Activation activation : all) {
    const auto y = attn::activate(activation, x);
    Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic> spread(3, n);
    attn::TensorView<T, 1> strided(spread.data() + 1, {n}, {3});
    copy(x.view(), strided);
    attn::activate_into(activation, strided, strided);
    for (Index i = 0; i < n; ++i) ASSERT_EQ(strided(i), y(i));

    attn::Tensor<T, 2> wide({29, n});
    for (Index row = 0; row < 29; ++row) copy(x.view(), wide.view()[row]);
    attn::ThreadPool pool(2);
    const attn::Matrix<T> rows = attn::activate(activation, wide, {.executor = pool});
    for (Index row = 0; row < 29; ++row)
      for (Index i = 0; i < n; ++i) ASSERT_EQ(rows(row, i), y(i));
  }
}

TEST(Activation, OfSixteenBitsIsTheRoundedFloatResult) {
  const auto x = inputs<float>();
  attn::Tensor<Eigen::bfloat16, 1> narrow({x.size()});
  attn::Tensor<float, 1> wide({x.size()});
  copy(x.view(), narrow.view());
  copy(narrow.view(), wide.view());
  for (const Activation activation : all) {
    const auto y = attn::activate(activation, narrow);
    const auto z = attn::activate(activation, wide);
    for (Index i = 0; i < x.size(); ++i) EXPECT_EQ(y(i), static_cast<Eigen::bfloat16>(z(i)));
  }
}

TEST(Activation, NamesChooseTheSameFunctions) {
  const auto x = inputs<float>();
  EXPECT_EQ(attn::relu(x), attn::activate(Activation::relu, x));
  EXPECT_EQ(attn::gelu(x), attn::activate(Activation::gelu, x));
  EXPECT_EQ(attn::gelu_tanh(x), attn::activate(Activation::gelu_tanh, x));
  EXPECT_EQ(attn::silu(x), attn::activate(Activation::silu, x));
  EXPECT_EQ(attn::tanh(x), attn::activate(Activation::tanh, x));
  EXPECT_EQ(attn::sigmoid(x), attn::activate(Activation::sigmoid, x));
}

TEST(Activation, OfNothingIsNothing) {
  EXPECT_EQ(attn::gelu(attn::Tensor<float, 3>({2, 0, 3})).extents(), (attn::Dims<3>{2, 0, 3}));
}

TEST(Activation, RejectsAnOutputThatDiffersOrOverlapsInPart) {
  attn::Tensor<float, 1> x({6});
  const auto view = x.view();
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>(
                [&] { attn::activate_into(Activation::relu, view, attn::Tensor<float, 1>({5}).view()); }),
            "attn: activate: x [6] and out [5] differ in extents");
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([&] {
              attn::activate_into(Activation::relu, view.slice(0, {0, 4}), view.slice(0, {1, 5}));
            }),
            "attn: activate: out [4] overlaps x [4] in part; it may be x itself or lie elsewhere");
}

}  // namespace
