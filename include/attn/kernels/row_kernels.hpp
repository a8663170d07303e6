// attn/kernels/row_kernels.hpp - the two products of a handful of query rows with keys and values as they are
// stored: lanes run along head_dim and value_dim, and what is loaded serves up to four query rows.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "attn/kernels/convert.hpp"
#include "attn/kernels/micro.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Consecutive rows as they are stored, of a type that only the function knows which takes them. Rows of
/// 8-bit integers have a scale each: an element is scale * integer.
struct StoredRun {
  const std::byte* rows = nullptr;
  Index step = 0;                 ///< from row to row, in bytes
  Index element_stride = 1;       ///< the products want 1
  const float* scales = nullptr;  ///< null: none
  Index scale_stride = 0;

  template <class S>
  const S* row(Index i) const {
    return reinterpret_cast<const S*>(rows + i * step);
  }
  template <class A>
  A scale(Index i) const {
    return static_cast<A>(scales[i * scale_stride]);
  }
  /// Without the first `count` rows.
  StoredRun from(Index count) const {
    return {rows + count * step, step, element_stride,
            scales == nullptr ? nullptr : scales + count * scale_stride, scale_stride};
  }
};

/// Query rows that one pass over keys or values serves.
inline constexpr int rows_at_once = 4;

/// Asks for rows that will be read soon, line by line in the order of memory: the hardware follows rows only
/// within a page, and memory answers best to neighbours.
class ComingRows {
 public:
  static constexpr Index rows_ahead = 16;
  /// As many rows as a call works on, some rows behind them.
  ComingRows(const StoredRun& run, Index count, Index row_bytes)
      : row_(reinterpret_cast<const char*>(run.rows + rows_ahead * run.step)),
        step_(run.step),
        bytes_(row_bytes),
        rows_(count) {
    if (step_ != bytes_ || bytes_ % 64 != 0) return;  // else the rows are one long one
    bytes_ *= rows_;
    rows_ = 1;
  }
  template <int Lines>
  ATTN_ALWAYS_INLINE void ask_for_lines() {
    if (at_ + 64 * Lines <= bytes_) {
      unroll<Lines>([&](auto i) ATTN_LAMBDA_INLINE { ATTN_PREFETCH_TO_L1(row_ + at_ + 64 * i); });
      at_ += 64 * Lines;
    } else {
      ask_row_by_row(Lines);
    }
  }

 private:
  void ask_row_by_row(int lines) {
    for (; lines > 0 && rows_ > 0; --lines) {
      if (at_ >= bytes_) {
        at_ = 0;
        row_ += step_;
        if (--rows_ == 0) return;
      }
      ATTN_PREFETCH_TO_L1(row_ + at_);
      at_ += 64;
    }
  }

  const char* row_;
  Index step_, bytes_, rows_, at_ = 0;
};

/// Cache lines, at least one, that `count` elements of S fill.
template <class S>
constexpr int lines_of(int count) {
  return std::max(1, count * static_cast<int>(sizeof(S)) / 64);
}

/// What is left of a row behind its whole packets.
template <class A>
class RowEnd {
  static constexpr int width = packet_width<A>;

 public:
  explicit RowEnd(Index dim) : first_(std::max<Index>(0, dim - width)), rest_(dim % width), dim_(dim) {
    A is_new[as_size(width)];
    for (Index i = 0; i < width; ++i) is_new[i] = static_cast<A>(first_ + i >= dim - rest_);
    is_new_ = equal(kernels::load(is_new), broadcast(A(1)));
  }
  bool empty() const { return rest_ == 0; }
  /// Its elements, each in a lane of its own; the others are 0.
  template <class S>
  ATTN_ALWAYS_INLINE Packet<A> load(const S* row) const {
    if (dim_ < width) return load_part<A>(row, dim_);
    return select(is_new_, load_as<A>(row + first_), broadcast(A(0)));
  }
  void store(A* row, const Packet<A>& elements) const {
    A lanes[as_size(width)];
    kernels::store(lanes, elements);
    std::copy(lanes + (dim_ - rest_ - first_), lanes + (dim_ - first_), row + dim_ - rest_);
  }

 private:
  Index first_, rest_, dim_;
  Packet<A> is_new_;  // no whole packet has the element
};

