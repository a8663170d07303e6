// attn/kernels/row_products.hpp - RowProducts: Q K^T and P V for a handful of query rows, as in decoding.
//
// With one query row per lane most lanes would be empty. Here the lanes run along head_dim and value_dim
// (kernels/row_kernels.hpp), keys and values are read once and as they are stored.
#pragma once
#include "attn/kernels/forward_shape.hpp"
#include "attn/kernels/rows.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// The products of up to max_rows query rows; members as in LaneProducts. Scores and weights lie as
/// [row][key], rows `row_stride` apart.
template <class T>
class RowProducts {
  using Shape = ForwardShape<T>;
  static constexpr int width = Shape::width;

 public:
  using A = T;
  using Keys = StoredTile<A>;
  using Values = StoredTile<A>;
  /// Beyond it, one row per lane is faster.
  static constexpr Index max_rows = width < 2 ? 1 : std::min(8, width);
  static constexpr int max_groups = 1;
  static constexpr Index least_row = 1;
  struct Unit {};
  static constexpr Index keys_together = Shape::tile_keys;  ///< all that score() is given
  /// Scores of a tile; score() writes some behind the last one.
  static constexpr Index row_stride = keys_together + std::max(width, keys_at_once);
  /// Keys of the next head that are to be asked for during this one; the row kernels ask for the rest.
  static constexpr Index keys_to_warm_up = ComingRows::rows_ahead;

  static Index scratch_size(Index head_dim, Index value_dim) { return max_rows * (head_dim + value_dim); }
  void place(A* scratch, Index head_dim, Index value_dim) {
    query_ = scratch;
    output_ = query_ + max_rows * head_dim;
    head_dim_ = head_dim;
    value_dim_ = value_dim;
  }

  void begin(const A* const* queries, Index rows, int, A factor) {
    rows_ = static_cast<int>(rows);
    for (int r = 0; r < rows_; ++r) scale_row(queries[r], factor, head_dim_, query_ + r * head_dim_);
    std::fill(output_, output_ + rows * value_dim_, A(0));
  }

  static Keys keys(const RowSource<A>& rows, Range range, A* scratch) {
    return rows.stored_tile(range.begin, range.size(), scratch);
  }
  /// In the careful mode values are converted, for the one loop that skips them.
  static Values values(const RowSource<A>& rows, Range range, bool skip_zeros, A* scratch, A*) {
    return rows.stored_tile(range.begin, range.size(), scratch, skip_zeros);
  }

  /// Scores of `count` keys; `highest` takes in the maximum of each row.
  void score(const Keys& keys, Index count, const A* start, A* scores, A* highest) const {
    for_row_blocks([&](int first, int n) {
      keys.kernels->dot[n - 1](head_dim_, query_ + first * head_dim_, keys.run, count, start + first,
                               scores + first * row_stride, row_stride, highest + first);
    });
  }

  /// output += weights . values for keys [key, key + count) of the values; weights from key on.
  void add_values(const A* weights, const Values& values, Index key, Index count, bool skip_zeros) {
    const Values seen = values.from(key);
    if (skip_zeros) return add_seen_values(weights, seen.run, count);
    // Keys whose value rows stay in the first-level cache from one block of queries or columns to the next.
    constexpr Index fewest = 16, most = 64, elements = 8192 / static_cast<Index>(sizeof(A));
    const Index together = std::clamp(elements / std::max<Index>(1, value_dim_), fewest, most);
    alignas(64) A scaled[as_size(most * rows_at_once)];
    for (Index k = 0; k < count; k += together) {
      const StoredRun run = seen.run.from(k);
      const Index n = std::min(together, count - k);
      for_row_blocks([&](int first, int rows) {
        const A* from = weights + first * row_stride + k;
        Index stride = row_stride;
        if (run.scales != nullptr) {
          for (Index i = 0; i < n; ++i)
            for (int r = 0; r < rows; ++r) scaled[r * most + i] = from[r * row_stride + i] * run.scale<A>(i);
          from = scaled;
          stride = most;
        }
        seen.kernels->add[rows - 1](value_dim_, from, stride, run, n, output_ + first * value_dim_);
      });
    }
  }

  void rescale(const A* factors, int) {
    for (int r = 0; r < rows_; ++r)
      scale_row(output_ + r * value_dim_, factors[r], value_dim_, output_ + r * value_dim_);
  }

  bool is_finite() const { return all_finite(output_, rows_ * value_dim_); }

  void write(Index first, const A* factors, A* const* rows) const {
    for (Index r = first; r < rows_; ++r)
      scale_row(output_ + r * value_dim_, factors[r - first], value_dim_, rows[r - first]);
  }

 private:
  /// f(first, count) for the rows, up to rows_at_once of them at a time.
  template <class F>
  void for_row_blocks(F f) const {
    for (int first = 0; first < rows_; first += rows_at_once) f(first, std::min(rows_at_once, rows_ - first));
  }

  /// A weight of 0 adds nothing even if the value is NaN or infinite; the sums are those of `add`.
  void add_seen_values(const A* weights, const StoredRun& values, Index count) {
    for (Index k = 0; k < count; ++k)
      for (int r = 0; r < rows_; ++r) {
        const A weight = weights[r * row_stride + k];
        if (weight == A(0)) continue;
        const A* const value = values.row<A>(k);
        A* const output = output_ + r * value_dim_;
        Index c = 0;
        for (; c + width <= value_dim_; c += width)
          store(output + c, multiply_add(load(value + c), broadcast(weight), load(output + c)));
        for (; c < value_dim_; ++c) output[c] = multiply_add_lane(weight, value[c], output[c]);
      }
  }

  A* query_ = nullptr;   // [rows][head_dim]
  A* output_ = nullptr;  // [rows][value_dim]
  Index head_dim_ = 0, value_dim_ = 0;
  int rows_ = 0;
};

}  // namespace kernels
ATTN_NAMESPACE_END
