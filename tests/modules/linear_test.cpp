// tests/modules/linear_test.cpp - Linear and FeedForward against Eigen's product.
#include "attn/modules/feed_forward.hpp"

#include <gtest/gtest.h>

#include "support/counting_new.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::random_tensor;

template <class T>
Eigen::Map<const attn::Matrix<T>> as_matrix(const attn::TensorView<const T, 2>& x) {
  return {x.data(), x.extent(0), x.extent(1)};
}
template <class T>
attn::Matrix<T> by_eigen(const attn::Linear<T>& linear, const attn::Matrix<T>& x) {
  attn::Matrix<T> y = x * as_matrix<T>(linear.weight().view()).transpose();
  if (linear.bias())
    y.rowwise() += Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(linear.bias().data(), y.cols());
  return y;
}

template <class T>
class LinearOf : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(LinearOf, Scalars);

TYPED_TEST(LinearOf, IsTheProductWithTheTransposedWeightPlusBias) {
  using T = TypeParam;
  for (const Index in : {1, 5, 16, 33})
    for (const Index out : {1, 7, 24, 50})
      for (const bool bias : {true, false}) {
        attn::Linear<T> linear({.in_dim = in, .out_dim = out, .bias = bias});
        attn_test::randomize(linear, 1);
        const auto x = random_tensor<T, 2>({9, in}, 2);
        const attn::Matrix<T> want = by_eigen<T>(linear, as_matrix<T>(x.view()));
        const double tolerance = 20 * static_cast<double>(std::numeric_limits<T>::epsilon());
        const attn::Matrix<T> y = linear.forward(x);
        EXPECT_LT((y - want).cwiseAbs().maxCoeff(), tolerance);
        const attn::Matrix<T> gelu = linear.forward(x, {.activation = attn::Activation::gelu});
        const attn::Matrix<T> gelu_after = attn::gelu(want);
        EXPECT_LT((gelu - gelu_after).cwiseAbs().maxCoeff(), tolerance);
        attn::Matrix<T> sum = attn::Matrix<T>::Ones(9, out);
        linear.add_into(x, sum, sum);
        EXPECT_LT((sum.array() - 1 - want.array()).abs().maxCoeff(), tolerance);
      }
}

// Numbers of 16 bits are floats exactly, so both modules hold the same weights.
TEST(Linear, OfSixteenBitsTakesRowsOfFloats) {
  attn::Linear<Eigen::bfloat16> stored({.in_dim = 20, .out_dim = 9});
  attn_test::randomize(stored, 5);
  attn::Linear<float> converted({.in_dim = 20, .out_dim = 9});
  converted.weight().assign(stored.weight().view());
  converted.bias().assign(stored.bias().view());
  const auto x = random_tensor<float, 2>({4, 20}, 6);
  const attn::Matrix<float> y = stored.forward(x);
  EXPECT_EQ(y, converted.forward(x));
}

TEST(Linear, TreatsABatchOfAnyStridesAsItsRows) {
  attn::Linear<float> linear({.in_dim = 6, .out_dim = 4});
  attn_test::randomize(linear, 3);
  const auto x = random_tensor<float, 3>({5, 2, 6}, 4);  // [len, batch, dim]
  const attn::TensorView<const float, 3> batch_first(x.data(), {2, 5, 6}, {6, 12, 1});
  const auto y = linear.forward(batch_first);
  for (Index b = 0; b < 2; ++b)
    for (Index i = 0; i < 5; ++i) {
      const attn::Matrix<float> row = linear.forward(attn::TensorView<const float, 2>(&x(i, b, 0), {1, 6}));
      for (Index c = 0; c < 4; ++c) EXPECT_EQ(y(b, i, c), row(0, c));
    }
}

TEST(Linear, PacksAgainAfterAWriteAndOnlyThen) {
  attn::Linear<float> linear({.in_dim = 6, .out_dim = 4});
  attn_test::randomize(linear, 5);
  const auto x = random_tensor<float, 2>({3, 6}, 6);
  linear.pack();
  attn::Matrix<float> y(3, 4);
  attn::Workspace workspace;
  const auto run = [&] { linear.forward_into(x, y, {.workspace = &workspace}); };
  run();
  EXPECT_EQ(attn_test::allocations_in(run), 0u);
  linear.weight().edit([](const attn::TensorView<float, 2>& w) { w(2, 3) += 1; });
  const attn::Matrix<float> before = y;
  run();
  EXPECT_NE(y, before);
  EXPECT_EQ(y.col(0), before.col(0));
}

TEST(Linear, PacksInTheStorageAskedForAndKeepsTheWeight) {
  attn::Linear<float> linear({.in_dim = 64, .out_dim = 40});
  attn_test::randomize(linear, 5);
  const auto x = random_tensor<float, 2>({3, 64}, 6);
  const attn::Matrix<float> full = linear.forward(x);
  const Index bytes = linear.packed().bytes();
  linear.store_as(attn::WeightStorage::bfloat16);
  const attn::Matrix<float> half = linear.forward(x);
  EXPECT_LT(10 * linear.packed().bytes(), 6 * bytes);
  EXPECT_NE(half, full);
  EXPECT_LT((half - full).cwiseAbs().maxCoeff(), 64 * 0x1p-8);
  linear.store_as(attn::WeightStorage::int8);
  EXPECT_LT((linear.forward(x) - full).cwiseAbs().maxCoeff(), 64 * 0x1p-7);
  EXPECT_LT(10 * linear.packed().bytes(), 4 * bytes);
  linear.store_as(attn::WeightStorage::full);
  EXPECT_EQ(linear.forward(x), full);
}

TEST(Linear, RejectsDimensionsThatAreNotPositive) {
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([] { attn::Linear<float>({.in_dim = 0, .out_dim = 3}); }),
            "attn: Linear: in_dim 0 and out_dim 3 must be positive");
}

}  // namespace
