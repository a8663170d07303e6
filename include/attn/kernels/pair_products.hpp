// attn/kernels/pair_products.hpp - PairProducts: Q K^T and P V of bfloat16, two terms of a sum at a time.
//
// As LaneProducts, but a lane holds a pair of elements: of a query for Q K^T, of the weights of two keys for
// P V. Keys enter as they lie; queries are not scaled, for that would round them; weights are rounded.
#pragma once
#include "attn/kernels/lane_products.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// As score_block(), of `pairs` pairs; keys lie key_step bytes apart. c[j] = start + factor * sum.
template <int Packets, int Keys, int Lanes>
ATTN_NOINLINE void score_pairs(Index pairs, const float* ATTN_RESTRICT query, const std::byte* keys,
                               Index key_step, float factor, const float* ATTN_RESTRICT start,
                               float* ATTN_RESTRICT scores, float* ATTN_RESTRICT highest) {
  constexpr int width = packet_width<float>;
  RegisterBlock<float, Packets, Keys> block;
  Packet<float> values[as_size(Packets)];
  unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE { values[m] = broadcast(0.0F); });
  block.fill(values);
  for (Index p = 0; p < pairs; ++p) {
    block.step_pairs(query, keys, key_step);
    query += Lanes;
    keys += sizeof(float);
  }
  unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE { values[m] = load(start + m * width); });
  block.scale_onto(broadcast(factor), values);
  store_scores<Lanes>(block, scores, highest);
}

/// Turns the weights of `count` keys into those of pairs of keys, in place; returns the number of pairs. With
/// `joins_previous` the first key is the second of its pair, and the key before it has no weight.
template <int Packets, int Lanes>
ATTN_NOINLINE Index pair_weights(float* weights, Index count, bool joins_previous) {
  constexpr int width = packet_width<float>;
  const float* from = weights;
  float* to = weights;
  const auto pair = [&](bool has_first, bool has_second) ATTN_LAMBDA_INLINE {
    const Index second = has_first ? Lanes : 0;
    unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
      const Packet<float> none = broadcast(0.0F);
      const Packet<float> a = has_first ? load(from + m * width) : none;
      const Packet<float> b = has_second ? load(from + second + m * width) : none;
      store(to + m * width, round_to_pairs(a, b));
    });
    from += (has_first ? Lanes : 0) + (has_second ? Lanes : 0);
    to += Lanes;
  };
  Index k = 0;
  if (joins_previous && count > 0) {
    pair(false, true);
    k = 1;
  }
  for (; k + 2 <= count; k += 2) pair(true, true);
  if (k < count) pair(true, false);
  return (to - weights) / Lanes;
}

/// to[pair of elements][lane] = queries of `packets` packets, an element behind the last one 0; `to` has room
/// for dim + 1 rows of lanes.
inline void pack_query_pairs(const float* const* queries, Index dim, int packets, float* to) {
  constexpr int width = packet_width<float>;
  constexpr Index lanes = ForwardShape<float>::lanes;
  for (int m = 0; m < packets; ++m) {
    float* const lane = to + m * width;
    rows_to_lanes(queries + m * width, dim, 1.0F, lane, lanes);
    if (dim % 2 == 1) store(lane + dim * lanes, broadcast(0.0F));
    for (Index p = 0; p < (dim + 1) / 2; ++p)
      store(lane + p * lanes, round_to_pairs(load(lane + 2 * p * lanes), load(lane + (2 * p + 1) * lanes)));
  }
}

/// The products of one lane group; members as in LaneProducts.
class PairProducts : public LaneOutput<float> {
  using Shape = ForwardShape<float>;
  static constexpr int width = Shape::width;
  static constexpr int lanes = Shape::lanes;

 public:
  using A = float;
  /// Rows of pairs, `step` bytes apart.
  struct Keys {
    const std::byte* data;
    Index step;
    Keys from(Index count) const { return {data + count * step, step}; }
  };
  using Values = Strips<float>;  ///< of pairs of keys
  static constexpr Index keys_together = Shape::broadcasts;

  static Index scratch_size(Index head_dim, Index value_dim) { return lanes * (head_dim + 1 + value_dim); }
  void place(float* scratch, Index head_dim, Index value_dim) {
    query_ = scratch;
    head_dim_ = head_dim;
    place_output(query_ + lanes * (head_dim + 1), value_dim);
  }

  void begin(const float* const* queries, Index, int packets, float factor) {
    factor_ = factor;
    pack_query_pairs(queries, head_dim_, packets, query_);
    clear_output();
  }

  static Keys keys(const RowSource<float>& rows, Range range, float* scratch) {
    return keys_of(pairs(rows.dim()), rows, range, scratch);
  }
  /// The keys as rows of `row_pairs` pairs: where they lie, or copied and filled up with zeros.
  static Keys keys_of(Index row_pairs, const RowSource<float>& rows, Range range, float* scratch) {
    const TileRows<Eigen::bfloat16> stored = rows.bfloat16_tile(range.begin, range.size());
    const Index dim = rows.dim();
    if (stored.data != nullptr && dim == 2 * row_pairs)
      return {reinterpret_cast<const std::byte*>(stored.data),
              stored.stride * static_cast<Index>(sizeof(Eigen::bfloat16))};
    for (Index j = 0; j < range.size(); ++j) {
      float* const to = scratch + j * row_pairs;
      const float* const from = rows.tile(range.begin + j, 1, to).data;
      for (Index p = 0; p < pairs(dim); ++p)
        to[p] = pair_of(from[2 * p], 2 * p + 1 < dim ? from[2 * p + 1] : 0.0F);
      std::fill(to + pairs(dim), to + row_pairs, 0.0F);
    }
    return {reinterpret_cast<const std::byte*>(scratch), row_pairs * static_cast<Index>(sizeof(float))};
  }
  static Values values(const RowSource<float>& rows, Range range, bool, float* scratch, float* strips) {
    const TileRows<Eigen::bfloat16> stored = rows.bfloat16_tile(range.begin, range.size());
    if (stored.data != nullptr)
      return cut_into_pairs<Shape::broadcasts>(stored, range.size(), rows.dim(), strips);
    return cut_into_pairs<Shape::broadcasts>(rows.tile(range.begin, range.size(), scratch), range.size(),
                                             rows.dim(), strips);
  }

  template <int Count, class Between>
  void score(int first, const Keys& keys, Index count, const float* start, float* scores, float* highest,
             Between between) const {
    const int lane = first * width;
    for_key_blocks<float, Count>(count, [&](Index k, auto n) ATTN_LAMBDA_INLINE {
      between();
      score_pairs<Count, n, lanes>(pairs(head_dim_), query_ + lane, keys.data + k * keys.step, keys.step,
                                   factor_, start + lane, scores + k * lanes + lane, highest + lane);
    });
  }

  /// The weights are overwritten.
  template <int Count>
  void add_values(int first, float* weights, const Values& values, Index key, Index count, bool skip_zeros) {
    const int lane = first * width;
    const Index paired = pair_weights<Count, lanes>(weights + lane, count, key % 2 == 1);
    add_strips<Count, true>(lane, weights, values, key / 2, paired, skip_zeros);
  }

 private:
  static Index pairs(Index elements) { return (elements + 1) / 2; }

  float* query_ = nullptr;  // [pairs of head_dim][lanes]; scratch for one row more than head_dim
  Index head_dim_ = 0;
  float factor_ = 1;
};

}  // namespace kernels
ATTN_NAMESPACE_END
