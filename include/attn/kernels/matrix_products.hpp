// attn/kernels/matrix_products.hpp - MatrixProducts: Q K^T and P V of bfloat16 by the matrix unit.
//
// As PairProducts: lanes hold pairs of elements of a query, or of the weights of two keys, which are B of the
// product; weights are rounded, queries are not scaled. A is the keys, as they lie, for Q K^T, and the values
// transposed for P V, once per tile.
#pragma once
#include "attn/kernels/matrix_unit.hpp"
#include "attn/kernels/pair_products.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// scores = start + factor * scores, for `count` rows; `highest` takes in the maxima.
template <int Packets, int Lanes>
ATTN_NOINLINE void scale_scores(Index count, float factor, const float* ATTN_RESTRICT start,
                                float* ATTN_RESTRICT scores, float* ATTN_RESTRICT highest) {
  constexpr int width = packet_width<float>;
  Packet<float> first[as_size(Packets)], top[as_size(Packets)];
  unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
    first[m] = load(start + m * width);
    top[m] = load(highest + m * width);
  });
  for (Index k = 0; k < count; ++k) {
    unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
      const Packet<float> s = multiply_add(load(scores + m * width), broadcast(factor), first[m]);
      top[m] = max(top[m], s);
      store(scores + m * width, s);
    });
    scores += Lanes;
  }
  unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE { store(highest + m * width, top[m]); });
}

/// Values of a tile, transposed: rows of bfloat16 that hold one column each, zero behind the last key.
struct ValueColumns {
  /// Keys of a row: those of a tile, and a step of the unit may begin at any of them.
  static constexpr Index stride = ForwardShape<float>::tile_keys + 2 * tile_pairs;
  static constexpr Index stride_bytes = stride * static_cast<Index>(sizeof(Eigen::bfloat16));

  const std::byte* data;
  TileRows<float> seen;  ///< the values as they are, in the careful mode: `data` then holds 0 for NaN and Inf
};

/// Fills ValueColumns from `count` rows of bfloat16, or of floats with such values.
template <bool OnlyFinite, class S>
ATTN_NOINLINE void transpose_values(const TileRows<S>& rows, Index count, Index dim, Eigen::bfloat16* to) {
  constexpr int width = packet_width<float>;
  constexpr Index stride = ValueColumns::stride;
  const auto element = [&](Index key, Index c) {
    const auto x = static_cast<float>(rows.data[key * rows.stride + c]);
    return static_cast<Eigen::bfloat16>(OnlyFinite && !std::isfinite(x) ? 0.0F : x);
  };
  const auto pairs = [](const S* first, const S* second) ATTN_LAMBDA_INLINE {
    if constexpr (!OnlyFinite) return load_pairs(first, second);
    const auto finite = [](const S* p) ATTN_LAMBDA_INLINE {
      const Packet<float> x = load_as<float>(p), zero = broadcast(0.0F);
      return select(equal(mul(x, zero), zero), x, zero);
    };
    return round_to_pairs(finite(first), finite(second));
  };
  const Index whole_keys = count / (2 * width) * (2 * width), whole_columns = dim / width * width;
  for (Index k = 0; k < whole_keys; k += 2 * width)
    for (Index c = 0; c < whole_columns; c += width) {
      PacketSquare<float> square;
      unroll<width>([&](auto p) ATTN_LAMBDA_INLINE {
        const S* const row = rows.data + (k + 2 * p) * rows.stride + c;
        square[p] = pairs(row, row + rows.stride);
      });
      square.transpose();
      unroll<width>([&](auto i) ATTN_LAMBDA_INLINE {
        store(reinterpret_cast<float*>(to + (c + i) * stride + k), square[i]);
      });
    }
  for (Index c = 0; c < dim; ++c) {
    Eigen::bfloat16* const column = to + c * stride;
    for (Index key = c < whole_columns ? whole_keys : 0; key < count; ++key) column[key] = element(key, c);
    std::fill(column + count, column + stride, Eigen::bfloat16(0.0F));
  }
}

/// The products of one lane group; members as in LaneProducts.
class MatrixProducts : public LaneOutput<float> {
  using Shape = ForwardShape<float>;
  static constexpr int width = Shape::width;
  static constexpr int lanes = Shape::lanes;

 public:
  using A = float;
  using Unit = MatrixUnit;
  using Keys = PairProducts::Keys;
  using Values = ValueColumns;
  static constexpr Index keys_together = tile_rows;
  static constexpr Index least_row = tile_pairs;

