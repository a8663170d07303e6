// attn/kernels/rows.hpp - where a kernel's rows come from and go to: strided
// sources, and the change between rows in memory and vector lanes.
#pragma once
#include "attn/core/stored_rows.hpp"
#include "attn/kernels/row_kernels.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Consecutive rows that a kernel can read: contiguous elements of the accumulator type, `stride` apart.
template <class A>
struct TileRows {
  const A* data;
  Index stride;
  TileRows from(Index count) const { return {data + count * stride, stride}; }
};

/// out[i] = f(in[i]) over contiguous memory, in place or not. A pointer, so that the loops around it are
/// compiled once for all f.
template <class A>
using RunFunction = void (*)(const A* in, A* out, Index count);

/// to[c * to_stride] = from[c * from_stride], converted. Not inlined: called once per row, from many places.
template <class From, class To>
ATTN_NOINLINE void copy_row(const From* from, Index from_stride, Index dim, To* to, Index to_stride) {
  if (from_stride == 1 && to_stride == 1) {
    convert(from, dim, to);
  } else {
    for (Index c = 0; c < dim; ++c) to[c * to_stride] = static_cast<To>(from[c * from_stride]);
  }
}

/// to[c] = factor * from[c], in place or not.
template <class A>
ATTN_NOINLINE void scale_row(const A* from, A factor, Index dim, A* to) {
  for (Index c = 0; c < dim; ++c) to[c] = factor * from[c];
}

/// Rows of a tile as they are stored, and the functions that know their type.
template <class A>
struct StoredTile {
  StoredRun run;
  const RowKernels<A>* kernels;
  StoredTile from(Index count) const { return {run.from(count), kernels}; }
};

/// The rows of one head of a RowStore.
template <class A>
class RowSource;

/// Queries, keys or values [batch, heads, len, dim] as the caller stores them: any storage, strides, pages.
/// The storage type is behind a function pointer, so that each kernel is compiled once for all of them.
template <class A>
class RowStore {
 public:
  RowStore() = default;
  template <class S>
  RowStore(const StoredRows<S>& rows)  // NOLINT(google-explicit-constructor)
      : data_(reinterpret_cast<const std::byte*>(rows.data)),
        bytes_{rows.strides[0] * size_of<S>, rows.strides[1] * size_of<S>, rows.strides[2] * size_of<S>},
        row_bytes_(rows.extents[3] * size_of<S>),
        is_direct_(std::is_same_v<S, A> && (rows.strides[3] == 1 || rows.extents[3] == 1)),
        holds_bfloat16_(std::is_same_v<S, Eigen::bfloat16>),
        kernels_(&row_kernels<A, S>()),
        direct_kernels_(&row_kernels<A, A>()),
        element_stride_(rows.strides[3]),
        len_(rows.extents[2]),
        dim_(rows.extents[3]),
        scales_(rows.scales),
        scale_strides_(rows.scale_strides),
        pages_(rows.pages),
        pages_per_entry_(rows.pages_per_entry),
        page_rows_(rows.page_rows) {}

  Index len() const { return len_; }
  Index dim() const { return dim_; }
  bool holds_bfloat16() const { return holds_bfloat16_; }
  RowSource<A> rows_of(Index batch, Index head) const { return RowSource<A>(*this, batch, head); }

 private:
  friend class RowSource<A>;
  template <class S>
  static constexpr auto size_of = static_cast<Index>(sizeof(S));

  const std::byte* data_ = nullptr;
  Dims<3> bytes_{};  // from page to page, head to head, row to row
  Index row_bytes_ = 0;
  bool is_direct_ = false;  // rows can be read where they lie
  bool holds_bfloat16_ = false;
  const RowKernels<A>* kernels_ = nullptr;         // of the rows as they are stored
  const RowKernels<A>* direct_kernels_ = nullptr;  // of rows of A
  Index element_stride_ = 0, len_ = 0, dim_ = 0;
  const float* scales_ = nullptr;
  Dims<3> scale_strides_{};
  const Index* pages_ = nullptr;
  Index pages_per_entry_ = 0, page_rows_ = 0;
};

template <class A>
class RowSource {
 public:
  RowSource(const RowStore<A>& store, Index batch, Index head)
      : store_(store),
        batch_(batch),
        head_(head),
        pages_(store.pages_ == nullptr ? nullptr : store.pages_ + batch * store.pages_per_entry_) {}

  /// Where a row lies.
  const std::byte* address(Index row) const { return store_.data_ + offset(row, store_.bytes_); }
  /// From one row to the next, within a page; and of a row itself.
  Index row_step() const { return store_.bytes_[2]; }
  Index row_bytes() const { return store_.row_bytes_; }
  Index dim() const { return store_.dim_; }

