// attn/kernels/row_products.hpp - RowProducts: Q K^T and P V for a handful of query rows, as in decoding.
//
// With one query row per lane most lanes would be empty. Here the lanes run along head_dim (scores: dot
// products) and value_dim (output), keys and values are read as they lie, once for all rows, and scores take
// the place that lane products give them, so that everything between the two products is shared.
#pragma once
#include "attn/kernels/forward_shape.hpp"
#include "attn/kernels/rows.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// scores[j * row_stride + r] = start[r] + row r of queries . key j, for Rows rows and Keys keys; `highest`
/// takes in the maxima. Rows of `queries` lie dim apart.
template <class A, int Rows, int Keys>
ATTN_NOINLINE void dot_block(Index dim, const A* ATTN_RESTRICT queries, const TileRows<A>& keys,
                             const A* ATTN_RESTRICT start, A* ATTN_RESTRICT scores, Index row_stride,
                             A* ATTN_RESTRICT highest) {
  constexpr int width = packet_width<A>;
  Packet<A> sums[as_size(Keys)][as_size(Rows)];
  unroll<Keys>([&](auto j) ATTN_LAMBDA_INLINE {
    unroll<Rows>([&](auto r) ATTN_LAMBDA_INLINE { sums[j][r] = broadcast(A(0)); });
  });
  Index c = 0;
  for (; c + width <= dim; c += width) {
    Packet<A> q[as_size(Rows)];
    unroll<Rows>([&](auto r) ATTN_LAMBDA_INLINE { q[r] = load(queries + r * dim + c); });
    unroll<Keys>([&](auto j) ATTN_LAMBDA_INLINE {
      const Packet<A> k = load(keys.data + j * keys.stride + c);
      unroll<Rows>([&](auto r) ATTN_LAMBDA_INLINE { sums[j][r] = multiply_add(q[r], k, sums[j][r]); });
    });
  }
  unroll<Keys>([&](auto j) ATTN_LAMBDA_INLINE {
    unroll<Rows>([&](auto r) ATTN_LAMBDA_INLINE {
      A s = start[r] + sum_of_lanes(sums[j][r]);
      for (Index d = c; d < dim; ++d) s += queries[r * dim + d] * keys.data[j * keys.stride + d];
      scores[j * row_stride + r] = s;
      highest[r] = s > highest[r] ? s : highest[r];
    });
  });
}

/// output[r][column] += sum over k < count of weights[k * weight_stride + r] * values[k][column], for Packets
/// packets of columns. SkipZeros: a weight of 0 adds nothing even if the value is NaN or infinite.
template <class A, int Rows, int Packets, bool SkipZeros>
ATTN_NOINLINE void add_weighted_rows(Index count, const A* ATTN_RESTRICT weights, Index weight_stride,
                                     TileRows<A> values, A* ATTN_RESTRICT output, Index output_stride) {
  constexpr int width = packet_width<A>;
  RegisterBlock<A, Packets, Rows> block;
  block.load(output, output_stride);
  for (Index k = 0; k < count; ++k) {
    Packet<A> v[as_size(Packets)];
    unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE { v[m] = load(values.data + m * width); });
    unroll<Rows>([&](auto r) ATTN_LAMBDA_INLINE {
      if (SkipZeros && weights[r] == A(0)) return;
      const Packet<A> weight = broadcast(weights[r]);
      unroll<Packets>([&](auto m)
                          ATTN_LAMBDA_INLINE { block.c[r][m] = multiply_add(v[m], weight, block.c[r][m]); });
    });
    weights += weight_stride;
    values.data += values.stride;
  }
  block.store(output, output_stride);
}

/// The products of up to max_rows query rows; members as in LaneProducts.
template <class T>
class RowProducts {
  using Shape = ForwardShape<T>;
  static constexpr int width = Shape::width;
  static constexpr int lanes = Shape::lanes;

 public:
  using A = T;
  using Values = TileRows<A>;
  /// Beyond half a packet of rows, one row per lane is faster.
  static constexpr Index max_rows = width < 2 ? 1 : width < 8 ? width / 2 : 4;
  static constexpr int max_groups = 1;

  static Index scratch_size(Index head_dim, Index value_dim) { return max_rows * (head_dim + value_dim); }
  static Index value_scratch_size(Index) { return 0; }
  void place(A* scratch, Index head_dim, Index value_dim) {
    query_ = scratch;
    output_ = query_ + max_rows * head_dim;
    head_dim_ = head_dim;
    value_dim_ = value_dim;
  }