/// sums[r * Keys + k] += the products of the ends of query row r and key k.
template <class A, class S, int Rows, int Keys>
ATTN_NOINLINE void dot_row_ends(const RowEnd<A>& end, Index dim, const A* queries, const S* const* keys,
                                Packet<A>* sums) {
  Packet<A> query[as_size(Rows)];
  for (Index r = 0; r < Rows; ++r) query[r] = end.load(queries + r * dim);
  for (Index k = 0; k < Keys; ++k) {
    const Packet<A> key = end.load(keys[k]);
    for (Index r = 0; r < Rows; ++r) sums[r * Keys + k] = multiply_add(query[r], key, sums[r * Keys + k]);
  }
}

/// Keys that dot_rows() scores at once: enough sums to hide the latency of the multiply-add.
inline constexpr int keys_at_once = 8;

/// scores[r * score_stride + j] = start[r] + row r of queries . key j for Rows rows and `count` keys; what a
/// row holds behind them, up to keys_at_once elements, is overwritten. `highest` takes in the maxima. Rows of
/// queries lie dim apart.
template <class A, class S, int Rows>
ATTN_NOINLINE void dot_rows(Index dim, const A* ATTN_RESTRICT queries, const StoredRun& keys, Index count,
                            const A* ATTN_RESTRICT start, A* ATTN_RESTRICT scores, Index score_stride,
                            A* ATTN_RESTRICT highest) {
  constexpr int width = packet_width<A>;
  constexpr int padded = static_cast<int>(std::bit_ceil(as_size(Rows)));  // sums of a key
  constexpr int together = std::min(keys_at_once, std::max(keys_at_once, width) / padded);
  constexpr int packets = (together * padded + width - 1) / width;  // of sums, [row][key]
  constexpr int total = packets * width;
  alignas(64) A lanes[as_size(total)];
  Packet<A> first[as_size(packets)], top[as_size(packets)];
  for (int i = 0; i < total; ++i) lanes[i] = i / together < Rows ? start[i / together] : A(0);
  unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE {
    first[b] = load(lanes + b * width);
    top[b] = broadcast(-std::numeric_limits<A>::infinity());
  });
  ComingRows coming(keys, count, dim * static_cast<Index>(sizeof(S)));
  const RowEnd<A> end(dim);
  for (Index j = 0; j < count; j += together) {
    const Index known = std::min<Index>(together, count - j);
    const S* key[as_size(together)];  // the last one again where there are too few
    const std::byte* address = keys.rows + j * keys.step;
    unroll<together>([&](auto k) ATTN_LAMBDA_INLINE {
      key[k] = reinterpret_cast<const S*>(address);
      address += k + 1 < known ? keys.step : 0;
    });
    Packet<A> sums[as_size(total)];
    unroll<total>([&](auto i) ATTN_LAMBDA_INLINE { sums[i] = broadcast(A(0)); });
    for (Index c = 0; c + width <= dim; c += width) {
      coming.ask_for_lines<lines_of<S>(together * width)>();
      unroll<together>([&](auto k) ATTN_LAMBDA_INLINE {
        const Packet<A> x = load_as<A>(key[k] + c);
        unroll<Rows>([&](auto r) ATTN_LAMBDA_INLINE {
          Packet<A>& sum = sums[r * together + k];
          sum = multiply_add(load(queries + r * dim + c), x, sum);
        });
      });
    }
    if (!end.empty()) {
      Packet<A> whole[as_size(total)];  // the address of `sums` itself would keep it out of registers
      unroll<total>([&](auto i) ATTN_LAMBDA_INLINE { whole[i] = sums[i]; });
      dot_row_ends<A, S, Rows, together>(end, dim, queries, key, whole);
      unroll<total>([&](auto i) ATTN_LAMBDA_INLINE { sums[i] = whole[i]; });
    }
    Packet<A> score[as_size(packets)];
    unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE {
      score[b] = sums_of_lanes<A, std::min(width, together * padded)>(sums + b * width);
    });
    if constexpr (std::is_same_v<S, std::int8_t>) {
      for (int i = 0; i < together * padded; ++i)
        lanes[i] = keys.scale<A>(std::min<Index>(j + i % together, count - 1));
      unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE { score[b] = mul(score[b], load(lanes + b * width)); });
    }
    unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE {
      score[b] = add(score[b], first[b]);
      top[b] = max(top[b], score[b]);
      store(lanes + b * width, score[b]);
    });
    unroll<Rows>([&](auto r) ATTN_LAMBDA_INLINE {
      std::memcpy(scores + r * score_stride + j, lanes + r * together, sizeof(A) * as_size(together));
    });
  }
  unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE { store(lanes + b * width, top[b]); });
  for (int i = 0; i < Rows * together; ++i) highest[i / together] = std::max(highest[i / together], lanes[i]);
}

