// attn/masks/per_key.hpp - per_key: a [batch, kv_len] tensor of flags or biases as the masks take it.
#pragma once
#include "attn/core/tensor_traits.hpp"

ATTN_NAMESPACE_BEGIN

/// The [batch, 1, 1, kv_len] view of `x` [batch, kv_len], one value per key, whatever the head and the query:
/// KeepMask(per_key(keep)), DropMask(per_key(padding)), AdditiveBias(per_key(bias)). Without it a tensor of
/// rank 2 is [q_len, kv_len], one value per query and key. Borrows x.
template <TensorLike X>
  requires(rank_of<const X> == 2)
auto per_key(const X& x) {
  const TensorView<const ElementOf<const X>, 2> values = as_view(x);
  return TensorView<const ElementOf<const X>, 4>(values.data(), {values.extent(0), 1, 1, values.extent(1)},
                                                 {values.stride(0), 0, 0, values.stride(1)});
}

ATTN_NAMESPACE_END
