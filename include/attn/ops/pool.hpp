// attn/ops/pool.hpp - one vector per sequence: the mean over its rows, and scaling to length 1.
#pragma once
#include <cmath>
#include <span>

#include "attn/core/tensor.hpp"
#include "attn/ops/elementwise.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {
/// out = the mean of the rows of x [len, dim]; zeros if there are none.
template <class T>
void mean_of_rows(const TensorView<const T, 2>& x, const TensorView<T, 1>& out) {
  using A = Accumulator<T>;
  const Index len = x.extent(0);
  for (Index c = 0; c < x.extent(1); ++c) {
    A sum = 0;
    for (Index i = 0; i < len; ++i) sum += static_cast<A>(x(i, c));
    out(c) = static_cast<T>(len == 0 ? A(0) : sum / static_cast<A>(len));
  }
}
}  // namespace detail

/// Row b of the result is the mean of x[b][0], ... x[b][lengths[b] - 1]; x [batch, len, dim], of any strides.
/// A sequence of length 0 gives zeros.
/// @throws ShapeError if there is not one length per batch entry, each within [0, len].
template <TensorLike X>
  requires(rank_of<X> == 3)
Matrix<ElementOf<X>> mean_pool(const X& x, std::span<const Index> lengths) {
  using T = ElementOf<X>;
  const auto rows = detail::read_view(x);
  check(static_cast<Index>(lengths.size()) == rows.extent(0), "mean_pool: ", lengths.size(),
        " lengths for x ", rows);
  Matrix<T> means(rows.extent(0), rows.extent(2));
  for (Index b = 0; b < rows.extent(0); ++b) {
    const Index length = lengths[static_cast<std::size_t>(b)];
    check(0 <= length && length <= rows.extent(1), "mean_pool: length ", length, " is not within x ", rows);
    detail::mean_of_rows(rows[b].slice(0, {0, length}), as_view(means)[b]);
  }
  return means;
}

/// Scales every row to Euclidean length 1, in place; a row of zeros stays.
template <WritableTensor X>
  requires(rank_of<X> == 2)
void normalize_rows(X&& x) {
  using T = ElementOf<X>;
  using A = Accumulator<T>;
  const auto rows = as_view(x);
  for (Index i = 0; i < rows.extent(0); ++i) {
    double square = 0;
    for (Index c = 0; c < rows.extent(1); ++c)
      square += static_cast<double>(rows(i, c)) * static_cast<double>(rows(i, c));
    const A factor = square > 0 ? static_cast<A>(1 / std::sqrt(square)) : A(0);
    for (Index c = 0; c < rows.extent(1); ++c)
      rows(i, c) = static_cast<T>(static_cast<A>(rows(i, c)) * factor);
  }
}

ATTN_NAMESPACE_END
