// tests/ops/pool_test.cpp - sentence vectors: means over real rows, scaled to length 1.
#include "attn/ops/pool.hpp"

#include <gtest/gtest.h>

#include "support/error_text.hpp"

namespace {

using attn::Index;

TEST(Pool, AveragesTheFirstRowsOfEachSequenceOnly) {
  attn::Tensor<float, 3> x({3, 3, 2});
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(i);
  x(1, 2, 0) = std::numeric_limits<float>::quiet_NaN();
  const Index lengths[] = {3, 2, 0};
  const attn::Matrix<float> mean = attn::mean_pool(x, lengths);
  EXPECT_EQ(mean, (attn::Matrix<float>(3, 2) << 2, 3, 7, 8, 0, 0).finished());
}

TEST(Pool, ScalesRowsToLengthOneAndLeavesZeros) {
  attn::Matrix<double> x(2, 2);
  x << 3, -4, 0, 0;
  attn::normalize_rows(x);
  EXPECT_DOUBLE_EQ(x(0, 0), 0.6);
  EXPECT_DOUBLE_EQ(x(0, 1), -0.8);
  EXPECT_EQ(x.row(1).squaredNorm(), 0);
}

TEST(Pool, NamesALengthThatDoesNotFit) {
  const attn::Tensor<float, 3> x({2, 3, 4});
  const Index too_long[] = {3, 4}, too_few[] = {1};
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([&] { attn::mean_pool(x, too_long); }),
            "attn: mean_pool: length 4 is not within x [2, 3, 4]");
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([&] { attn::mean_pool(x, too_few); }),
            "attn: mean_pool: 1 lengths for x [2, 3, 4]");
}

}  // namespace
