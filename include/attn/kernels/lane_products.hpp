// attn/kernels/lane_products.hpp - LaneProducts: Q K^T and P V with one query row per vector lane.
//
// Queries are packed once, transposed and scaled; keys and values are never transposed, they enter as
// broadcasts. Scores, weights and output all lie as [key or column][lane], so that maximum, sum and rescaling
// are lane-wise.
#pragma once
#include "attn/kernels/forward_shape.hpp"
#include "attn/kernels/rows.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Stores a block of scores, rows `Lanes` apart; `highest` takes in the maxima.
template <int Lanes, class A, int Packets, int Keys>
ATTN_ALWAYS_INLINE void store_scores(const RegisterBlock<A, Packets, Keys>& block, A* scores, A* highest) {
  constexpr int width = packet_width<A>;
  block.store(scores, Lanes);
  unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
    Packet<A> top = load(highest + m * width);
    unroll<Keys>([&](auto j) ATTN_LAMBDA_INLINE { top = max(top, block.c[j][m]); });
    store(highest + m * width, top);
  });
}

/// Scores of `Keys` keys, key_stride apart, against `Packets` packets of queries: c[j] = start + sum over dim
/// of query[d] * key j [d]; `highest` takes in the maxima. Rows of queries and scores are `Lanes` apart.
template <class A, int Packets, int Keys, int Lanes>
ATTN_NOINLINE void score_block(Index dim, const A* ATTN_RESTRICT query, const A* keys, Index key_stride,
                               const A* ATTN_RESTRICT start, A* ATTN_RESTRICT scores,
                               A* ATTN_RESTRICT highest) {
  constexpr int width = packet_width<A>;
  RegisterBlock<A, Packets, Keys> block;
  Packet<A> initial[as_size(Packets)];
  unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE { initial[m] = load(start + m * width); });
  block.fill(initial);
  for (Index d = 0; d < dim; ++d) {
    block.step(query, keys, key_stride);
    query += Lanes;
    ++keys;
  }
  store_scores<Lanes>(block, scores, highest);
}

/// f(first, n) for blocks of n keys, a constant, against `Packets` packets of queries. A single packet takes
/// more keys at once: its sums would be too few to hide the latency of the multiply-add.
template <class A, int Packets, class F>
ATTN_ALWAYS_INLINE void for_key_blocks(Index count, F f) {
  for_blocks<(Packets == 1 ? 2 : 1) * ForwardShape<A>::broadcasts>(count, f);
}

/// output[j][lane] += sum over keys of weights[key][lane] * values[key][j], for the `Columns` columns of a
/// strip. Rows of weights and output are `Lanes` apart. Pairs: a key is a pair of them, of bfloat16.
template <class A, int Packets, int Columns, int Lanes, bool Pairs, bool SkipZeros>
ATTN_NOINLINE void add_strip(Index keys, const A* ATTN_RESTRICT weights, const A* values,
                             A* ATTN_RESTRICT output) {
  RegisterBlock<A, Packets, Columns> block;
  block.load(output, Lanes);
  for (Index k = 0; k < keys; ++k) {
    if constexpr (Pairs && SkipZeros)
      block.step_pairs_where_nonzero(weights, reinterpret_cast<const std::byte*>(values), sizeof(A));
    else if constexpr (Pairs)
      block.step_pairs(weights, reinterpret_cast<const std::byte*>(values), sizeof(A));
    else if constexpr (SkipZeros)
      block.step_where_nonzero(weights, values, 1);
    else
      block.step(weights, values, 1);
    weights += Lanes;
    values += Columns;
  }
  block.store(output, Lanes);
}

/// The output of one lane group, [value_dim][lanes], and what all products have in common that keep it so.
template <class A>
class LaneOutput {
  static constexpr int width = ForwardShape<A>::width;
  static constexpr int lanes = ForwardShape<A>::lanes;

 public:
  static constexpr int max_groups = ForwardShape<A>::groups;
  static constexpr int max_packets = ForwardShape<A>::packets;
  static constexpr Index max_rows = Index{max_groups} * lanes;  ///< of one task
  static constexpr Index keys_to_warm_up = ForwardShape<A>::tile_keys;
  static constexpr Index least_row = 1;  ///< elements of scratch that a key or value row takes, at least
  struct Unit {};                        ///< what a thread holds while it multiplies

