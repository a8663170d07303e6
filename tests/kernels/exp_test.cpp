// tests/kernels/exp_test.cpp - exp of the vector registers against the standard library in long double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attn/core/random.hpp"
#include "attn/kernels/activation.hpp"
#include "attn/kernels/softmax_state.hpp"

namespace {

namespace kernels = attn::kernels;

template <class T>
class PacketExpOf : public testing::Test {
 protected:
  static constexpr bool is_float = std::is_same_v<T, float>;

  static T exp(T x) {
    T lanes[static_cast<std::size_t>(kernels::packet_width<T>)];
    kernels::store(lanes, kernels::exp(kernels::broadcast(x)));
    return lanes[0];
  }
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(PacketExpOf, Scalars);

TYPED_TEST(PacketExpOf, HasItsStatedRelativeError) {
  const long double stated = this->is_float ? 3e-7L : 1e-15L;
  const double size = this->is_float ? 87 : 708;
  const attn::CounterRandom random(4);
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const double span = i % 2 == 0 ? size : 10;
    const auto x = static_cast<TypeParam>(span * (2 * random.uniform(i) - 1));
    const long double exact = std::exp(static_cast<long double>(x));
    ASSERT_LE(std::abs(static_cast<long double>(this->exp(x)) - exact), stated * exact) << "x = " << x;
  }
}

TYPED_TEST(PacketExpOf, IsZeroFarBelowAndKeepsNaN) {
  using Limits = std::numeric_limits<TypeParam>;
  const TypeParam zero_from = this->is_float ? -104 : -746;
  for (const TypeParam x : {zero_from, 2 * zero_from, Limits::lowest(), -Limits::infinity()})
    EXPECT_EQ(this->exp(x), 0) << x;
  EXPECT_TRUE(std::isnan(this->exp(Limits::quiet_NaN())));
  const TypeParam normal_to = this->is_float ? -88 : -709;
  for (TypeParam x = normal_to; x > zero_from; x -= TypeParam(0.01)) {  // in between it is tiny
    ASSERT_GE(this->exp(x), 0) << x;
    ASSERT_LE(this->exp(x), Limits::min()) << x;
  }
}

// What a weight below 2^-90 would add is less than the rounding of a sum in float or double.
TYPED_TEST(PacketExpOf, AWeightIsZeroBelowItsLeastExponent) {
  const auto weight = [](TypeParam score) {
    TypeParam lanes[static_cast<std::size_t>(kernels::packet_width<TypeParam>)];
    kernels::store(lanes, kernels::weight_of(kernels::broadcast(score)));
    return lanes[0];
  };
  EXPECT_EQ(weight(TypeParam(0)), TypeParam(1));
  EXPECT_EQ(weight(TypeParam(-90)), std::ldexp(TypeParam(1), -90));
  for (const TypeParam score : {TypeParam(-90.01), TypeParam(-126), TypeParam(-140), TypeParam(-1e30)})
    EXPECT_EQ(weight(score), TypeParam(0)) << score;
  EXPECT_TRUE(std::isnan(weight(std::numeric_limits<TypeParam>::quiet_NaN())));
}

}  // namespace
