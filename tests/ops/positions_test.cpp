// tests/ops/positions_test.cpp - sinusoidal positions against the paper's formula and its property.
#include "attn/ops/positions.hpp"

#include <gtest/gtest.h>

#include "support/error_text.hpp"

namespace {

using attn::Index;

TEST(SinusoidalPositions, FollowThePapersFormula) {
  const attn::Matrix<double> table = attn::sinusoidal_positions<double>(50, 7, 3);
  for (Index p = 0; p < 50; ++p)
    for (Index c = 0; c < 7; ++c) {
      const Index i = c / 2;
      const double angle = static_cast<double>(p + 3) / std::pow(10000.0, 2.0 * static_cast<double>(i) / 7);
      EXPECT_NEAR(table(p, c), c % 2 == 0 ? std::sin(angle) : std::cos(angle), 1e-13);
    }
}

TEST(SinusoidalPositions, HaveProductsThatDependOnDistanceOnly) {
  const attn::Matrix<double> table = attn::sinusoidal_positions<double>(40, 16);
  EXPECT_NEAR(table.row(2).dot(table.row(9)), table.row(30).dot(table.row(37)), 1e-12);
}

TEST(SinusoidalPositions, RejectNegativeArguments) {
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([] { attn::sinusoidal_positions<float>(-1, 4); }),
            "attn: sinusoidal_positions: len -1, dim 4 and first 0 must not be negative");
}

}  // namespace