  /// Rows [first, first + count), converted into `scratch` where they cannot be read in place.
  TileRows<A> tile(Index first, Index count, A* scratch) const {
    if (store_.is_direct_ && is_one_run(first, count))
      return {reinterpret_cast<const A*>(address(first)), store_.bytes_[2] / static_cast<Index>(sizeof(A))};
    for (Index done = 0; done < count;) {
      const Index row = first + done;
      const Index n = pages_ == nullptr ? count : std::min(count - done, rows_left_in_page(row));
      store_.kernels_->load(store_.dim_, run(row), n, scratch + done * store_.dim_);
      done += n;
    }
    return {scratch, store_.dim_};
  }
  /// Rows of bfloat16 where they lie, if that is one run of contiguous elements; else no data.
  TileRows<Eigen::bfloat16> bfloat16_tile(Index first, Index count) const {
    if (!store_.holds_bfloat16_ || store_.element_stride_ != 1 || !is_one_run(first, count))
      return {nullptr, 0};
    return {reinterpret_cast<const Eigen::bfloat16*>(address(first)),
            store_.bytes_[2] / static_cast<Index>(sizeof(Eigen::bfloat16))};
  }
  /// The same rows as they are stored; converted only if they are not one run of contiguous rows, or if they
  /// must be of type A.
  StoredTile<A> stored_tile(Index first, Index count, A* scratch, bool as_accumulators = false) const {
    const bool is_stored_so = !as_accumulators || store_.is_direct_;
    if (is_stored_so && store_.element_stride_ == 1 && is_one_run(first, count))
      return {run(first), store_.kernels_};
    const TileRows<A> rows = tile(first, count, scratch);
    return {{reinterpret_cast<const std::byte*>(rows.data), rows.stride * static_cast<Index>(sizeof(A))},
            store_.direct_kernels_};
  }

 private:
  bool is_one_run(Index first, Index count) const {
    return pages_ == nullptr || rows_left_in_page(first) >= count;
  }
  StoredRun run(Index row) const {
    const float* const scales =
        store_.scales_ == nullptr ? nullptr : store_.scales_ + offset(row, store_.scale_strides_);
    return {address(row), store_.bytes_[2], store_.element_stride_, scales, store_.scale_strides_[2]};
  }
  Index rows_left_in_page(Index row) const { return store_.page_rows_ - row % store_.page_rows_; }
  Index offset(Index row, const Dims<3>& strides) const {
    if (pages_ == nullptr) return batch_ * strides[0] + head_ * strides[1] + row * strides[2];
    return pages_[row / store_.page_rows_] * strides[0] + head_ * strides[1] +
           row % store_.page_rows_ * strides[2];
  }

  const RowStore<A>& store_;
  Index batch_, head_;
  const Index* pages_;
};

/// Output rows [batch, heads, len, dim] of any element type and strides.
template <class A>
class RowSink {
 public:
  RowSink() = default;
  template <class E>
  RowSink(const TensorView<E, 4>& rows)  // NOLINT(google-explicit-constructor)
      : data_(reinterpret_cast<std::byte*>(rows.data())),
        bytes_{rows.stride(0) * size_of<E>, rows.stride(1) * size_of<E>, rows.stride(2) * size_of<E>},
        row_bytes_(rows.extent(3) * size_of<E>),
        is_direct_(std::is_same_v<E, A> && (rows.stride(3) == 1 || rows.extent(3) == 1)),
        store_([](const A* from, Index dim, void* to, Index stride) {
          copy_row(from, 1, dim, static_cast<E*>(to), stride);
        }),
        dim_(rows.extent(3)),
        element_stride_(rows.stride(3)) {}

  /// Rows are contiguous elements of A, and may be written where they lie.
  bool is_direct() const { return is_direct_; }
  std::byte* address(Index batch, Index head, Index row) const {
    return data_ + batch * bytes_[0] + head * bytes_[1] + row * bytes_[2];
  }
  /// From one row to the next, and of a row itself.
  Index row_step() const { return bytes_[2]; }
  Index row_bytes() const { return row_bytes_; }
  void write(const A* from, Index batch, Index head, Index row) const {
    store_(from, dim_, address(batch, head, row), element_stride_);
  }

 private:
  template <class E>
  static constexpr auto size_of = static_cast<Index>(sizeof(E));

  std::byte* data_ = nullptr;
  Dims<3> bytes_{};  // from batch entry to batch entry, head to head, row to row
  Index row_bytes_ = 0;
  bool is_direct_ = false;
  void (*store_)(const A* from, Index dim, void* to, Index stride) = nullptr;
  Index dim_ = 0, element_stride_ = 0;
};

/// Value rows cut into strips of a few columns, [strip][row][column]: what the register block reads for P V
/// then lies in one run, whatever the stride of the rows. (Read in place, a strip touches one cache line in
/// each row, and rows a power of two apart compete for the same few sets of the first-level cache.)
template <class A>
struct Strips {
  const A* data;
  Index rows;
  /// The strip that begins at `column`.
  const A* strip(Index column) const { return data + column * rows; }
};

