// attn/kernels/activation.hpp - exp and the activation functions on vector registers, without branches.
//
// Each is a function object P -> P on packets (kernels/packet.hpp), to be inlined into the loop that calls
// it: the elementwise operations, and the last step of a projection.
#pragma once
#include <cmath>

#include "attn/kernels/packet.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

namespace detail {

template <class P>
ATTN_ALWAYS_INLINE P constant(double c) {
  return broadcast(static_cast<ScalarOf<P>>(c));
}
template <class P>
inline constexpr bool is_float = std::is_same_v<ScalarOf<P>, float>;

/// f of each lane, for functions that the standard library computes best (double).
template <class P, class F>
ATTN_ALWAYS_INLINE P map_lanes(const P& x, F f) {
  constexpr int width = packet_width<ScalarOf<P>>;
  ScalarOf<P> lanes[std::size_t{width}];
  store(lanes, x);
  for (int i = 0; i < width; ++i) lanes[i] = f(lanes[i]);
  return load(lanes);
}

template <class P>
ATTN_ALWAYS_INLINE P absolute(const P& x) {
  return max(x, sub(constant<P>(0), x));
}

/// x * gate(x) for a gate with gate(-x) = 1 - gate(x), from its falling half `tail`(a) = gate(-a), a >= 0:
/// relu(x) - a * tail(a). No difference of nearly equal numbers appears on either side, and beyond `limit`,
/// where the tail is 0 to rounding, infinite x gives the limit and not NaN.
template <class P, class Tail>
ATTN_ALWAYS_INLINE P gated(const P& x, double limit, Tail tail) {
  const P a = min(absolute(x), constant<P>(limit));
  return sub(max(x, constant<P>(0)), mul(a, tail(a)));
}

/// What rounding took from product = x * C, with a multiply-add, or by halves of the digits (Dekker 1971, "A
/// floating-point technique for extending the available precision", section 5).
template <class P, class T = ScalarOf<P>>
ATTN_ALWAYS_INLINE P lost_in_product(const P& x, T c, const P& product) {
  if constexpr (has_fma) {
    return multiply_add(x, broadcast(c), sub(broadcast(T(0)), product));
  } else {
    constexpr T splitter = std::is_same_v<T, float> ? 4097 : 134217729;  // 2^12 + 1, 2^27 + 1
    const T c_scaled = splitter * c, c_high = c_scaled - (c_scaled - c), c_low = c - c_high;
    const P scaled = mul(broadcast(splitter), x);
    P rest = sub(scaled, x);
    ATTN_OPAQUE(rest);
    const P high = sub(scaled, rest), low = sub(x, high);
    P lost = sub(mul(high, broadcast(c_high)), product);
    ATTN_OPAQUE(lost);
    lost = multiply_add(high, broadcast(c_low), lost);
    lost = multiply_add(low, broadcast(c_high), lost);
    return multiply_add(low, broadcast(c_low), lost);
  }
}

}  // namespace detail

/// e^x for x <= 87 (float) or 708 (double): relative error below 3e-7 or 1e-15 where the result is a normal
/// number; 0 below it, -inf included; NaN stays NaN. What rounding x * log2(e) loses is put back, which
/// matters for large |x|.
template <class P>
ATTN_ALWAYS_INLINE P exp(const P& x) {
  using detail::constant;
  constexpr auto log2e = static_cast<ScalarOf<P>>(1.4426950408889634074);
  const P low = constant<P>(detail::is_float<P> ? 1.4426950408889634074 - double{1.4426950408889634074f}
                                                : 2.0355273740931033e-17);
  const P bounded = max(x, constant<P>(detail::is_float<P> ? -104 : -746));  // -inf would become NaN
  const P high = mul(bounded, broadcast(log2e));
  const P lost = add(mul(bounded, low), detail::lost_in_product(bounded, log2e, high));
  const P scale = multiply_add(lost, constant<P>(0.69314718055994530942), constant<P>(1));
  return mul(exp2(high), scale);
}

/// x.
struct Identity {
  template <class P>
  ATTN_ALWAYS_INLINE P operator()(const P& x) const {
    return x;
  }
};

/// max(x, 0).
struct Relu {
  template <class P>
  ATTN_ALWAYS_INLINE P operator()(const P& x) const {
    return max(x, detail::constant<P>(0));
  }
};

