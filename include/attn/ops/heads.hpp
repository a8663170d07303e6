// attn/ops/heads.hpp - split_heads and concat_heads: the two ways to look at [len, num_heads * dim], without
// a copy.
#pragma once
#include "attn/core/error.hpp"
#include "attn/core/tensor_traits.hpp"

ATTN_NAMESPACE_BEGIN

/// [len, num_heads * dim] seen as [num_heads, len, dim], or [batch, len, num_heads * dim] as
/// [batch, num_heads, len, dim]; writing to the view writes to x.
/// @throws ShapeError if num_heads does not divide the last extent.
template <TensorLike X>
auto split_heads(X&& x, Index num_heads) {
  const auto flat = as_view(x);
  using T = typename decltype(flat)::element_type;
  constexpr int rank = decltype(flat)::rank;
  static_assert(rank == 2 || rank == 3, "attn: split_heads takes [len, dim] or [batch, len, dim]");
  const Index columns = flat.extent(rank - 1), step = flat.stride(rank - 1);
  check(num_heads > 0 && columns % num_heads == 0, "split_heads: the last extent of ", flat,
        " does not divide into num_heads ", num_heads);
  const Index dim = columns / num_heads;
  if constexpr (rank == 2) {
    return TensorView<T, 3>(flat.data(), {num_heads, flat.extent(0), dim},
                            {dim * step, flat.stride(0), step});
  } else {
    return TensorView<T, 4>(flat.data(), {flat.extent(0), num_heads, flat.extent(1), dim},
                            {flat.stride(0), dim * step, flat.stride(1), step});
  }
}

/// The way back: [num_heads, len, dim] seen as [len, num_heads * dim], or [batch, num_heads, len, dim] as
/// [batch, len, num_heads * dim]. Only for memory in which the heads of a token are adjacent, as split_heads
/// gives it.
/// @throws ShapeError if they are not.
template <TensorLike X>
auto concat_heads(X&& x) {
  const auto heads = as_view(x);
  using T = typename decltype(heads)::element_type;
  constexpr int rank = decltype(heads)::rank;
  static_assert(rank == 3 || rank == 4,
                "attn: concat_heads takes [heads, len, dim] or [batch, heads, len, dim]");
  const Index num_heads = heads.extent(rank - 3), len = heads.extent(rank - 2), dim = heads.extent(rank - 1);
  const Index step = heads.stride(rank - 1);
  check(num_heads <= 1 || heads.stride(rank - 3) == dim * step, "concat_heads: the heads of ", heads,
        " are not adjacent within a token: strides ", heads.strides());
  if constexpr (rank == 3) {
    return TensorView<T, 2>(heads.data(), {len, num_heads * dim}, {heads.stride(1), step});
  } else {
    return TensorView<T, 3>(heads.data(), {heads.extent(0), len, num_heads * dim},
                            {heads.stride(0), heads.stride(2), step});
  }
}

ATTN_NAMESPACE_END
