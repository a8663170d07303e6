// attn/kernels/packet.hpp - vector registers: the only header that touches Eigen's internal packets.
//
// Eigen gives one set of names for SSE, AVX, AVX-512, NEON and plain scalars (width 1); kernels are written
// once with the names below. Works with Eigen 3.4 and 5.
#pragma once
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "attn/core/types.hpp"

#if (defined(__AVX512F__) || (defined(__AVX2__) && defined(__F16C__))) && !defined(EIGEN_DONT_VECTORIZE)
#include <immintrin.h>
#endif

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// The widest vector register of T on this instruction set; T itself where there is none.
template <class T>
using Packet = typename Eigen::internal::packet_traits<T>::type;

/// Elements of a Packet<T>.
template <class T>
inline constexpr int packet_width = Eigen::internal::unpacket_traits<Packet<T>>::size;

/// Vector registers that the instruction set has.
inline constexpr int vector_registers = EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS;

/// Multiply-add is one instruction.
#if defined(EIGEN_VECTORIZE_FMA) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
inline constexpr bool has_fma = true;
#else
inline constexpr bool has_fma = false;
#endif

/// A product of bfloat16 with bfloat16, added to a float, is half an instruction: see dot_pairs().
inline constexpr bool has_bfloat16_dots = ATTN_HAS_BFLOAT16_DOTS;
/// A unit multiplies matrices of bfloat16: see kernels/matrix_unit.hpp.
inline constexpr bool has_matrix_unit = ATTN_HAS_MATRIX_UNIT;

namespace detail {
template <class F, int... Steps>
ATTN_ALWAYS_INLINE constexpr void unroll_sequence(F& f, std::integer_sequence<int, Steps...>) {
  (f(std::integral_constant<int, Steps>{}), ...);
}
}  // namespace detail

/// f(0), f(1), ... f(N - 1) with compile-time arguments, unrolled.
template <int N, class F>
ATTN_ALWAYS_INLINE constexpr void unroll(F f) {
  detail::unroll_sequence(f, std::make_integer_sequence<int, N>{});
}

/// f(std::integral_constant<int, count>) for a run-time count in [1, Max].
template <int Max, class F>
ATTN_ALWAYS_INLINE void with_constant(int count, F f) {
  if constexpr (Max > 1) {
    if (count < Max) return with_constant<Max - 1>(count, f);
  }
  f(std::integral_constant<int, Max>{});
}

template <class P>
using ScalarOf = typename Eigen::internal::unpacket_traits<P>::type;

