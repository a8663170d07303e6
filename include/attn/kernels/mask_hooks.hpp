// attn/kernels/mask_hooks.hpp - MaskHooks: a mask behind function pointers, so that each kernel is compiled
// once and a mask adds only its own loops; and the packet forms of the tensor masks.
#pragma once
#include <cstring>

#include "attn/kernels/packet.hpp"
#include "attn/masks/score_block.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

namespace detail {

/// block += bias, for floats stored [query][key] with adjacent keys: square blocks are transposed in
/// registers.
template <class Block, class A>
void add_transposed(const Block& block, const A* bias, Index query_stride) {
  constexpr int width = packet_width<A>;
  Position j = 0;
  for (; j + width <= block.keys; j += width) {
    Position i = 0;
    for (; i + width <= block.lanes; i += width) {
      PacketSquare<A> square;
      unroll<width>([&](auto r) ATTN_LAMBDA_INLINE { square[r] = load(bias + (i + r) * query_stride + j); });
      square.transpose();
      unroll<width>([&](auto r) ATTN_LAMBDA_INLINE {
        A* const s = block.row(j + r) + i;
        store(s, add(load(s), square[r]));
      });
    }
    for (; i < block.lanes; ++i)
      for (Position r = 0; r < width; ++r) block.row(j + r)[i] += bias[i * query_stride + j + r];
  }
  for (; j < block.keys; ++j)
    for (Position i = 0; i < block.lanes; ++i) block.row(j)[i] += bias[i * query_stride + j];
}

/// Scores whose byte is zero (`keep_nonzero`) or not zero become masked; bytes stored [query][key], adjacent
/// keys.
template <bool KeepNonzero, class Block>
void filter_transposed(const Block& block, const void* bytes, Index query_stride) {
  using A = typename Block::Scalar;
  constexpr int width = packet_width<A>;
  const Packet<A> masked = broadcast(masked_score<A>);
  const auto* const first = static_cast<const unsigned char*>(bytes);
  alignas(64) unsigned char column[8][as_size(Block::max_lanes + 8)];
  for (Position j = 0; j < block.keys; j += 8) {
    const Position keys = std::min<Position>(8, block.keys - j);
    for (Position i = 0; i < block.lanes; i += 8) {
      std::uint64_t rows[8] = {};
      const auto* const corner = first + i * query_stride + j;
      if (keys == 8 && i + 8 <= block.lanes)
        unroll<8>([&](auto r) ATTN_LAMBDA_INLINE { std::memcpy(&rows[r], corner + r * query_stride, 8); });
      else
        for (Position r = 0; r < std::min<Position>(8, block.lanes - i); ++r)
          std::memcpy(&rows[r], corner + r * query_stride, static_cast<std::size_t>(keys));
      transpose_bytes(rows);
      for (Position r = 0; r < keys; ++r) std::memcpy(&column[r][i], &rows[r], 8);
    }
    for (Position r = 0; r < keys; ++r) {
      A* const s = block.row(j + r);
      const auto* const flags = reinterpret_cast<const std::int8_t*>(column[r]);
      Position i = 0;
      for (; i + width <= block.lanes; i += width) {
        const Packet<A> is_zero = equal(load_as<A>(flags + i), broadcast(A(0)));
        const Packet<A> score = load(s + i);
        store(s + i, KeepNonzero ? select(is_zero, masked, score) : select(is_zero, score, masked));
      }
      for (; i < block.lanes; ++i) s[i] = (flags[i] != 0) == KeepNonzero ? s[i] : masked_score<A>;
    }
  }
}

/// The tensor of a mask has adjacent keys, so that the packet forms above apply.
template <class View>
bool has_adjacent_keys(const View& view) {
  return view.stride(3) == 1;
}
template <class View>
auto* block_origin(const View& view, const auto& block) {
  return view.data() + block.batch * view.stride(0) + block.head * view.stride(1) + block.q * view.stride(2) +
         block.k * view.stride(3);
}

}  // namespace detail

