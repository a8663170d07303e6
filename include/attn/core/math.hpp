// attn/core/math.hpp - exp and tanh without branches, for score lambdas: a loop that calls them vectorises.
#pragma once
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "attn/core/config.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

template <class T>
concept FloatOrDouble = std::same_as<T, float> || std::same_as<T, double>;

template <FloatOrDouble T>
using BitsOf = std::conditional_t<std::same_as<T, float>, std::int32_t, std::int64_t>;

template <class T>
ATTN_ALWAYS_INLINE T horner(T, T accumulated) {
  return accumulated;
}
/// Horner's rule; coefficients from the highest power down.
template <class T, class... Rest>
ATTN_ALWAYS_INLINE T horner(T x, T accumulated, double next, Rest... rest) {
  return horner(x, accumulated * x + static_cast<T>(next), rest...);
}

/// condition ? a : b by bits: of a conditional expression g++ makes branches with copies of what follows,
/// which it then does not vectorise.
template <FloatOrDouble T>
ATTN_ALWAYS_INLINE T select(bool condition, T a, T b) {
  const BitsOf<T> mask = -static_cast<BitsOf<T>>(condition), other = std::bit_cast<BitsOf<T>>(b);
  return std::bit_cast<T>(other ^ ((other ^ std::bit_cast<BitsOf<T>>(a)) & mask));
}

/// x * 2^n where both are normal numbers: n is added to the exponent bits.
template <FloatOrDouble T>
ATTN_ALWAYS_INLINE T times_power_of_two(T x, std::int32_t n) {
  constexpr int mantissa_bits = std::same_as<T, float> ? 23 : 52;
  return std::bit_cast<T>(std::bit_cast<BitsOf<T>>(x) + (static_cast<BitsOf<T>>(n) << mantissa_bits));
}

/// e^x = 2^power * (1 + rest), |rest| < 0.42.
template <FloatOrDouble T>
struct Exponential {
  T rest;
  std::int32_t power;
};

/// x = n ln 2 + r with |r| <= ln(2) / 2, ln 2 in two parts of which n times the first is exact (Cody and
/// Waite 1980, "Software manual for the elementary functions", chapter 6); e^r - 1 by its Taylor series,
/// whose next term is below rounding. x is bounded, or NaN: then power is 0 and rest NaN.
template <FloatOrDouble T>
ATTN_ALWAYS_INLINE Exponential<T> exponential(T x) {
  const T countable = select(x == x, x, T(0));  // NOLINT(misc-redundant-expression): false for NaN
  const auto n =
      static_cast<std::int32_t>(countable * T(1.4426950408889634) + std::copysign(T(0.5), countable));
  const T steps = static_cast<T>(n);
  if constexpr (std::same_as<T, float>) {
    const T r = x - steps * T(0.693359375) - steps * T(-2.1219444005469057e-4);
    return {r * horner(r, T(1.0 / 5040), 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0), n};
  } else {
    const T r = x - steps * T(0.693145751953125) - steps * T(1.4286068203094172321e-6);
    return {r * horner(r, T(1.0 / 6227020800), 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                       1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0),
            n};
  }
}

}  // namespace detail

/// e^x within 2 units in the last place, denormal results included; 0, infinity and NaN as std::exp.
template <detail::FloatOrDouble T>
ATTN_ALWAYS_INLINE T exp(T x) {
  constexpr T lowest = std::same_as<T, float> ? T(-104) : T(-746),
              highest = std::same_as<T, float> ? T(89) : T(710);
  const T not_below = detail::select(x < lowest, lowest, x);
  const auto e = detail::exponential(detail::select(not_below > highest, highest, not_below));
  const std::int32_t half = e.power >> 1;  // the power itself may lie outside of normal numbers
  return detail::times_power_of_two(1 + e.rest, half) * detail::times_power_of_two(T(1), e.power - half);
}

/// tanh x = -m / (2 + m) with m = e^(-2 |x|) - 1, within 3 units in the last place, also near 0; -0,
/// infinities and NaN as std::tanh.
template <detail::FloatOrDouble T>
ATTN_ALWAYS_INLINE T tanh(T x) {
  const T exponent = -2 * std::abs(x);
  const auto e = detail::exponential(detail::select(exponent < T(-40), T(-40), exponent));
  const T power = detail::times_power_of_two(T(1), e.power);
  const T m = power * e.rest + (power - 1);
  return std::copysign(m / (2 + m), x);
}

ATTN_NAMESPACE_END
