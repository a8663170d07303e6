#include "attn/core/math.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

namespace {

/// Distance in units of the last place of the truth (of the smallest denormal, where that is more); infinite
/// if one of the two is NaN or rounds to infinity and the other is not.
template <class T>
double error_in_ulps(T value, long double truth) {
  using Limits = std::numeric_limits<T>;
  const T rounded = static_cast<T>(truth);
  if (!std::isfinite(rounded) || !std::isfinite(value)) {
    const bool same = std::isnan(rounded) ? std::isnan(value) : value == rounded;
    return same ? 0 : std::numeric_limits<double>::infinity();
  }
  const int exponent =
      std::max(std::ilogb(rounded == 0 ? Limits::denorm_min() : rounded), Limits::min_exponent - 1);
  const long double unit = std::ldexp(1.0L, exponent - (Limits::digits - 1));
  return static_cast<double>(std::abs(static_cast<long double>(value) - truth) / unit);
}

/// The largest error of f over -x and x, for x from `first` to `last` in steps of the factor `step`.
template <class T, class F, class G>
double largest_error(F f, G truth, double first, double last, double step) {
  double largest = 0;
  for (double size = first; size <= last; size *= step)
    for (const T x : {static_cast<T>(size), static_cast<T>(-size)})
      largest = std::max(largest, error_in_ulps(f(x), truth(static_cast<long double>(x))));
  return largest;
}

template <class T>
class ScalarMath : public testing::Test {
 protected:
  static constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  static constexpr double smallest = std::is_same_v<T, float> ? 1e-45 : 1e-321;  // denormals
  static T exp(T x) { return attn::exp(x); }
  static T tanh(T x) { return attn::tanh(x); }
  static long double true_exp(long double x) { return std::exp(x); }
  static long double true_tanh(long double x) { return std::tanh(x); }
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(ScalarMath, Scalars);

TYPED_TEST(ScalarMath, ExpIsWithinTwoUnitsInTheLastPlaceFromZeroToInfinity) {
  EXPECT_LT(largest_error<TypeParam>(this->exp, this->true_exp, this->smallest, 1, 1.01), 2);
  EXPECT_LT(largest_error<TypeParam>(this->exp, this->true_exp, 1e-3, 2000, 1.00003), 2);
}

TYPED_TEST(ScalarMath, TanhIsWithinThreeUnitsInTheLastPlaceAlsoNearZero) {
  EXPECT_LT(largest_error<TypeParam>(this->tanh, this->true_tanh, this->smallest, 1, 1.01), 3);
  EXPECT_LT(largest_error<TypeParam>(this->tanh, this->true_tanh, 1e-3, 100, 1.00003), 3);
}

TYPED_TEST(ScalarMath, SpecialValuesAreThoseOfTheStandardLibrary) {
  using T = TypeParam;
  for (const T x : {this->infinity, -this->infinity, std::numeric_limits<T>::max(),
                    std::numeric_limits<T>::lowest(), this->nan}) {
    EXPECT_EQ(error_in_ulps(attn::exp(x), std::exp(static_cast<long double>(x))), 0) << x;
    EXPECT_EQ(error_in_ulps(attn::tanh(x), std::tanh(static_cast<long double>(x))), 0) << x;
  }
  EXPECT_EQ(attn::exp(T(0)), T(1));
  EXPECT_EQ(attn::exp(-this->infinity), T(0));
  EXPECT_FALSE(std::signbit(attn::tanh(T(0))));
  EXPECT_TRUE(std::signbit(attn::tanh(-T(0))));
}

TYPED_TEST(ScalarMath, ExpRisesToTheLargestNumbersAndFallsToTheSmallest) {
  using T = TypeParam;
  const T last = std::log(std::numeric_limits<T>::max()),
          first = std::log(std::numeric_limits<T>::denorm_min());
  EXPECT_TRUE(std::isfinite(attn::exp(std::nextafter(last, T(0)))));
  EXPECT_EQ(attn::exp(last + 1), this->infinity);
  EXPECT_GT(attn::exp(first + T(0.01)), T(0));
  EXPECT_EQ(attn::exp(first - 1), T(0));
}

TYPED_TEST(ScalarMath, TanhIsOddAndNeverBeyondOne) {
  using T = TypeParam;
  for (T x = 0; x < 30; x += T(0.003)) {
    ASSERT_EQ(attn::tanh(-x), -attn::tanh(x));
    ASSERT_LE(attn::tanh(x), T(1));
  }
}

}  // namespace