/// change_scores() of the mask, with packets where the mask is a tensor.
template <class Block, Mask M>
void apply_score_changes(const M& mask, const Block& block, const Problem& p) {
  if constexpr (requires { mask.parts(); }) {
    std::apply([&](const auto&... part) { (apply_score_changes(part, block, p), ...); }, mask.parts());
  } else {
    if constexpr (requires { mask.bias_values(); }) {
      const auto& bias = mask.bias_values();
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*bias.data())>, typename Block::Scalar>) {
        if (detail::has_adjacent_keys(bias))
          return detail::add_transposed(block, detail::block_origin(bias, block), bias.stride(2));
      }
    }
    change_scores(mask, block, p);
  }
}

/// filter_scores() of the mask, with packets where the mask is a tensor of bytes.
template <class Block, Mask M>
void apply_filters(const M& mask, const Block& block, const Problem& p) {
  if constexpr (requires { mask.parts(); }) {
    std::apply([&](const auto&... part) { (apply_filters(part, block, p), ...); }, mask.parts());
  } else {
    if constexpr (requires { mask.keep_values(); }) {
      const auto& keep = mask.keep_values();
      if (sizeof(*keep.data()) == 1 && detail::has_adjacent_keys(keep))
        return detail::filter_transposed<true>(block, detail::block_origin(keep, block), keep.stride(2));
    } else if constexpr (requires { mask.drop_values(); }) {
      const auto& drop = mask.drop_values();
      if (sizeof(*drop.data()) == 1 && detail::has_adjacent_keys(drop))
        return detail::filter_transposed<false>(block, detail::block_origin(drop, block), drop.stride(2));
    }
    filter_scores(mask, block, p);
  }
}

/// A borrowed mask and its problem. Stages that the mask does not have are null.
template <class A, int Lanes>
struct MaskHooks {
  using Block = ScoreBlock<A, Lanes>;

  const void* mask = nullptr;
  const Problem* problem = nullptr;
  Range (*key_range_of)(const void*, const Tile&, const Problem&) = nullptr;
  Coverage (*coverage_of)(const void*, const Tile&, const Problem&) = nullptr;
  void (*scores)(const void*, const Block&, const Problem&) = nullptr;
  void (*filter)(const void*, const Block&, const Problem&) = nullptr;
  void (*weights)(const void*, const Block&, const Problem&) = nullptr;

  template <Mask M>
  MaskHooks(const M& m, const Problem& p) : mask(&m), problem(&p) {
    if constexpr (!std::is_same_v<M, NoMask>) bind<M>();
  }
  Range key_range(const Tile& t) const {
    return key_range_of ? key_range_of(mask, t, *problem) : Range{0, problem->kv_len};
  }
  Coverage coverage(const Tile& t) const { return filter ? coverage_of(mask, t, *problem) : Coverage::full; }

 private:
  template <class M>
  void bind() {
    key_range_of = [](const void* x, const Tile& t, const Problem& q) {
      return mask_key_range(*static_cast<const M*>(x), t, q);
    };
    coverage_of = [](const void* x, const Tile& t, const Problem& q) {
      return mask_coverage(*static_cast<const M*>(x), t, q);
    };
    if constexpr (ChangesScores<M>)
      scores = [](const void* x, const Block& b, const Problem& q) {
        apply_score_changes(*static_cast<const M*>(x), b, q);
      };
    if constexpr (FiltersPairs<M>)
      filter = [](const void* x, const Block& b, const Problem& q) {
        apply_filters(*static_cast<const M*>(x), b, q);
      };
    if constexpr (ChangesWeights<M>)
      weights = [](const void* x, const Block& b, const Problem& q) {
        change_weights(*static_cast<const M*>(x), b, q);
      };
  }
};

}  // namespace kernels
ATTN_NAMESPACE_END