  void begin(const A* const* queries, Index rows, int, A factor) {
    rows_ = static_cast<int>(rows);
    for (int r = 0; r < rows_; ++r)
      for (Index c = 0; c < head_dim_; ++c) query_[r * head_dim_ + c] = factor * queries[r][c];
    std::fill(output_, output_ + rows * value_dim_, A(0));
  }

  static Values prepare_values(const TileRows<A>& rows, Index, Index, A*) { return rows; }

  template <int, int Keys>
  ATTN_ALWAYS_INLINE void score(int, const TileRows<A>& keys, const A* start, A* scores, A* highest) const {
    constexpr Index ahead = 16;  // rows; the hardware follows them only within a page
    constexpr int together =
        std::min(Keys,
                 vector_registers >= 32 ? 4 : 2);  // keys whose sums fit in the registers
    with_constant<static_cast<int>(max_rows)>(rows_, [&](auto rows) ATTN_LAMBDA_INLINE {
      for (Index j = 0; j < Keys; ++j)
        prefetch(keys.data + (j + ahead) * keys.stride, head_dim_ * static_cast<Index>(sizeof(A)));
      for (Index j = 0; j < Keys; j += together)
        dot_block<A, rows, together>(head_dim_, query_, {keys.data + j * keys.stride, keys.stride}, start,
                                     scores + j * lanes, lanes, highest);
    });
  }

  template <int>
  void add_values(int, const A* weights, const Values& values, Index key, Index count, bool skip_zeros) {
    constexpr Index together =
        16;  // keys: their value rows are one run of memory, and stay in the first-level cache
    for (Index k = 0; k < count; k += together) {
      const TileRows<A> rows{values.data + (key + k) * values.stride, values.stride};
      const Index n = std::min(together, count - k);
      for (Index i = 0; i < n && k + n < count; ++i)
        prefetch(rows.data + (n + i) * rows.stride, value_dim_ * static_cast<Index>(sizeof(A)));
      add_some_values(weights + k * lanes, rows, n, skip_zeros);
    }
  }

  void rescale(const A* factors, int) {
    for (int r = 0; r < rows_; ++r)
      for (Index c = 0; c < value_dim_; ++c) output_[r * value_dim_ + c] *= factors[r];
  }

  bool is_finite() const { return all_finite(output_, rows_ * value_dim_); }

  void write(Index first, const A* factors, A* const* rows) const {
    for (Index r = first; r < rows_; ++r)
      for (Index c = 0; c < value_dim_; ++c)
        rows[r - first][c] = factors[r - first] * output_[r * value_dim_ + c];
  }

 private:
  void add_some_values(const A* weights, const TileRows<A>& values, Index count, bool skip_zeros) {
    with_constant<static_cast<int>(max_rows)>(rows_, [&](auto rows) ATTN_LAMBDA_INLINE {
      constexpr int packets = rows > 2 ? 2 : 4;
      Index column = 0;
      const auto add = [&](auto n, auto skips) ATTN_LAMBDA_INLINE {
        for (; column + n * width <= value_dim_; column += n * width)
          add_weighted_rows<A, rows, n, skips>(count, weights, lanes, {values.data + column, values.stride},
                                               output_ + column, value_dim_);
      };
      if (skip_zeros) {
        add(std::integral_constant<int, 1>{}, std::true_type{});
      } else {
        add(std::integral_constant<int, packets>{}, std::false_type{});
        add(std::integral_constant<int, 1>{}, std::false_type{});
      }
      add_last_columns(column, weights, values.data, values.stride, count);
    });
  }

  void add_last_columns(Index column, const A* weights, const A* values, Index stride, Index count) {
    for (; column < value_dim_; ++column)
      for (int r = 0; r < rows_; ++r) {
        A sum = output_[r * value_dim_ + column];
        for (Index k = 0; k < count; ++k)
          if (weights[k * lanes + r] != A(0)) sum += weights[k * lanes + r] * values[k * stride + column];
        output_[r * value_dim_ + column] = sum;
      }
  }

  A* query_ = nullptr;   // [rows][head_dim]
  A* output_ = nullptr;  // [rows][value_dim]
  Index head_dim_ = 0, value_dim_ = 0;
  int rows_ = 0;
};

}  // namespace kernels
ATTN_NAMESPACE_END