template <class T>
ATTN_ALWAYS_INLINE Packet<T> load(const T* p) {
  return Eigen::internal::ploadu<Packet<T>>(p);
}
/// A packet of A from elements of a narrower type.
template <class A, class S>
ATTN_ALWAYS_INLINE Packet<A> load_as(const S* p) {
  if constexpr (std::is_same_v<S, A>) {
    return load(p);
#if defined(__AVX512F__) && !defined(EIGEN_DONT_VECTORIZE)
  } else if constexpr (std::is_same_v<S, Eigen::bfloat16>) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  } else if constexpr (std::is_same_v<S, Eigen::half>) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  } else if constexpr (std::is_same_v<S, std::int8_t> && std::is_same_v<A, float>) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__) && defined(__F16C__) && !defined(EIGEN_DONT_VECTORIZE)
  } else if constexpr (std::is_same_v<S, Eigen::bfloat16>) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  } else if constexpr (std::is_same_v<S, Eigen::half>) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  } else if constexpr (std::is_same_v<S, std::int8_t> && std::is_same_v<A, float>) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#endif
  } else {
    A values[packet_width<A>];
    for (int i = 0; i < packet_width<A>; ++i) values[i] = static_cast<A>(p[i]);
    return load(values);
  }
}
/// The first `count` elements, fewer than a packet, as A; zeros behind them.
template <class A, class S>
ATTN_ALWAYS_INLINE Packet<A> load_part(const S* p, Index count) {
#if defined(__AVX512F__) && !defined(EIGEN_DONT_VECTORIZE)
  if constexpr (std::is_same_v<S, float>)
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), p);
#endif
  S elements[as_size(packet_width<A>)] = {};
  std::memcpy(elements, p, as_size(count) * sizeof(S));
  return load_as<A>(elements);
}
/// Stores a packet of floats as half, rounded to the nearest, ties to even.
template <class P>
ATTN_ALWAYS_INLINE void store_as(Eigen::half* p, const P& x) {
#if defined(__AVX512F__) && !defined(EIGEN_DONT_VECTORIZE)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__) && defined(__F16C__) && !defined(EIGEN_DONT_VECTORIZE)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#else
  constexpr int width = Eigen::internal::unpacket_traits<P>::size;
  float values[as_size(width)];
  Eigen::internal::pstoreu(values, x);
  for (int i = 0; i < width; ++i) p[i] = static_cast<Eigen::half>(values[i]);
#endif
}
template <class T>
ATTN_ALWAYS_INLINE Packet<T> load_aligned(const T* p) {
  return Eigen::internal::pload<Packet<T>>(p);
}
template <class P>
ATTN_ALWAYS_INLINE void store(ScalarOf<P>* p, const P& x) {
  Eigen::internal::pstoreu(p, x);
}
template <class P>
ATTN_ALWAYS_INLINE void store_aligned(ScalarOf<P>* p, const P& x) {
  Eigen::internal::pstore(p, x);
}
/// x in every lane.
template <class T>
ATTN_ALWAYS_INLINE Packet<T> broadcast(T x) {
  return Eigen::internal::pset1<Packet<T>>(x);
}
template <class P>
ATTN_ALWAYS_INLINE P add(const P& a, const P& b) {
  return Eigen::internal::padd(a, b);
}
template <class P>
ATTN_ALWAYS_INLINE P sub(const P& a, const P& b) {
  return Eigen::internal::psub(a, b);
}
template <class P>
ATTN_ALWAYS_INLINE P mul(const P& a, const P& b) {
  return Eigen::internal::pmul(a, b);
}
template <class P>
ATTN_ALWAYS_INLINE P div(const P& a, const P& b) {
  return Eigen::internal::pdiv(a, b);
}
/// a * b + c, fused where the instruction set can.
template <class P>
ATTN_ALWAYS_INLINE P multiply_add(const P& a, const P& b, const P& c) {
  return Eigen::internal::pmadd(a, b, c);
}
/// A lane of multiply_add(): what is left of a row must have the bits that it has in a packet, and compilers
/// fuse a * b + c in one loop and not in another.
template <std::floating_point T>
ATTN_ALWAYS_INLINE T multiply_add_lane(T a, T b, T c) {
  if constexpr (has_fma)
    return std::fma(a, b, c);
  else
    return a * b + c;
}
/// The larger one; a NaN in `a` comes through.
template <class P>
ATTN_ALWAYS_INLINE P max(const P& a, const P& b) {
  return Eigen::internal::pmax(a, b);
}
/// The smaller one; a NaN in `a` comes through.
template <class P>
ATTN_ALWAYS_INLINE P min(const P& a, const P& b) {
  return Eigen::internal::pmin(a, b);
}
/// Lane-wise a < b, for select().
template <class P>
ATTN_ALWAYS_INLINE P less(const P& a, const P& b) {
  return Eigen::internal::pcmp_lt(a, b);
}
/// Lane-wise a == b, for select().
template <class P>
ATTN_ALWAYS_INLINE P equal(const P& a, const P& b) {
  return Eigen::internal::pcmp_eq(a, b);
}
/// Lane-wise condition ? a : b; the condition comes from less() or equal().
template <class P>
ATTN_ALWAYS_INLINE P select(const P& condition, const P& a, const P& b) {
  return Eigen::internal::pselect(condition, a, b);
}
template <class P>
ATTN_ALWAYS_INLINE ScalarOf<P> max_of_lanes(const P& a) {
  return Eigen::internal::predux_max(a);
}
template <class P>
ATTN_ALWAYS_INLINE ScalarOf<P> sum_of_lanes(const P& a) {
  return Eigen::internal::predux(a);
}

// Pairs of bfloat16: the bits of a float hold two of them. Kept in packets and arrays of float.

/// The first and second of a pair as bits; `first` and `second` must hold bfloat16, or floats that have the
/// value of one.
inline float pair_of(Eigen::bfloat16 first, Eigen::bfloat16 second) {
  return std::bit_cast<float>(std::uint32_t{first.value} | std::uint32_t{second.value} << 16);
}
inline float pair_of(float first, float second) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(first) >> 16 |
                              (std::bit_cast<std::uint32_t>(second) & 0xFFFF0000));
}
/// to[c] = the pair of first[c] and second[c].
template <int Count, class S>
ATTN_ALWAYS_INLINE void pair_rows(const S* first, const S* second, float* to) {
#if ATTN_HAS_BFLOAT16_DOTS
  if constexpr (Count == 8 && std::is_same_v<S, Eigen::bfloat16>) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(second));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi16(a, b));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 4), _mm_unpackhi_epi16(a, b));
    return;
  }
