// attn/models/pytorch_masks.hpp - PyTorch's mask arguments as masks of attn: the one place that knows their
// polarity.
//
//   argument of PyTorch                   bool: true means   floating        here
//   F.scaled_dot_product_attention
//     attn_mask                           attend             added to score  pytorch_sdpa_mask
//     is_causal                           key j <= query i                   Causal{} with query_offset = 0
//   nn.MultiheadAttention, nn.Transformer, its stacks and layers
//     attn_mask, src_mask, tgt_mask, ...  do NOT attend      added to score  pytorch_attn_mask
//     key_padding_mask, src_key_..., ...  do NOT attend      added to score  pytorch_key_padding_mask
//     is_causal                           a hint about attn_mask             nothing: pass attn_mask
//
// Several arguments of one call combine by `&`. A query that sees no key gives 0 here; PyTorch's modules give
// NaN.
#pragma once
#include "attn/masks/causal.hpp"
#include "attn/masks/tensor_mask.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// A view with these extents of rank 4 over the axes of x, from the right; axes of extent 1 are repeated.
template <class X>
auto pair_view(const X& x, const Dims<4>& extents, const Dims<4>& strides) {
  const auto from = as_view(x);
  return TensorView<const typename decltype(from)::value_type, 4>(from.data(), extents, strides);
}

template <class View>
auto drop_or_bias(const View& view) {
  if constexpr (std::integral<typename View::value_type>)
    return DropMask(view);
  else
    return AdditiveBias(view);
}

}  // namespace detail

/// attn_mask of F.scaled_dot_product_attention, of rank 2 to 4, aligned with [batch, heads, q_len, kv_len]
/// from the right. Bool: true = attend. Floating: added. Borrows the tensor.
template <TensorLike X>
auto pytorch_sdpa_mask(const X& mask) {
  if constexpr (std::integral<ElementOf<const X>>)
    return KeepMask(mask);
  else
    return AdditiveBias(mask);
}

/// attn_mask of nn.MultiheadAttention and src_mask, tgt_mask, memory_mask of the transformer modules: [q_len,
/// kv_len], or [batch * num_heads, q_len, kv_len] with the heads of a batch entry adjacent. Bool: true = do
/// NOT attend. Floating: added. Borrows the tensor.
/// @throws ShapeError if num_heads does not divide the first extent of rank 3.
template <TensorLike X>
  requires(rank_of<X> == 2 || rank_of<X> == 3)
auto pytorch_attn_mask(const X& mask, Index num_heads) {
  const auto x = as_view(mask);
  if constexpr (rank_of<X> == 2) {
    return detail::drop_or_bias(
        detail::pair_view(mask, {1, 1, x.extent(0), x.extent(1)}, {0, 0, x.stride(0), x.stride(1)}));
  } else {
    check(num_heads > 0 && x.extent(0) % num_heads == 0, "pytorch_attn_mask: the first extent of ", x,
          " is no multiple of num_heads ", num_heads);
    return detail::drop_or_bias(
        detail::pair_view(mask, {x.extent(0) / num_heads, num_heads, x.extent(1), x.extent(2)},
                          {num_heads * x.stride(0), x.stride(0), x.stride(1), x.stride(2)}));
  }
}

/// key_padding_mask of nn.MultiheadAttention and of the transformer modules: [batch, kv_len], or [kv_len]
/// without batch. Bool: true = do NOT attend. Floating: added. Borrows the tensor.
template <TensorLike X>
  requires(rank_of<X> == 1 || rank_of<X> == 2)
auto pytorch_key_padding_mask(const X& mask) {
  const auto x = as_view(mask);
  if constexpr (rank_of<X> == 1)
    return detail::drop_or_bias(detail::pair_view(mask, {1, 1, 1, x.extent(0)}, {0, 0, 0, x.stride(0)}));
  else
    return detail::drop_or_bias(
        detail::pair_view(mask, {x.extent(0), 1, 1, x.extent(1)}, {x.stride(0), 0, 0, x.stride(1)}));
}

ATTN_NAMESPACE_END