/// output[r * dim + c] += sum over i < count of weights[r * weight_stride + i] * value i [c] for Rows rows.
template <class A, class S, int Rows>
ATTN_NOINLINE void add_rows(Index dim, const A* ATTN_RESTRICT weights, Index weight_stride,
                            const StoredRun& values, Index count, A* ATTN_RESTRICT output) {
  constexpr int width = packet_width<A>;
  ComingRows coming(values, count, dim * static_cast<Index>(sizeof(S)));
  Index c = 0;
  const auto add_columns = [&](auto packets) ATTN_LAMBDA_INLINE {
    for (; c + packets * width <= dim; c += packets * width) {
      RegisterBlock<A, packets, Rows> block;
      block.load(output + c, dim);
      for (Index i = 0; i < count; ++i) {
        const S* const value = values.template row<S>(i);
        coming.ask_for_lines<lines_of<S>(packets * width)>();
        Packet<A> v[as_size(packets)];
        unroll<packets>([&](auto m) ATTN_LAMBDA_INLINE { v[m] = load_as<A>(value + c + m * width); });
        unroll<Rows>([&](auto r) ATTN_LAMBDA_INLINE {
          const Packet<A> weight = broadcast(weights[r * weight_stride + i]);
          unroll<packets>(
              [&](auto m) ATTN_LAMBDA_INLINE { block.c[r][m] = multiply_add(v[m], weight, block.c[r][m]); });
        });
      }
      block.store(output + c, dim);
    }
  };
  add_columns(std::integral_constant<int, std::max(2, 8 / static_cast<int>(std::bit_ceil(as_size(Rows))))>{});
  if constexpr (Rows == 1) add_columns(std::integral_constant<int, 4>{});
  add_columns(std::integral_constant<int, 1>{});
  const RowEnd<A> end(dim);
  for (Index r = 0; !end.empty() && r < Rows; ++r) {
    Packet<A> sum = end.load(output + r * dim);
    for (Index i = 0; i < count; ++i)
      sum = multiply_add(end.load(values.template row<S>(i)), broadcast(weights[r * weight_stride + i]), sum);
    end.store(output + r * dim, sum);
  }
}

/// Writes `count` rows of `dim` stored elements to contiguous rows of A.
template <class A, class S>
void load_rows(Index dim, const StoredRun& from, Index count, A* to) {
  for (Index i = 0; i < count; ++i, to += dim) {
    const S* const row = from.template row<S>(i);
    if (from.element_stride == 1)
      convert(row, dim, to);
    else
      for (Index c = 0; c < dim; ++c) to[c] = static_cast<A>(row[c * from.element_stride]);
    if constexpr (std::is_same_v<S, std::int8_t>) {
      const A scale = from.scale<A>(i);
      for (Index c = 0; c < dim; ++c) to[c] *= scale;
    }
  }
}

/// What kernels do with rows of one storage type; [rows - 1] where a function is for a number of query rows.
template <class A>
struct RowKernels {
  void (*load)(Index dim, const StoredRun& from, Index count, A* to);
  void (*dot[rows_at_once])(Index dim, const A* queries, const StoredRun& keys, Index count, const A* start,
                            A* scores, Index score_stride, A* highest);
  void (*add[rows_at_once])(Index dim, const A* weights, Index weight_stride, const StoredRun& values,
                            Index count, A* output);
};

template <class A, class S>
const RowKernels<A>& row_kernels() {
  static constexpr RowKernels<A> kernels = {
      load_rows<A, S>,
      {dot_rows<A, S, 1>, dot_rows<A, S, 2>, dot_rows<A, S, 3>, dot_rows<A, S, 4>},
      {add_rows<A, S, 1>, add_rows<A, S, 2>, add_rows<A, S, 3>, add_rows<A, S, 4>}};
  return kernels;
}

#ifdef ATTN_INSTANTIATE
ATTN_INSTANTIATE const RowKernels<float>& row_kernels<float, float>();
ATTN_INSTANTIATE const RowKernels<float>& row_kernels<float, Eigen::half>();
ATTN_INSTANTIATE const RowKernels<float>& row_kernels<float, Eigen::bfloat16>();
ATTN_INSTANTIATE const RowKernels<float>& row_kernels<float, std::int8_t>();
ATTN_INSTANTIATE const RowKernels<double>& row_kernels<double, double>();
#endif

}  // namespace kernels
ATTN_NAMESPACE_END