  /// Multiplies the output of every lane by its factor.
  void rescale(const A* factors, int packets) {
    for (int m = 0; m < packets; ++m) {
      const Packet<A> scale = load(factors + m * width);
      for (Index c = 0; c < value_dim_; ++c) {
        A* const o = output_ + c * lanes + m * width;
        store(o, mul(load(o), scale));
      }
    }
  }

  bool is_finite() const { return all_finite(output_, lanes * value_dim_); }

  /// rows[i] = factors * output of lane first + i, for one packet of lanes.
  void write(Index first, const A* factors, A* const* rows) const {
    lanes_to_rows(output_ + first, lanes, factors, value_dim_, rows);
  }

 protected:
  void place_output(A* output, Index value_dim) {
    output_ = output;
    value_dim_ = value_dim;
  }
  /// output += weights . values for `count` rows of the values from `row` on; weights[k][lane] from `row` on.
  template <int Count, bool Pairs>
  void add_strips(int lane, const A* weights, const Strips<A>& values, Index row, Index count,
                  bool skip_zeros) {
    for_blocks<ForwardShape<A>::broadcasts>(value_dim_, [&](Index column, auto columns) ATTN_LAMBDA_INLINE {
      const auto add = skip_zeros ? add_strip<A, Count, columns, lanes, Pairs, true>
                                  : add_strip<A, Count, columns, lanes, Pairs, false>;
      add(count, weights + lane, values.strip(column) + row * columns, output_ + column * lanes + lane);
    });
  }
  void clear_output() { std::fill(output_, output_ + lanes * value_dim_, A(0)); }

  A* output_ = nullptr;
  Index value_dim_ = 0;
};

/// The products of one lane group. (RowProducts has the same members, for a handful of rows.)
template <class T>
class LaneProducts : public LaneOutput<T> {
  using Shape = ForwardShape<T>;
  static constexpr int width = Shape::width;
  static constexpr int lanes = Shape::lanes;

 public:
  using A = T;
  using Keys = TileRows<A>;
  using Values = Strips<A>;                                  ///< how P V wants the values of a tile
  static constexpr Index keys_together = Shape::broadcasts;  ///< that one pass over the queries scores

  static Index scratch_size(Index head_dim, Index value_dim) { return lanes * (head_dim + value_dim); }
  void place(A* scratch, Index head_dim, Index value_dim) {
    query_ = scratch;
    head_dim_ = head_dim;
    this->place_output(query_ + lanes * head_dim, value_dim);
  }

  /// queries[i] is the contiguous query of lane i; every lane of `packets` packets has one.
  void begin(const A* const* queries, Index, int packets, A factor) {
    for (int m = 0; m < packets; ++m)
      rows_to_lanes(queries + m * width, head_dim_, factor, query_ + m * width, lanes);
    this->clear_output();
  }

  static Keys keys(const RowSource<A>& rows, Range range, A* scratch) {
    return rows.tile(range.begin, range.size(), scratch);
  }
  static Values values(const RowSource<A>& rows, Range range, bool, A* scratch, A* strips) {
    return cut_into_strips<Shape::broadcasts>(rows.tile(range.begin, range.size(), scratch), range.size(),
                                              rows.dim(), strips);
  }

  /// scores[j][lane] = start[lane] + query . key j for `count` keys and the lanes of Count packets, from
  /// packet `first` on; `highest` takes in the maxima. between() is called before each block of keys.
  template <int Count, class Between>
  void score(int first, const Keys& keys, Index count, const A* start, A* scores, A* highest,
             Between between) const {
    const int lane = first * width;
    for_key_blocks<A, Count>(count, [&](Index k, auto n) ATTN_LAMBDA_INLINE {
      between();
      score_block<A, Count, n, lanes>(head_dim_, query_ + lane, keys.data + k * keys.stride, keys.stride,
                                      start + lane, scores + k * lanes + lane, highest + lane);
    });
  }

  /// output += weights . values for keys [key, key + count) of the values; weights[k][lane] from key on.
  template <int Count>
  void add_values(int first, const A* weights, const Values& values, Index key, Index count,
                  bool skip_zeros) {
    this->template add_strips<Count, false>(first * width, weights, values, key, count, skip_zeros);
  }

 private:
  A* query_ = nullptr;  // [head_dim][lanes]
  Index head_dim_ = 0;
};

}  // namespace kernels
ATTN_NAMESPACE_END
