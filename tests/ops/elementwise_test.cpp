#include "attn/ops/elementwise.hpp"

#include <gtest/gtest.h>

#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::TensorView;
using attn_test::error_text;
using attn_test::random_tensor;

TEST(MultiplyInto, MultipliesElementByElementInAnyStrides) {
  const auto x = random_tensor<double, 2>({5, 37}, 1), y = random_tensor<double, 2>({5, 37}, 2);
  attn::Tensor<double, 2> contiguous = y;
  attn::multiply_into(x, contiguous);
  attn::Matrix<double> columns = Eigen::Map<const attn::Matrix<double>>(y.data(), 5, 37);
  const Eigen::MatrixXd column_major = Eigen::Map<const attn::Matrix<double>>(x.data(), 5, 37);
  attn::multiply_into(column_major, columns);
  for (Index i = 0; i < 5; ++i)
    for (Index j = 0; j < 37; ++j) {
      EXPECT_EQ(contiguous(i, j), x(i, j) * y(i, j));
      EXPECT_EQ(columns(i, j), x(i, j) * y(i, j));
    }
}

TEST(MultiplyInto, RepeatsAFactorByAStrideOfZero) {
  const auto factors = random_tensor<float, 1>({3}, 1);
  auto y = random_tensor<float, 2>({3, 20}, 2);
  const auto before = y;
  attn::multiply_into(TensorView<const float, 2>(factors.data(), {3, 20}, {1, 0}), y);
  for (Index i = 0; i < 3; ++i)
    for (Index j = 0; j < 20; ++j) EXPECT_EQ(y(i, j), factors(i) * before(i, j));
}

TEST(MultiplyInto, NamesWhatDoesNotFit) {
  const attn::Tensor<float, 2> x({3, 4});
  attn::Tensor<float, 2> y({3, 5});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::multiply_into(x, y); }),
            "attn: multiply: x [3, 4] and out [3, 5] differ in extents");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::multiply_into(y, y); }),
            "attn: multiply: out [3, 5] overlaps x [3, 5]");
}

}  // namespace
