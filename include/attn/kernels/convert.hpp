// attn/kernels/convert.hpp - runs of elements from one type to another, vectorised.
#pragma once
#include <bit>

#include "attn/kernels/packet.hpp"

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

inline void convert(const Eigen::half* from, Index count, float* to) {
  constexpr int width = packet_width<float>;
  Index i = 0;
  for (; i + width <= count; i += width) store(to + i, load_as<float>(from + i));
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
inline void convert(const float* from, Index count, Eigen::half* to) {
  constexpr int width = packet_width<float>;
  Index i = 0;
  for (; i + width <= count; i += width) store_as(to + i, load(from + i));
  for (; i < count; ++i) to[i] = static_cast<Eigen::half>(from[i]);
}

}  // namespace kernels
ATTN_NAMESPACE_END
