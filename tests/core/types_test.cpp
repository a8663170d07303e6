#include "attn/core/types.hpp"

#include <gtest/gtest.h>

#include <concepts>

namespace {

TEST(Index, IsSignedAndHas64Bits) {
  EXPECT_TRUE(std::signed_integral<attn::Index>);
  EXPECT_EQ(sizeof(attn::Index), 8u);
}

TEST(Accumulator, IsDoubleForDoubleAndFloatForTheRest) {
  EXPECT_TRUE((std::same_as<attn::Accumulator<double>, double>));
  EXPECT_TRUE((std::same_as<attn::Accumulator<float>, float>));
  EXPECT_TRUE((std::same_as<attn::Accumulator<Eigen::half>, float>));
  EXPECT_TRUE((std::same_as<attn::Accumulator<Eigen::bfloat16>, float>));
}

TEST(Element, IsAFloatingPointTypeThatEigenKnows) {
  EXPECT_TRUE(attn::Element<Eigen::half>);
  EXPECT_FALSE(attn::Element<int>);
  EXPECT_FALSE(attn::Element<const float>);
  EXPECT_FALSE(attn::Element<long double>);
}

TEST(Range, IntersectionHoldsWhatIsInBoth) {
  EXPECT_EQ(attn::intersect({0, 5}, {3, 9}), (attn::Range{3, 5}));
  EXPECT_TRUE(attn::intersect({0, 3}, {3, 9}).empty());
  EXPECT_EQ(attn::intersect({0, 2}, {4, 9}).size(), 0) << "ranges apart have no element in common";
}

}  // namespace
