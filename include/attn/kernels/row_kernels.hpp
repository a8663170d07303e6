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

/// scores[j * score_stride + r] = start[r] + row r of queries . key j for Rows rows and `count` keys;
/// `highest` takes in the maxima. Rows of queries lie dim apart; scores have room for rows_at_once rows.
template <class A, class S, int Rows>
ATTN_NOINLINE void dot_rows(Index dim, const A* ATTN_RESTRICT queries, const StoredRun& keys, Index count,
                            const A* ATTN_RESTRICT start, A* ATTN_RESTRICT scores, Index score_stride,
                            A* ATTN_RESTRICT highest) {
  constexpr int width = packet_width<A>;
  constexpr int padded = static_cast<int>(std::bit_ceil(as_size(Rows)));  // sums of a key
  constexpr int together = std::min(8, std::max(8, width) / padded);  // keys: enough sums to hide the latency
  constexpr int packets = (together * padded + width - 1) / width;    // of sums
  constexpr int total = packets * width;
  alignas(64) A lanes[as_size(total)];
  Packet<A> first[as_size(packets)], top[as_size(packets)];
  for (int i = 0; i < total; ++i) lanes[i] = i % padded < Rows ? start[i % padded] : A(0);
  unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE {
    first[b] = load(lanes + b * width);
    top[b] = broadcast(-std::numeric_limits<A>::infinity());
  });
  ComingRows coming(keys, count, dim * static_cast<Index>(sizeof(S)));
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
    Index c = 0;
    for (; c + width <= dim; c += width) {
      coming.ask_for_lines<lines_of<S>(together * width)>();
      unroll<together>([&](auto k) ATTN_LAMBDA_INLINE {
        const Packet<A> x = load_as<A>(key[k] + c);
        unroll<Rows>([&](auto r) ATTN_LAMBDA_INLINE {
          Packet<A>& sum = sums[k * padded + r];
          sum = multiply_add(load(queries + r * dim + c), x, sum);
        });
      });
    }
    Packet<A> score[as_size(packets)];
    unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE {
      score[b] = sums_of_lanes<A, std::min(width, together * padded)>(sums + b * width);
    });
    if (c < dim) {
      unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE { store(lanes + b * width, score[b]); });
      for (int i = 0; i < together * padded; ++i) {
        const S* const row = key[i / padded];
        for (Index d = c; d < dim && i % padded < Rows; ++d)
          lanes[i] = multiply_add_lane(queries[i % padded * dim + d], static_cast<A>(row[d]), lanes[i]);
      }
      unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE { score[b] = load(lanes + b * width); });
    }
    if constexpr (std::is_same_v<S, std::int8_t>) {
      for (int i = 0; i < together * padded; ++i)
        lanes[i] = keys.scale<A>(std::min<Index>(j + i / padded, count - 1));
      unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE { score[b] = mul(score[b], load(lanes + b * width)); });
    }
    unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE {
      score[b] = add(score[b], first[b]);
      top[b] = max(top[b], score[b]);
      store(lanes + b * width, score[b]);
    });
    for (Index k = 0; k < known; ++k)
      std::memcpy(scores + (j + k) * score_stride, lanes + k * padded, sizeof(A) * as_size(padded));
  }
  unroll<packets>([&](auto b) ATTN_LAMBDA_INLINE { store(lanes + b * width, top[b]); });
  for (int i = 0; i < together * padded; ++i)
    if (i % padded < Rows) highest[i % padded] = std::max(highest[i % padded], lanes[i]);
}

/// output[r * dim + c] += sum over i < count of weights[i * rows_at_once + r] * value i [c] for Rows rows.
template <class A, class S, int Rows>
ATTN_NOINLINE void add_rows(Index dim, const A* ATTN_RESTRICT weights, const StoredRun& values, Index count,
                            A* ATTN_RESTRICT output) {
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
          const Packet<A> weight = broadcast(weights[i * rows_at_once + r]);
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
  for (; c < dim; ++c)
    for (int r = 0; r < Rows; ++r)
      for (Index i = 0; i < count; ++i)
        output[r * dim + c] = multiply_add_lane(
            weights[i * rows_at_once + r], static_cast<A>(values.template row<S>(i)[c]), output[r * dim + c]);
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
  void (*add[rows_at_once])(Index dim, const A* weights, const StoredRun& values, Index count, A* output);
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