#endif
  for (int c = 0; c < Count; ++c) to[c] = pair_of(first[c], second[c]);
}
/// The pair that lies at p, in every lane.
inline Packet<float> broadcast_pair(const std::byte* p) {
  float bits;
  std::memcpy(&bits, p, sizeof bits);
  return broadcast(bits);
}
/// The first of each pair, as floats.
template <class P>
ATTN_ALWAYS_INLINE P first_of_pairs(const P& pairs) {
  if constexpr (Eigen::internal::unpacket_traits<P>::size == 1) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(pairs) << 16);
  } else {
    namespace ei = Eigen::internal;
    using Integers = typename ei::unpacket_traits<P>::integer_packet;
    return ei::preinterpret<P>(ei::plogical_shift_left<16>(ei::preinterpret<Integers>(pairs)));
  }
}
/// The second of each pair, as floats.
template <class P>
ATTN_ALWAYS_INLINE P second_of_pairs(const P& pairs) {
  if constexpr (Eigen::internal::unpacket_traits<P>::size == 1) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(pairs) & 0xFFFF0000);
  } else {
    namespace ei = Eigen::internal;
    using Integers = typename ei::unpacket_traits<P>::integer_packet;
    const Integers upper = ei::pset1<Integers>(static_cast<std::int32_t>(0xFFFF0000));
    return ei::preinterpret<P>(ei::pand(ei::preinterpret<Integers>(pairs), upper));
  }
}
/// Pairs of bfloat16 from floats, rounded to the nearest, ties away from zero.
template <class P>
ATTN_ALWAYS_INLINE P round_to_pairs(const P& first, const P& second) {
  if constexpr (Eigen::internal::unpacket_traits<P>::size == 1) {
    const auto rounded = [](float x) {
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + 0x8000);
    };
    return pair_of(rounded(first), rounded(second));
  } else {
    namespace ei = Eigen::internal;
    using Integers = typename ei::unpacket_traits<P>::integer_packet;
    const Integers half = ei::pset1<Integers>(0x8000),
                   upper = ei::pset1<Integers>(static_cast<std::int32_t>(0xFFFF0000));
    const Integers low = ei::plogical_shift_right<16>(ei::padd(ei::preinterpret<Integers>(first), half));
    const Integers high = ei::pand(ei::padd(ei::preinterpret<Integers>(second), half), upper);
    return ei::preinterpret<P>(ei::por(low, high));
  }
}
/// Pairs of the elements of two rows, of bfloat16 or of floats with the value of one.
template <class S>
ATTN_ALWAYS_INLINE Packet<float> load_pairs(const S* first, const S* second) {
#if defined(__AVX512F__) && !defined(EIGEN_DONT_VECTORIZE)
  if constexpr (std::is_same_v<S, Eigen::bfloat16>) {
    const auto words = [](const S* p) ATTN_LAMBDA_INLINE {
      return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    };
    return _mm512_castsi512_ps(_mm512_or_si512(words(first), _mm512_slli_epi32(words(second), 16)));
  }
#endif
  return round_to_pairs(load_as<float>(first), load_as<float>(second));
}
/// sum + the products of the seconds + those of the firsts, each added by itself. Without the instruction
/// (which takes numbers below the smallest normal one as 0) it is two multiply-adds.
template <class P>
ATTN_ALWAYS_INLINE P dot_pairs(const P& a, const P& b, const P& sum) {
#if ATTN_HAS_BFLOAT16_DOTS
  return (P)_mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
#else
  return multiply_add(first_of_pairs(a), first_of_pairs(b),
                      multiply_add(second_of_pairs(a), second_of_pairs(b), sum));
#endif
}

/// Transposes 8 x 8 bytes, one row a word.
inline void transpose_bytes(std::uint64_t (&rows)[8]) {
#if defined(__SSE2__) && !defined(EIGEN_DONT_VECTORIZE)
  const auto pair = [&](int i, int j) ATTN_LAMBDA_INLINE {
    return _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&rows[i])),
                             _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&rows[j])));
  };
  const __m128i a = pair(0, 4), b = pair(1, 5), c = pair(2, 6), d = pair(3, 7);
  const __m128i ac = _mm_unpacklo_epi8(a, c), ac_high = _mm_unpackhi_epi8(a, c);
  const __m128i bd = _mm_unpacklo_epi8(b, d), bd_high = _mm_unpackhi_epi8(b, d);
  const auto put = [&](int i, __m128i two_rows) ATTN_LAMBDA_INLINE {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(&rows[i]), two_rows);
  };
  put(0, _mm_unpacklo_epi8(ac, bd));
  put(2, _mm_unpackhi_epi8(ac, bd));
  put(4, _mm_unpacklo_epi8(ac_high, bd_high));
  put(6, _mm_unpackhi_epi8(ac_high, bd_high));
