// attn/core/types.hpp - index and position types, the element concept, and what each element accumulates in.
#pragma once
#include <Eigen/Core>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "attn/core/config.hpp"
#include "attn/core/element.hpp"

ATTN_NAMESPACE_BEGIN

/// Every extent, stride and offset; signed, 64 bits.
using Index = Eigen::Index;
static_assert(sizeof(Index) == 8, "attn: offsets of large tensors need a 64-bit Eigen::Index");

/// Query and key numbers inside a score block: 32 bits, so that a loop over query lanes vectorises at full
/// width.
using Position = std::int32_t;

/// A signed count as the size of an array.
constexpr std::size_t as_size(Index count) { return static_cast<std::size_t>(count); }

namespace detail {
/// The smallest multiple of `unit` that is not below `count`.
constexpr Index round_up(Index count, Index unit) { return (count + unit - 1) / unit * unit; }

template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
}  // namespace detail

/// What sums over elements of type T are computed in: double for double, else float.
template <Element T>
using Accumulator = typename detail::AccumulatorOf<T>::type;

/// The matrix type that functions return: rows are tokens, row-major.
template <Element T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Half-open range of indices.
struct Range {
  Index begin = 0;
  Index end = 0;
  constexpr Index size() const { return end > begin ? end - begin : 0; }
  constexpr bool empty() const { return end <= begin; }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

/// The indices in both ranges.
constexpr Range intersect(Range a, Range b) {
  return {a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
}

ATTN_NAMESPACE_END
