// attn/kernels/forward_shape.hpp - ForwardShape: the sizes of the tiling.
#pragma once
#include "attn/kernels/micro.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Sizes of the tiling. The score tile of a lane group (tile_keys x lanes) stays in the first-level cache.
template <class A>
struct ForwardShape : BlockShape<A> {
  using BlockShape<A>::width;
  using BlockShape<A>::packets;
  using BlockShape<A>::broadcasts;
  using BlockShape<A>::lanes;
  static constexpr int groups = 8;  ///< lane groups that share one pass over a key tile, at most
  static constexpr Index tile_keys = 128;
  static constexpr Index chunk_keys = 32;
};

}  // namespace kernels
ATTN_NAMESPACE_END
