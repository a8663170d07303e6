// tests/kernels/packet_test.cpp - exp2 and tanh of the vector registers against the standard library in long
// double, and the shuffles.
#include "attn/kernels/packet.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "attn/core/random.hpp"

namespace {

namespace kernels = attn::kernels;

template <class T>
class PacketOf : public testing::Test {
 protected:
  static constexpr int width = kernels::packet_width<T>;
  using Real = long double;
  static constexpr bool is_float = std::is_same_v<T, float>;

  /// f on a packet that holds x in every lane but one, which holds `other`; all lanes but that must agree.
  template <class F>
  static T in_lanes(T x, T other, F f) {
    alignas(64) T lanes[static_cast<std::size_t>(width)];
    std::fill(lanes, lanes + width, x);
    if (width > 1) lanes[1] = other;
    kernels::store(lanes, f(kernels::load(lanes)));
    for (int i = 2; i < width; ++i)
      EXPECT_EQ(std::memcmp(&lanes[0], &lanes[i], sizeof(T)), 0) << lanes[0] << " and " << lanes[i];
    return lanes[0];
  }
  static T exp2(T x) {
    return in_lanes(x, T(-0.75), [](const auto& p) { return kernels::exp2(p); });
  }
  static T tanh(T x) {
    return in_lanes(x, T(9), [](const auto& p) { return kernels::tanh(p); });
  }
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(PacketOf, Scalars);

TYPED_TEST(PacketOf, Exp2HasItsStatedRelativeError) {
  const long double stated = this->is_float ? 2e-7L : 4e-16L;
  const double lowest = this->is_float ? -126 : -1022;
  const attn::CounterRandom random(1);
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const double span = i % 2 == 0 ? 16 - lowest : 32;  // half of them near 0, where weights matter
    const auto x = static_cast<TypeParam>(16 - span * random.uniform(i));
    const long double exact = std::exp2(static_cast<long double>(x));
    ASSERT_LE(std::abs(static_cast<long double>(this->exp2(x)) - exact), stated * exact) << "x = " << x;
  }
}

TYPED_TEST(PacketOf, Exp2OfAWholeNumberIsExact) {
  const int lowest = this->is_float ? -126 : -1022;
  for (int n = lowest; n <= 16; ++n)
    EXPECT_EQ(this->exp2(static_cast<TypeParam>(n)), std::ldexp(TypeParam(1), n)) << n;
}

TYPED_TEST(PacketOf, Exp2IsZeroFarBelowAndKeepsNaN) {
  using Limits = std::numeric_limits<TypeParam>;
  for (const TypeParam x : {TypeParam(-2000), TypeParam(-1e30), Limits::lowest(), -Limits::infinity()})
    EXPECT_EQ(this->exp2(x), 0) << x;
  EXPECT_TRUE(std::isnan(this->exp2(Limits::quiet_NaN())));
  const attn::CounterRandom random(2);
  for (std::uint64_t i = 0; i < 1000; ++i) {  // between the two, the result has no accuracy but is tiny
    const auto x = static_cast<TypeParam>((this->is_float ? -126 : -1022) - random.uniform(i));
    EXPECT_GE(this->exp2(x), 0);
    EXPECT_LE(this->exp2(x), Limits::min());
  }
}

TYPED_TEST(PacketOf, TanhHasItsStatedRelativeErrorAndIsOdd) {
  const long double stated = this->is_float ? 3e-7L : 1e-15L;
  const attn::CounterRandom random(3);
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const double size = i % 3 == 0 ? 2 : i % 3 == 1 ? 30 : 1e-3;
    const auto x = static_cast<TypeParam>(size * (2 * random.uniform(i) - 1));
    const long double exact = std::tanh(static_cast<long double>(x));
    ASSERT_LE(std::abs(static_cast<long double>(this->tanh(x)) - exact), stated * std::abs(exact)) << x;
    ASSERT_EQ(this->tanh(-x), -this->tanh(x));
  }
}

TYPED_TEST(PacketOf, TanhIsDefinedEverywhere) {
  using Limits = std::numeric_limits<TypeParam>;
  EXPECT_EQ(this->tanh(0), 0);
  for (const TypeParam x : {TypeParam(25), TypeParam(1e30), Limits::max(), Limits::infinity()}) {
    EXPECT_EQ(this->tanh(x), 1);
    EXPECT_EQ(this->tanh(-x), -1);
  }
  EXPECT_TRUE(std::isnan(this->tanh(Limits::quiet_NaN())));
}

TYPED_TEST(PacketOf, SquareTransposes) {
  constexpr int lanes = TestFixture::width;
  TypeParam values[static_cast<std::size_t>(lanes * lanes)], turned[static_cast<std::size_t>(lanes * lanes)];
  for (int i = 0; i < lanes * lanes; ++i) values[i] = static_cast<TypeParam>(i);
  kernels::PacketSquare<TypeParam> square;
  for (int i = 0; i < lanes; ++i) square[i] = kernels::load(values + i * lanes);
  square.transpose();
  for (int i = 0; i < lanes; ++i) kernels::store(turned + i * lanes, square[i]);
  for (int i = 0; i < lanes; ++i)
    for (int j = 0; j < lanes; ++j) EXPECT_EQ(turned[i * lanes + j], values[j * lanes + i]);
}

TEST(Bytes, SquareTransposes) {
  std::uint64_t rows[8];
  unsigned char bytes[8][8];
  for (int i = 0; i < 64; ++i) bytes[i / 8][i % 8] = static_cast<unsigned char>(200 - 3 * i);
  std::memcpy(rows, bytes, sizeof rows);
  kernels::transpose_bytes(rows);
  unsigned char turned[8][8];
  std::memcpy(turned, rows, sizeof rows);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(turned[i % 8][i / 8], bytes[i / 8][i % 8]) << i;
}

TYPED_TEST(PacketOf, MaximumAndMinimumKeepANaNOnTheLeft) {
  const auto nan = kernels::broadcast(std::numeric_limits<TypeParam>::quiet_NaN());
  const auto one = kernels::broadcast(TypeParam(1));
  TypeParam result[static_cast<std::size_t>(TestFixture::width)];
  kernels::store(result, kernels::max(nan, one));
  EXPECT_TRUE(std::isnan(result[0]));
  kernels::store(result, kernels::min(nan, one));
  EXPECT_TRUE(std::isnan(result[0]));
}

}  // namespace