#else  // three rounds of swapping off-diagonal blocks
  const auto swap = [&](int distance, std::uint64_t low_mask) ATTN_LAMBDA_INLINE {
    const int shift = 8 * distance;
    for (int i = 0; i < 8; ++i) {
      if ((i & distance) != 0) continue;
      const std::uint64_t a = rows[i], b = rows[i + distance];
      rows[i] = (a & low_mask) | ((b & low_mask) << shift);
      rows[i + distance] = ((a >> shift) & low_mask) | (b & ~low_mask);
    }
  };
  swap(4, 0x00000000FFFFFFFF);
  swap(2, 0x0000FFFF0000FFFF);
  swap(1, 0x00FF00FF00FF00FF);
#endif
}

namespace detail {
#if defined(__AVX512F__) && !defined(EIGEN_DONT_VECTORIZE)  // with masks, or g++ 12 warns
/// In every 128 bits: two lanes of a, two of b, as `Order` has them.
template <int Order>
ATTN_ALWAYS_INLINE __m512 shuffle_lanes(const __m512& a, const __m512& b) {
  return _mm512_mask_shuffle_ps(a, 0xffff, a, b, Order);
}
/// Two times 128 bits of a, two of b.
template <int Order>
ATTN_ALWAYS_INLINE __m512 shuffle_quarters(const __m512& a, const __m512& b) {
  return _mm512_mask_shuffle_f32x4(a, 0xffff, a, b, Order);
}
/// The even 128 bits of a and b plus the odd ones.
ATTN_ALWAYS_INLINE __m512 add_neighbours(const __m512& a, const __m512& b) {
  return _mm512_add_ps(shuffle_quarters<0x88>(a, b), shuffle_quarters<0xDD>(a, b));
}
#elif defined(__AVX2__) && !defined(EIGEN_DONT_VECTORIZE)
template <int Order>
ATTN_ALWAYS_INLINE __m256 shuffle_lanes(const __m256& a, const __m256& b) {
  return _mm256_shuffle_ps(a, b, Order);
}
ATTN_ALWAYS_INLINE __m256 add_neighbours(const __m256& a, const __m256& b) {
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
#endif
}  // namespace detail

ATTN_VECTOR_ARGUMENTS_BEGIN
/// One packet per lane, for transposing a square block.
template <class T>
struct PacketSquare {
  Eigen::internal::PacketBlock<Packet<T>, packet_width<T>> rows;
  Packet<T>& operator[](int i) { return rows.packet[i]; }
  /// Lane j of row i becomes lane i of row j.
  ATTN_ALWAYS_INLINE void transpose() {
#if defined(__AVX512F__) && !defined(EIGEN_DONT_VECTORIZE)
    if constexpr (std::is_same_v<T, float>) return transpose_sixteen();
#endif
    if constexpr (packet_width < T >> 1) Eigen::internal::ptranspose(rows);
  }

