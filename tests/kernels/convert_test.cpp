// tests/kernels/convert_test.cpp - 16-bit elements to float and back, against Eigen's own conversions.
#include "attn/kernels/convert.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace {

using attn::Index;

template <class E>
E from_bits(std::uint16_t bits) {
  return std::bit_cast<E>(bits);
}
template <class E>
std::uint16_t bits_of(E x) {
  return std::bit_cast<std::uint16_t>(x);
}

template <class E>
class Convert : public testing::Test {};
using Elements = testing::Types<Eigen::half, Eigen::bfloat16>;
TYPED_TEST_SUITE(Convert, Elements);

TYPED_TEST(Convert, EveryPatternOfBitsBecomesItsFloat) {
  std::vector<TypeParam> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = from_bits<TypeParam>(static_cast<std::uint16_t>(i));
  std::vector<float> floats(all.size());
  attn::kernels::convert(all.data(), static_cast<Index>(all.size()), floats.data());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto expected = static_cast<float>(all[i]);
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(floats[i])) << i;
    else
      EXPECT_EQ(floats[i], expected) << i;
  }
}

TYPED_TEST(Convert, FloatsAreRoundedToTheNearestTiesToEven) {
  std::vector<float> floats;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 9973)  // a prime: all low bits occur
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (std::uint32_t high = 0; high < (1 << 16); high += 7)  // ties, and a step to either side
    for (const std::uint32_t low : {0x7FFFU, 0x8000U, 0x8001U, 0xFFFU, 0x1000U, 0x1001U})
      floats.push_back(std::bit_cast<float>(high << 16 | low));
  std::vector<TypeParam> rounded(floats.size());
  attn::kernels::convert(floats.data(), static_cast<Index>(floats.size()), rounded.data());
  for (std::size_t i = 0; i < floats.size(); ++i) {
    if (std::isnan(floats[i]))
      EXPECT_TRUE((Eigen::numext::isnan)(rounded[i])) << floats[i];
    else
      EXPECT_EQ(bits_of(rounded[i]), bits_of(static_cast<TypeParam>(floats[i]))) << floats[i];
  }
}

TYPED_TEST(Convert, RunsOfAnyLengthStayWithinTheirBounds) {
  for (Index count = 0; count <= 40; ++count) {
    std::vector<TypeParam> from(static_cast<std::size_t>(count) + 1, TypeParam(1.5F)), back = from;
    std::vector<float> to(static_cast<std::size_t>(count) + 1, -1.0F);
    attn::kernels::convert(from.data(), count, to.data());
    for (Index i = 0; i < count; ++i) EXPECT_EQ(to[static_cast<std::size_t>(i)], 1.5F);
    EXPECT_EQ(to.back(), -1.0F);
    back.back() = TypeParam(2.0F);
    attn::kernels::convert(to.data(), count, back.data());
    EXPECT_EQ(bits_of(back.back()), bits_of(TypeParam(2.0F)));
  }
}

}  // namespace
