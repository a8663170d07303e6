// attn/kernels/rows.hpp - where a kernel's rows come from and go to: strided
// sources, and the change between rows in memory and vector lanes.
#pragma once
#include "attn/core/tensor_view.hpp"
#include "attn/kernels/micro.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Consecutive rows that a kernel can read: contiguous elements of the accumulator type, `stride` apart.
template <class A>
struct TileRows {
  const A* data;
  Index stride;
};

/// out[i] = f(in[i]) over contiguous memory, in place or not. A pointer, so that the loops around it are
/// compiled once for all f.
template <class A>
using RunFunction = void (*)(const A* in, A* out, Index count);

/// to[c * to_stride] = from[c * from_stride], converted.
template <class From, class To>
void copy_row(const From* from, Index from_stride, Index dim, To* to, Index to_stride) {
  if (from_stride == 1 && to_stride == 1) {
    for (Index c = 0; c < dim; ++c) to[c] = static_cast<To>(from[c]);
  } else {
    for (Index c = 0; c < dim; ++c) to[c * to_stride] = static_cast<To>(from[c * from_stride]);
  }
}

/// Query, key or value rows of one head as the caller stores them: any element type, any strides.
template <class E>
struct RowSource {
  using Scalar = Accumulator<E>;
  const E* data = nullptr;
  Index row_stride = 0;
  Index dim_stride = 1;
  Index dim = 0;

  RowSource() = default;
  RowSource(const TensorView<const E, 4>& x, Index batch, Index head)
      : data(x.data() + batch * x.stride(0) + head * x.stride(1)),
        row_stride(x.stride(2)),
        dim_stride(x.stride(3)),
        dim(x.extent(3)) {}

  const E* row(Index i) const { return data + i * row_stride; }
  /// Rows can be read where they lie.
  bool is_direct() const { return std::is_same_v<E, Scalar> && (dim_stride == 1 || dim == 1); }
  /// Elements of scratch that tile() needs for `count` rows.
  Index scratch_size(Index count) const { return is_direct() ? 0 : count * dim; }

  /// Rows [first, first + count), converted into `scratch` where they cannot be read in place.
  TileRows<Scalar> tile(Index first, Index count, Scalar* scratch) const {
    if constexpr (std::is_same_v<E, Scalar>) {
      if (is_direct()) return {row(first), row_stride};
    }
    for (Index i = 0; i < count; ++i) copy_row(row(first + i), dim_stride, dim, scratch + i * dim, 1);
    return {scratch, dim};
  }
};

/// Value rows cut into strips of a few columns, [strip][row][column]: what the register block reads for P V
/// then lies in one run, whatever the stride of the rows. (Read in place, a strip touches one cache line in
/// each row, and rows a power of two apart compete for the same few sets of the first-level cache.)
template <class A>
struct Strips {
  const A* data;
  Index rows;
  /// The strip that begins at `column`.
  const A* strip(Index column) const { return data + column * rows; }
};

/// Cuts rows into strips of `Columns`, the last ones of Columns / 2, ... 1, in the order of for_blocks.
template <int Columns, class A>
ATTN_NOINLINE Strips<A> cut_into_strips(const TileRows<A>& rows, Index count, Index dim, A* strips) {
  constexpr int together =
      64 / static_cast<int>(sizeof(A)) / Columns;  // strips that share a cache line of the rows
  const auto cut = [&](Index column, auto width, auto n) ATTN_LAMBDA_INLINE {
    for (Index i = 0; i < count; ++i) {
      const A* const from = rows.data + i * rows.stride + column;
      unroll<n>([&](auto s) ATTN_LAMBDA_INLINE {
        A* const to = strips + (column + s * width) * count + i * width;
        for (int c = 0; c < width; ++c) to[c] = from[s * width + c];
      });
    }
  };
  Index column = 0;
  constexpr std::integral_constant<int, Columns> whole;
  for (; column + together * Columns <= dim; column += together * Columns)
    cut(column, whole, std::integral_constant<int, together>{});
  for_blocks<Columns>(
      dim, [&](Index c, auto width) ATTN_LAMBDA_INLINE { cut(c, width, std::integral_constant<int, 1>{}); },
      column);
  return {strips, count};
}

/// No NaN and no infinity among `size` elements.
template <class A>
bool all_finite(const A* data, Index size) {
  constexpr int width = packet_width<A>;
  Packet<A> poison = broadcast(A(0));  // 0 * x is 0 for finite x, else NaN
  Index i = 0;
  for (; i + width <= size; i += width) poison = multiply_add(load(data + i), broadcast(A(0)), poison);
  A rest = sum_of_lanes(poison);
  for (; i < size; ++i) rest += data[i] * A(0);
  return rest == A(0);
}

/// Turns packet_width rows of contiguous elements into one packet column: to[c * lanes + i] = factor *
/// rows[i][c].
template <class A>
void rows_to_lanes(const A* const* rows, Index dim, A factor, A* to, Index lanes) {
  constexpr int width = packet_width<A>;
  const Packet<A> scale = broadcast(factor);
  Index c = 0;
  for (; c + width <= dim; c += width) {
    PacketSquare<A> square;
    unroll<width>([&](auto i) ATTN_LAMBDA_INLINE { square[i] = mul(scale, load(rows[i] + c)); });
    square.transpose();
    unroll<width>([&](auto i) ATTN_LAMBDA_INLINE { store(to + (c + i) * lanes, square[i]); });
  }
  for (; c < dim; ++c)
    for (int i = 0; i < width; ++i) to[c * lanes + i] = factor * rows[i][c];
}

/// The way back: rows[i][c] = factors[i] * from[c * lanes + i].
template <class A>
void lanes_to_rows(const A* from, Index lanes, const A* factors, Index dim, A* const* rows) {
  constexpr int width = packet_width<A>;
  const Packet<A> scale = load(factors);
  Index c = 0;
  for (; c + width <= dim; c += width) {
    PacketSquare<A> square;
    unroll<width>([&](auto i) ATTN_LAMBDA_INLINE { square[i] = mul(scale, load(from + (c + i) * lanes)); });
    square.transpose();
    unroll<width>([&](auto i) ATTN_LAMBDA_INLINE { store(rows[i] + c, square[i]); });
  }
  for (; c < dim; ++c)
    for (int i = 0; i < width; ++i) rows[i][c] = factors[i] * from[c * lanes + i];
}

}  // namespace kernels
ATTN_NAMESPACE_END