 private:
#if defined(__AVX512F__) && !defined(EIGEN_DONT_VECTORIZE)
  /// Half the instructions of Eigen's: lanes within 128 bits of four rows, then those 128 bits of four rows.
  ATTN_ALWAYS_INLINE void transpose_sixteen() {
    const auto transpose_four = [](auto of_quarters, Packet<T>& a, Packet<T>& b, Packet<T>& c,
                                   Packet<T>& d) ATTN_LAMBDA_INLINE {
      const auto shuffled = [](auto order, const Packet<T>& x, const Packet<T>& y) ATTN_LAMBDA_INLINE {
        if constexpr (decltype(of_quarters)::value)
          return detail::shuffle_quarters<order>(x, y);
        else
          return detail::shuffle_lanes<order>(x, y);
      };
      constexpr std::integral_constant<int, 0x44> low;
      constexpr std::integral_constant<int, 0xEE> high;
      constexpr std::integral_constant<int, 0x88> even;
      constexpr std::integral_constant<int, 0xDD> odd;
      const Packet<T> ab_low = shuffled(low, a, b), ab_high = shuffled(high, a, b);
      const Packet<T> cd_low = shuffled(low, c, d), cd_high = shuffled(high, c, d);
      a = shuffled(even, ab_low, cd_low);
      b = shuffled(odd, ab_low, cd_low);
      c = shuffled(even, ab_high, cd_high);
      d = shuffled(odd, ab_high, cd_high);
    };
    Packet<T>* const r = rows.packet;
    unroll<4>([&](auto i) ATTN_LAMBDA_INLINE {
      transpose_four(std::false_type{}, r[4 * i], r[4 * i + 1], r[4 * i + 2], r[4 * i + 3]);
    });
    unroll<4>([&](auto i) ATTN_LAMBDA_INLINE {
      transpose_four(std::true_type{}, r[i], r[4 + i], r[8 + i], r[12 + i]);
    });
  }
#endif
};
ATTN_VECTOR_ARGUMENTS_END

/// Lane i < Count is the sum over the lanes of x[i], all of them added in the same order.
template <class A, int Count>
ATTN_ALWAYS_INLINE Packet<A> sums_of_lanes(const Packet<A>* x) {
  constexpr int width = packet_width<A>;
#if defined(__AVX2__) && !defined(EIGEN_DONT_VECTORIZE)
  if constexpr (std::is_same_v<A, float> && Count >= 8) {
    using detail::shuffle_lanes;
    const auto sums_of_128_bits = [&](int first) ATTN_LAMBDA_INLINE {
      const auto pair = [&](int i) ATTN_LAMBDA_INLINE {
        return add(shuffle_lanes<0x44>(x[i], x[i + 1]), shuffle_lanes<0xEE>(x[i], x[i + 1]));
      };
      const Packet<A> ab = pair(first), cd = pair(first + 2);
      return add(shuffle_lanes<0x88>(ab, cd), shuffle_lanes<0xDD>(ab, cd));
    };
    const auto eight = [&](int first) ATTN_LAMBDA_INLINE {
      return detail::add_neighbours(sums_of_128_bits(first), sums_of_128_bits(first + 4));
    };
    const Packet<A> lower = eight(0);
    if constexpr (width == 8)
      return lower;
    else if constexpr (Count == 8)
      return detail::add_neighbours(lower, lower);
    else
      return detail::add_neighbours(lower, eight(8));
  }
#endif
  PacketSquare<A> square;
  unroll<width>([&](auto i) ATTN_LAMBDA_INLINE { square[i] = x[i]; });
  square.transpose();
  Packet<A> sum = square[0];
  unroll<width - 1>([&](auto i) ATTN_LAMBDA_INLINE { sum = add(sum, square[i + 1]); });
  return sum;
}

namespace detail {

/// p * 2^n for the integer n that the rounding constant left in the low bits of `shifted`.
template <class P>
ATTN_ALWAYS_INLINE P scale_by_exponent(const P& p, const P& shifted) {
  namespace ei = Eigen::internal;
  if constexpr (std::is_same_v<ScalarOf<P>, float>) {
    using Integers = typename ei::unpacket_traits<P>::integer_packet;
    const Integers exponent = ei::plogical_shift_left<23>(ei::preinterpret<Integers>(shifted));
    return ei::preinterpret<P>(ei::padd(ei::preinterpret<Integers>(p), exponent));
  } else {
    using Integers ATTN_VECTOR(sizeof(P)) = std::uint64_t;
    return (P)((Integers)p + ((Integers)shifted << 52));  // Eigen 3.4 has no packets of 64-bit integers
  }
}

template <class P>
ATTN_ALWAYS_INLINE P polynomial(const P&, const P& accumulated) {
  return accumulated;
}
/// Horner's rule; coefficients from the highest power down.
template <class P, class... Rest>
ATTN_ALWAYS_INLINE P polynomial(const P& x, const P& accumulated, double next, Rest... rest) {
  return polynomial(x, multiply_add(accumulated, x, broadcast(static_cast<ScalarOf<P>>(next))), rest...);
}

}  // namespace detail

/// 2^x for x <= 16, lane by lane: relative error below 2e-7 (float) or 4e-16 (double), and exact where x is a
/// whole number; 0 below `Lowest`, at least the exponent of the smallest normal number, so that masked scores
/// (-inf) need no branch; NaN stays NaN. x = n + f: 2^f by a polynomial, 2^n by adding n to the exponent
/// bits.
template <int Lowest, class P>
ATTN_ALWAYS_INLINE P exp2_from(const P& x) {
  using T = ScalarOf<P>;
  constexpr bool is_float = std::is_same_v<T, float>;
  const auto constant = [](double c) ATTN_LAMBDA_INLINE { return broadcast(static_cast<T>(c)); };
#if defined(__AVX512DQ__) && !defined(EIGEN_DONT_VECTORIZE)
  if constexpr (is_float && sizeof(P) == 64) {
    const P fraction = _mm512_mask_reduce_ps(x, 0xffff, x, 0x09);  // x - floor(x)
    // The best of degree 5 of those that are 1 at 0, so that a weight relative to its own maximum is 1.
    const P p = detail::polynomial(fraction, constant(0.0018671301082359), 0.0090170302263193,
                                   0.0557999131864057, 0.240164450128034, 0.6931513118069231, 1.0);
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, constant(Lowest), _CMP_NLT_UQ), p, x);
  } else