  static Index scratch_size(Index head_dim, Index value_dim) {
    return lanes * (std::max(head_dim + 1, pairs(head_dim)) + value_dim);
  }
  void place(float* scratch, Index head_dim, Index value_dim) {
    query_ = scratch;
    head_dim_ = head_dim;
    place_output(query_ + lanes * std::max(head_dim + 1, pairs(head_dim)), value_dim);
  }

  void begin(const float* const* queries, Index, int packets, float factor) {
    factor_ = factor;
    pack_query_pairs(queries, head_dim_, packets, query_);
    const Index filled = (head_dim_ + 1) / 2;
    std::fill(query_ + filled * lanes, query_ + pairs(head_dim_) * lanes, 0.0F);
    clear_output();
  }

  static Keys keys(const RowSource<float>& rows, Range range, float* scratch) {
    return PairProducts::keys_of(pairs(rows.dim()), rows, range, scratch);
  }
  static Values values(const RowSource<float>& rows, Range range, bool careful, float* scratch,
                       float* columns) {
    auto* const to = reinterpret_cast<Eigen::bfloat16*>(columns);
    const auto* const data = reinterpret_cast<const std::byte*>(columns);
    const TileRows<Eigen::bfloat16> stored = rows.bfloat16_tile(range.begin, range.size());
    if (stored.data != nullptr && !careful) {
      transpose_values<false>(stored, range.size(), rows.dim(), to);
      return {data, {nullptr, 0}};
    }
    const TileRows<float> converted = rows.tile(range.begin, range.size(), scratch);
    const auto transpose = careful ? transpose_values<true, float> : transpose_values<false, float>;
    transpose(converted, range.size(), rows.dim(), to);
    return {data, converted};
  }

  template <int Count, class Between>
  void score(int first, const Keys& keys, Index count, const float* start, float* scores, float* highest,
             Between between) const {
    const int lane = first * width;
    for (Index k = 0; k < count; k += keys_together) between();
    multiply_tiles<Count * width>(true, count, pairs(head_dim_) / tile_pairs, keys.data, keys.step,
                                  query_ + lane, lanes, scores + lane, lanes);
    scale_scores<Count, lanes>(count, factor_, start + lane, scores + lane, highest + lane);
  }

  /// The weights are overwritten.
  template <int Count>
  void add_values(int first, float* weights, const Values& values, Index key, Index count, bool careful) {
    const int lane = first * width;
    if (careful) add_infinite(lane, lane + Count * width, weights, values.seen, key, count);
    const Index paired = pair_weights<Count, lanes>(weights + lane, count, false);
    const Index steps = paired / tile_pairs, rest = paired % tile_pairs;
    constexpr auto size = static_cast<Index>(sizeof(float));
    const std::byte* const columns = values.data + key * size / 2;
    const auto add = [&](Index n, Index step, const float* from) {
      multiply_tiles<Count * width>(false, value_dim_, n, columns + step * tile_pairs * size,
                                    ValueColumns::stride_bytes, from + lane, lanes, output_ + lane, lanes);
    };
    if (steps > 0) add(steps, 0, weights);
    if (rest == 0) return;
    alignas(64) float last[as_size(tile_pairs * lanes)];
    const float* const from = weights + steps * tile_pairs * lanes;
    std::fill(std::copy(from, from + rest * lanes, last), last + tile_pairs * lanes, 0.0F);
    add(1, steps, last);
  }

 private:
  /// Of a query or key row, filled up to whole steps of the unit.
  static constexpr Index pairs(Index dim) { return attn::detail::round_up(dim, 2 * tile_pairs) / 2; }

  /// What NaN and Inf among the values add for the lanes that give them a weight.
  void add_infinite(int begin, int end, const float* weights, const TileRows<float>& values, Index key,
                    Index count) {
    for (Index k = 0; k < count; ++k) {
      const float* const value = values.data + (key + k) * values.stride;
      if (all_finite(value, value_dim_)) continue;
      for (Index c = 0; c < value_dim_; ++c)
        for (int i = begin; i < end && !std::isfinite(value[c]); ++i)
          if (weights[k * lanes + i] != 0.0F) output_[c * lanes + i] += weights[k * lanes + i] * value[c];
    }
  }

  float* query_ = nullptr;  // [pairs of head_dim][lanes]; scratch for one row more than head_dim
  Index head_dim_ = 0;
  float factor_ = 1;
};

}  // namespace kernels
ATTN_NAMESPACE_END