namespace detail {
/// Cuts rows of `dim` columns into strips of `Columns`, the last ones of Columns / 2, ... 1, in the order of
/// for_blocks; fill(row, column, n, to) writes n elements of one, n a constant. `Together`: strips to fill
/// row by row, those that share a cache line of it.
template <int Columns, int Together, class A, class Fill>
ATTN_ALWAYS_INLINE Strips<A> fill_strips(Index count, Index dim, A* strips, Fill fill) {
  const auto cut = [&](Index column, auto width, auto n) ATTN_LAMBDA_INLINE {
    for (Index i = 0; i < count; ++i)
      unroll<n>([&](auto s) ATTN_LAMBDA_INLINE {
        fill(i, column + s * width, width, strips + (column + s * width) * count + i * width);
      });
  };
  Index column = 0;
  constexpr std::integral_constant<int, Columns> whole;
  for (; column + Together * Columns <= dim; column += Together * Columns)
    cut(column, whole, std::integral_constant<int, Together>{});
  for_blocks<Columns>(
      dim, [&](Index c, auto width) ATTN_LAMBDA_INLINE { cut(c, width, std::integral_constant<int, 1>{}); },
      column);
  return {strips, count};
}
}  // namespace detail

/// Cuts rows into strips of `Columns`.
template <int Columns, class A>
ATTN_NOINLINE Strips<A> cut_into_strips(const TileRows<A>& rows, Index count, Index dim, A* strips) {
  constexpr int together = 64 / static_cast<int>(sizeof(A)) / Columns;
  return detail::fill_strips<Columns, together>(
      count, dim, strips, [&](Index row, Index column, auto n, A* to) ATTN_LAMBDA_INLINE {
        const A* const from = rows.data + row * rows.stride + column;
        for (int c = 0; c < n; ++c) to[c] = from[c];
      });
}

/// As cut_into_strips, of pairs of rows: element c of row p of a strip is the pair of the elements in rows 2p
/// and 2p + 1, the last one with 0 if there is no such row. S: bfloat16, or float for rows of such values.
template <int Columns, class S>
ATTN_NOINLINE Strips<float> cut_into_pairs(const TileRows<S>& rows, Index count, Index dim, float* strips) {
  constexpr int together = 64 / static_cast<int>(sizeof(S)) / Columns;
  return detail::fill_strips<Columns, together>(
      (count + 1) / 2, dim, strips, [&](Index pair, Index column, auto n, float* to) ATTN_LAMBDA_INLINE {
        const S* const first = rows.data + 2 * pair * rows.stride + column;
        if (2 * pair + 1 < count)
          pair_rows<n>(first, first + rows.stride, to);
        else
          for (int c = 0; c < n; ++c) to[c] = pair_of(first[c], S(0));
      });
}

/// No NaN and no infinity among `size` elements.
template <class A>
bool all_finite(const A* data, Index size) {
  constexpr int width = packet_width<A>, chains = 4;
  Packet<A> poison[as_size(chains)];  // 0 * x is 0 for finite x, else NaN
  unroll<chains>([&](auto j) ATTN_LAMBDA_INLINE { poison[j] = broadcast(A(0)); });
  Index i = 0;
  for (; i + chains * width <= size; i += chains * width)
    unroll<chains>([&](auto j) ATTN_LAMBDA_INLINE {
      poison[j] = multiply_add(load(data + i + j * width), broadcast(A(0)), poison[j]);
    });
  A rest = sum_of_lanes(add(add(poison[0], poison[1]), add(poison[2], poison[3])));
  for (; i < size; ++i) rest += data[i] * A(0);
  return rest == A(0);
}

/// Turns packet_width rows of contiguous elements into one packet column: to[c * lanes + i] = factor *
/// rows[i][c].
template <class A>
void rows_to_lanes(const A* const* rows, Index dim, A factor, A* to, Index lanes) {
  constexpr int width = packet_width<A>;
  const Packet<A> scale = broadcast(factor);
  Index c = 0;
  for (; c + width <= dim; c += width) {
    PacketSquare<A> square;
    unroll<width>([&](auto i) ATTN_LAMBDA_INLINE { square[i] = mul(scale, load(rows[i] + c)); });
    square.transpose();
    unroll<width>([&](auto i) ATTN_LAMBDA_INLINE { store(to + (c + i) * lanes, square[i]); });
  }
  for (; c < dim; ++c)
    for (int i = 0; i < width; ++i) to[c * lanes + i] = factor * rows[i][c];
}

/// The way back: rows[i][c] = factors[i] * from[c * lanes + i].
template <class A>
void lanes_to_rows(const A* from, Index lanes, const A* factors, Index dim, A* const* rows) {
  constexpr int width = packet_width<A>;
  const Packet<A> scale = load(factors);
  Index c = 0;
  for (; c + width <= dim; c += width) {
    PacketSquare<A> square;
    unroll<width>([&](auto i) ATTN_LAMBDA_INLINE { square[i] = mul(scale, load(from + (c + i) * lanes)); });
    square.transpose();
    unroll<width>([&](auto i) ATTN_LAMBDA_INLINE { store(rows[i] + c, square[i]); });
  }
  for (; c < dim; ++c)
    for (int i = 0; i < width; ++i) rows[i][c] = factors[i] * from[c * lanes + i];
}

}  // namespace kernels
ATTN_NAMESPACE_END