#endif
#if !ATTN_HAS_VECTORS
      if constexpr (!is_float) {
    const P e = Eigen::internal::pexp(mul(x, constant(0.69314718055994531)));
    return select(less(x, constant(Lowest)), constant(0), e);
  } else
#endif
      if constexpr (Eigen::internal::unpacket_traits<P>::size == 1) {
    return x < T(Lowest) ? T(0) : std::exp2(x);
  } else {
    const P rounder = constant(is_float ? 0x1.8p23 : 0x1.8p52);
    P shifted = add(x, rounder);
    ATTN_OPAQUE(shifted);
    P nearest = sub(shifted, rounder);
    ATTN_OPAQUE(nearest);
    const P f = sub(x, nearest);
    P p;
    if constexpr (is_float)
      p = detail::polynomial(f, constant(0.0013264727132580461), 0.009671512644868712, 0.05550733743470711,
                             0.24022242085261317, 0.6931469775990068, 1.0);
    else  // Taylor: coefficient k is ln(2)^k / k!
      p = detail::polynomial(f, constant(2.5678435993488196e-11), 4.44553827187081e-10, 7.054911620801121e-09,
                             1.0178086009239696e-07, 1.3215486790144305e-06, 1.5252733804059838e-05,
                             1.5403530393381606e-04, 1.3333558146428441e-03, 9.618129107628477e-03,
                             5.5504108664821576e-02, 2.402265069591007e-01, 6.931471805599453e-01, 1.0);
    return Eigen::internal::pandnot(detail::scale_by_exponent(p, shifted), less(x, constant(Lowest)));
  }
}

/// 2^x down to the smallest normal number, 0 below it.
template <class P>
ATTN_ALWAYS_INLINE P exp2(const P& x) {
  return exp2_from < std::is_same_v<ScalarOf<P>, float> ? -126 : -1022 > (x);
}

/// tanh(x), lane by lane: relative error below 3e-7 (float) or 1e-15 (double).
/// Near 0 an odd polynomial (double: a rational function), elsewhere 1 - 2 / (e^2x + 1); coefficients of
/// Cephes' tanhf and tanh (Moshier 1989).
template <class P>
ATTN_ALWAYS_INLINE P tanh(const P& x) {
  using T = ScalarOf<P>;
  const auto constant = [](double c) ATTN_LAMBDA_INLINE { return broadcast(static_cast<T>(c)); };
  const P zero = constant(0), one = constant(1), z = mul(x, x);
  P small;
  if constexpr (std::is_same_v<T, float>) {
    const P p = detail::polynomial(z, constant(-5.70498872745e-3), 2.06390887954e-2, -5.37397155531e-2,
                                   1.33314422036e-1, -3.33332819422e-1);
    small = multiply_add(mul(p, z), x, x);
  } else {
    const P p = detail::polynomial(z, constant(-9.64399179425052238628e-1), -9.92877231001918586564e1,
                                   -1.61468768441708447952e3);
    const P q = detail::polynomial(z, one, 1.12811678491632931402e2, 2.23548839060100448583e3,
                                   4.84406305325125486048e3);
    small = multiply_add(mul(Eigen::internal::pdiv(p, q), z), x, x);
  }
  const P size = select(less(x, zero), sub(zero, x), x);
  const P bounded = select(less(constant(20), size), constant(20), size);
  const P e = exp2(mul(bounded, constant(2 * 1.4426950408889634)));
  const P large = sub(one, Eigen::internal::pdiv(constant(2), add(e, one)));
  return select(less(size, constant(0.625)), small, select(less(x, zero), sub(zero, large), large));
}

}  // namespace kernels
ATTN_NAMESPACE_END