/// x * Phi(x), Phi the normal distribution function (Hendrycks and Gimpel 2016). Float: Phi(-a) is
/// exp(-a^2 / 2) times a rational function fitted to relative error 6e-9 on [0, 13.5]; its coefficients are
/// all positive, so nothing cancels.
struct Gelu {
  template <class P>
  ATTN_ALWAYS_INLINE P operator()(const P& x) const {
    using detail::constant;
    if constexpr (detail::is_float<P>) {
      return detail::gated(x, 13.5, [](const P& a) ATTN_LAMBDA_INLINE {
        const P numerator = detail::polynomial(a, constant<P>(0.0040369129881932083), 0.040098274191927635,
                                               0.18164766130388942, 0.43615057285879116, 0.5);
        const P denominator =
            detail::polynomial(a, constant<P>(0.010118901575710205), 0.10051867090919848, 0.46527969991526198,
                               1.1959067836764866, 1.6701860714201381, 1.0);
        return mul(exp(mul(mul(a, a), constant<P>(-0.5))), div(numerator, denominator));
      });
    } else {
      return detail::gated(x, 39.0, [](const P& a) ATTN_LAMBDA_INLINE {
        return detail::map_lanes(a, [](double t) { return 0.5 * std::erfc(t * 0.70710678118654752440); });
      });
    }
  }
};

namespace detail {
/// x * (1 + tanh(slope / 2 * (x + 0.044715 x^3))) / 2.
template <class P>
ATTN_ALWAYS_INLINE P gelu_by_tanh(const P& x, double slope) {
  return gated(x, 40.0, [slope](const P& a) ATTN_LAMBDA_INLINE {
    const P cubic = multiply_add(mul(a, a), constant<P>(0.044715), constant<P>(1));
    const P exponent = mul(mul(a, cubic), constant<P>(slope));
    const P bounded = min(exponent, constant<P>(is_float<P> ? 87 : 708));
    return div(constant<P>(1), add(constant<P>(1), exp(bounded)));
  });
}
}  // namespace detail

/// The approximation x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 of Gelu.
struct GeluTanh {
  template <class P>
  ATTN_ALWAYS_INLINE P operator()(const P& x) const {
    return detail::gelu_by_tanh(x, 1.5957691216057307118);  // 2 sqrt(2 / pi)
  }
};

/// GeluTanh with 0.79788456 in the place of sqrt(2 / pi), as BLOOM computes it.
struct GeluBloom {
  template <class P>
  ATTN_ALWAYS_INLINE P operator()(const P& x) const {
    return detail::gelu_by_tanh(x, 2 * 0.79788456);
  }
};

/// x / (1 + e^-x), also called swish.
struct Silu {
  template <class P>
  ATTN_ALWAYS_INLINE P operator()(const P& x) const {
    using detail::constant;
    return detail::gated(x, detail::is_float<P> ? 87 : 708, [](const P& a) ATTN_LAMBDA_INLINE {
      return div(constant<P>(1), add(constant<P>(1), exp(a)));
    });
  }
};

/// 1 / (1 + e^-x).
struct Sigmoid {
  template <class P>
  ATTN_ALWAYS_INLINE P operator()(const P& x) const {
    using detail::constant;
    const P negative = min(sub(constant<P>(0), x), constant<P>(detail::is_float<P> ? 87 : 708));
    return div(constant<P>(1), add(constant<P>(1), exp(negative)));
  }
};

/// tanh(x). Float: x times a rational function of x^2 with positive coefficients, fitted to relative error
/// 1e-9 on |x| <= 9.02, where tanh rounds to 1.
struct Tanh {
  template <class P>
  ATTN_ALWAYS_INLINE P operator()(const P& x) const {
    using detail::constant;
    if constexpr (detail::is_float<P>) {
      const P bounded = max(min(x, constant<P>(9.02)), constant<P>(-9.02));
      const P y = mul(bounded, bounded);
      const P numerator = detail::polynomial(y, constant<P>(5.0759090868432286e-8), 3.158824405645698e-5,
                                             0.0040084735909091128, 0.13785336894024789, 1.0);
      const P denominator =
          detail::polynomial(y, constant<P>(7.3737772353181879e-10), 1.6174193020692541e-6,
                             0.00042073418225668797, 0.027737386327628328, 0.47118669309263282, 1.0);
      const P quotient = mul(bounded, div(numerator, denominator));
      return max(min(quotient, constant<P>(1)), constant<P>(-1));
    } else {
      return detail::map_lanes(x, [](double t) { return std::tanh(t); });
    }
  }
};

}  // namespace kernels
ATTN_NAMESPACE_END
