// attn/kernels/convert.hpp - runs of elements from one type to another, vectorised.
#pragma once
#include <bit>

#include "attn/kernels/packet.hpp"

#if defined(__F16C__) && !defined(EIGEN_DONT_VECTORIZE)
#include <immintrin.h>
#endif

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// to[i] = from[i]; to a narrower type, rounded to the nearest, ties to even.
template <class From, class To>
ATTN_ALWAYS_INLINE void convert(const From* from, Index count, To* to) {
  for (Index i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
}

/// A bfloat16 is the upper half of a float.
inline void convert(const Eigen::bfloat16* ATTN_RESTRICT from, Index count, float* ATTN_RESTRICT to) {
  for (Index i = 0; i < count; ++i) to[i] = std::bit_cast<float>(std::uint32_t{from[i].value} << 16);
}
/// NaN stays NaN: rounding could carry one whose low bits alone are set into infinity.
inline void convert(const float* ATTN_RESTRICT from, Index count, Eigen::bfloat16* ATTN_RESTRICT to) {
  for (Index i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    const std::uint32_t nan = 0x7FC0 | ((bits >> 16) & 0x8000);
    to[i].value = static_cast<std::uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded);
  }
}

#if defined(__F16C__) && !defined(EIGEN_DONT_VECTORIZE)
inline void convert(const Eigen::half* from, Index count, float* to) {
  Index i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
inline void convert(const float* from, Index count, Eigen::half* to) {
  Index i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < count; ++i) to[i] = static_cast<Eigen::half>(from[i]);
}
#endif

}  // namespace kernels
ATTN_NAMESPACE_END
