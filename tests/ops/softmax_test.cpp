// tests/ops/softmax_test.cpp - softmax and log_softmax against the formula, over axes, strides and special
// values.
#include "attn/ops/softmax.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attn/core/random.hpp"
#include "attn/core/thread_pool.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"

namespace {

using attn::Index;

template <class T>
attn::Tensor<T, 3> random_tensor(attn::Dims<3> extents, double spread) {
  attn::Tensor<T, 3> x(extents);
  const attn::CounterRandom random(7);
  for (Index i = 0; i < x.size(); ++i)
    x.data()[i] = static_cast<T>(spread * random.normal(static_cast<std::uint64_t>(i)));
  return x;
}

template <class T>
class SoftmaxOf : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(SoftmaxOf, Scalars);

TYPED_TEST(SoftmaxOf, FollowsTheFormulaForRowsOfAnyLength) {
  using T = TypeParam;
  const double rounding = std::numeric_limits<T>::epsilon();
  for (const Index n : {1, 2, 7, 8, 9, 31, 200}) {
    const auto x = random_tensor<T>({2, 3, n}, 10);
    const auto y = attn::softmax(x);
    const auto z = attn::log_softmax(x);
    for (Index a = 0; a < 2; ++a)
      for (Index b = 0; b < 3; ++b) {
        long double sum = 0;
        for (Index i = 0; i < n; ++i) sum += std::exp(static_cast<long double>(x(a, b, i)));
        for (Index i = 0; i < n; ++i) {
          const auto want = static_cast<double>(std::exp(static_cast<long double>(x(a, b, i))) / sum);
          EXPECT_NEAR(y(a, b, i), want, 4 * rounding);
          const auto want_log = static_cast<double>(x(a, b, i) - std::log(sum));
          EXPECT_NEAR(z(a, b, i), want_log, 4 * rounding * (1 + std::abs(want_log)));
        }
      }
  }
}

TYPED_TEST(SoftmaxOf, IsNotMovedByAConstantAndDoesNotOverflow) {
  using T = TypeParam;
  attn::Matrix<T> x(1, 3), moved(1, 3);
  x << 0, 1, 2;
  moved.array() = x.array() + T(16384);
  EXPECT_EQ(attn::softmax(moved), attn::softmax(x));
}

TYPED_TEST(SoftmaxOf, GivesExactZerosForMinusInfinityAlsoWhereNothingElseIs) {
  using T = TypeParam;
  constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  attn::Matrix<T> x(4, 3);
  x << -inf, 5, -inf, -inf, -inf, -inf, 1, nan, 2, 1, inf, 2;
  const attn::Matrix<T> y = attn::softmax(x);
  EXPECT_EQ(y.row(0), (attn::Matrix<T>(1, 3) << 0, 1, 0).finished());
  EXPECT_EQ(y.row(1), (attn::Matrix<T>(1, 3) << 0, 0, 0).finished());
  EXPECT_TRUE(y.row(2).array().isNaN().all());
  EXPECT_TRUE(std::isnan(y(3, 1)));
  const attn::Matrix<T> z = attn::log_softmax(x);
  EXPECT_EQ(z.row(0), (attn::Matrix<T>(1, 3) << -inf, 0, -inf).finished());
  EXPECT_EQ(z.row(1), (attn::Matrix<T>(1, 3) << -inf, -inf, -inf).finished());
}

TYPED_TEST(SoftmaxOf, IsTheSameAlongEveryAxisInPlaceAndOnEveryExecutor) {
  using T = TypeParam;
  const auto x = random_tensor<T>({5, 70, 9}, 3);
  attn::ThreadPool pool(2);
  const attn::Dims<3> turned_extents[] = {{70, 9, 5}, {5, 9, 70}};
  for (int axis = 0; axis < 2; ++axis) {
    attn::Tensor<T, 3> turned(turned_extents[axis]);
    const attn::Dims<3> strides = axis == 0 ? attn::Dims<3>{9, 1, 630} : attn::Dims<3>{630, 1, 9};
    copy(attn::TensorView<const T, 3>(x.data(), turned_extents[axis], strides), turned.view());
    const auto want = attn::softmax(turned);
    auto y = x;
    attn::softmax_into(y, y, {.axis = axis, .executor = pool});
    attn::Tensor<T, 3> y_turned(turned_extents[axis]);
    copy(attn::TensorView<const T, 3>(y.data(), turned_extents[axis], strides), y_turned.view());
    EXPECT_EQ(y_turned, want);
  }
}

TEST(Softmax, AllocatesNothingWithAWarmWorkspace) {
  auto x = random_tensor<float>({4, 5, 6}, 1);
  attn::Workspace workspace;
  const auto run = [&] { attn::softmax_into(x, x, {.axis = 1, .workspace = &workspace}); };
  run();
  EXPECT_EQ(attn_test::allocations_in(run), 0u);
}

TEST(Softmax, OfHalfIsComputedInFloat) {
  attn::Matrix<Eigen::half> x = attn::Matrix<Eigen::half>::Constant(1, 3000, Eigen::half(60000.F));
  const attn::Matrix<Eigen::half> y = attn::softmax(x);
  EXPECT_EQ(y(0, 17), Eigen::half(1.F / 3000));
}

TEST(Softmax, NamesAnAxisThatDoesNotExist) {
  const attn::Matrix<float> x = attn::Matrix<float>::Zero(2, 3);
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([&] { attn::softmax(x, {.axis = 2}); }),
            "attn: softmax: there are no axes 2 to 2 in x [2, 3]");
}

}  // namespace
