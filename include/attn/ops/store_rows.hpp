// attn/ops/store_rows.hpp - rows changed into what a cache stores: another type, or 8-bit integers with a
// scale.
#pragma once
#include <algorithm>
#include <bit>
#include <limits>

#include "attn/core/stored_rows.hpp"
#include "attn/kernels/convert.hpp"
#include "attn/ops/row_pages.hpp"

ATTN_NAMESPACE_BEGIN
namespace detail {

/// Elements that are converted at a time.
inline constexpr Index convert_block = 64;

/// f(pointer to floats or doubles, begin, count) for blocks of a row of any type and stride.
template <class T, class F>
void for_each_block(const T* row, Index stride, Index size, F f) {
  using A = Accumulator<T>;
  A block[convert_block];
  for (Index begin = 0; begin < size; begin += convert_block) {
    const Index count = std::min(convert_block, size - begin);
    const T* const from = row + begin * stride;
    if (stride == 1)
      kernels::convert(from, count, block);
    else
      for (Index i = 0; i < count; ++i) block[i] = static_cast<A>(from[i * stride]);
    f(static_cast<const A*>(block), begin, count);
  }
}

/// The largest magnitude among the bits of floats; NaN is larger than infinity.
inline std::uint32_t largest_magnitude(const float* x, Index count, std::uint32_t largest) {
  for (Index i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFF);
  return largest;
}

/// to[i] = x[i] / scale, rounded to the nearest integer. In double, where the quotient of two floats that is
/// not halfway between integers does not round to halfway: the error is at most scale / 2, strictly.
inline void divide_and_round(const float* x, Index count, double inverse_scale, std::int8_t* to) {
  for (Index i = 0; i < count; ++i) {
    const double quotient = static_cast<double>(x[i]) * inverse_scale;
    to[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(quotient + (quotient < 0 ? -0.5 : 0.5)));
  }
}

/// Row of `size` elements as integers of [-127, 127]; returns the scale s: |element - s * integer| <= s / 2.
/// A row that holds NaN or an infinity, which integers cannot say, reads as NaN.
template <class T>
float quantize_row(const T* row, Index stride, Index size, std::int8_t* to) {
  const auto for_each_float_block = [&](auto f) {
    for_each_block(row, stride, size, [&]<class A>(const A* block, Index begin, Index count) {
      if constexpr (std::is_same_v<A, float>) {
        f(block, begin, count);
      } else {
        float narrow[convert_block];
        kernels::convert(block, count, narrow);
        f(static_cast<const float*>(narrow), begin, count);
      }
    });
  };
  std::uint32_t largest = 0;
  for_each_float_block(
      [&](const float* x, Index, Index count) { largest = largest_magnitude(x, count, largest); });
  constexpr std::uint32_t infinity = 0x7F800000;
  if (largest >= infinity) {
    std::fill_n(to, size, std::int8_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  // Subnormal scales would be too coarse themselves.
  const float scale = std::max(std::bit_cast<float>(largest) / 127, std::numeric_limits<float>::min());
  const double inverse = 1 / static_cast<double>(scale);
  for_each_float_block(
      [&](const float* x, Index begin, Index count) { divide_and_round(x, count, inverse, to + begin); });
  return scale;
}

/// Writes a row into a cache's storage; `scale` is where 8-bit integers keep theirs.
template <class T, StorageElement S>
void store_row(const T* row, Index stride, Index size, S* to, float* scale) {
  if constexpr (std::is_same_v<S, std::int8_t>) {
    *scale = quantize_row(row, stride, size, to);
  } else {
    if constexpr (std::is_same_v<T, S> || std::is_same_v<T, Accumulator<T>>) {
      if (stride == 1) return kernels::convert(row, size, to);
    }
    for_each_block(row, stride, size, [&](const auto* block, Index begin, Index count) {
      kernels::convert(block, count, to + begin);
    });
  }
}

/// Writes rows [row, row + count) of all heads of x [heads, len, dim] into a page, from its row `first` on.
template <class T, StorageElement S>
void store_rows(const TensorView<const T, 3>& x, Index row, Index count, const RowPages<S>& to, Index page,
                Index first) {
  for (Index head = 0; head < x.extent(0); ++head)
    for (Index i = 0; i < count; ++i)
      store_row(x.data() + head * x.stride(0) + (row + i) * x.stride(1), x.stride(2), x.extent(2),
                to.row(page, head, first + i), to.scale(page, head, first + i));
}

}  // namespace detail
ATTN_NAMESPACE_END
