// attn/ops/rows.hpp - a loop over rows along any axis or adjacent axes of a tensor, for softmax and norms.
#pragma once
#include "attn/ops/elementwise.hpp"

ATTN_NAMESPACE_BEGIN

/// The axes whose elements form one row: from `first` to `last`, both included; negative counts from the end.
/// {-1, -1}: the last axis. {1, -1}: all axes from number 1 on. {0, 0}: columns of a matrix.
struct RowAxes {
  int first = -1;
  int last = -1;
};

namespace detail {

/// A view seen as rows: its axes in an order that has those of the rows last.
template <class T, int Rank>
class Rows {
 public:
  Rows(const char* name, const TensorView<T, Rank>& x, RowAxes axes) : view_(x) {
    const int first = axes.first < 0 ? axes.first + Rank : axes.first;
    const int last = axes.last < 0 ? axes.last + Rank : axes.last;
    check(0 <= first && first <= last && last < Rank, name, ": there are no axes ", axes.first, " to ",
          axes.last, " in x ", x);
    const int row_axes = last + 1 - first;
    outer_axes_ = Rank - row_axes;
    Dims<Rank> extents{}, strides{};
    for (int i = 0; i < Rank; ++i) {
      const int axis = i < first ? i : i < outer_axes_ ? i + row_axes : i - outer_axes_ + first;
      extents[i] = x.extent(axis);
      strides[i] = x.stride(axis);
    }
    view_ = {x.data(), extents, strides};
    for (int axis = 0; axis < outer_axes_; ++axis) count_ *= extents[axis];
    for (int axis = outer_axes_; axis < Rank; ++axis) size_ *= extents[axis];
  }

  Index count() const { return count_; }
  Index size() const { return size_; }

  bool is_contiguous() const {
    Index step = 1;
    for (int axis = Rank; axis-- > outer_axes_;) {
      if (view_.extent(axis) != 1 && view_.stride(axis) != step) return false;
      step *= view_.extent(axis);
    }
    return true;
  }

  T* data(Index row) const { return view_.data() + offset(row, 0, outer_axes_); }

  /// Calls f(pointer, stride, begin, count) for the runs of a row in order; begin: elements before the run.
  template <class F>
  void for_each_run(Index row, F f) const {
    const Index length = view_.extent(Rank - 1);
    T* const start = data(row);
    for (Index run = 0; run * length < size_; ++run)
      f(start + offset(run, outer_axes_, Rank - 1), view_.stride(Rank - 1), run * length, length);
  }

 private:
  /// Offset of item `index` of the axes [begin, end) in row-major order.
  Index offset(Index index, int begin, int end) const {
    Index sum = 0;
    for (int axis = Rank; axis-- > 0;) {  // fixed bounds: g++ 12 warns of axis -1 otherwise
      if (axis < begin || axis >= end) continue;
      sum += index % view_.extent(axis) * view_.stride(axis);
      index /= view_.extent(axis);
    }
    return sum;
  }

  TensorView<T, Rank> view_;
  int outer_axes_ = 0;
  Index count_ = 1, size_ = 1;
};

/// f(const A* in, A* out, Index size) for each row, A = Accumulator<T>; in and out may be the same memory.
/// Rows that are not contiguous memory of type A are gathered first.
template <class T, int Rank, class F>
void map_rows(const char* name, const TensorView<const T, Rank>& x, const TensorView<T, Rank>& out,
              RowAxes axes, const RunOptions& options, F f) {
  using A = Accumulator<T>;
  check_elementwise(name, x, out);
  const Rows<const T, Rank> from(name, x, axes);
  const Rows<T, Rank> to(name, out, axes);
  const Index size = from.size();
  if (x.size() == 0) return;
  const bool direct = std::is_same_v<A, T> && from.is_contiguous() && to.is_contiguous();
  Workspace local;
  Workspace::Frame frame(options.workspace ? *options.workspace : local);
  A* const gathered = direct ? nullptr : frame.take<A>(options.executor.concurrency() * size).data();
  const auto map_row = [&](Index row, Index worker) {
    if constexpr (std::is_same_v<A, T>) {
      if (direct) return f(from.data(row), to.data(row), size);
    }
    A* const scratch = gathered + worker * size;
    from.for_each_run(row, [&](const T* run, Index stride, Index begin, Index count) {
      kernels::copy_row(run, stride, count, scratch + begin, 1);
    });
    f(static_cast<const A*>(scratch), scratch, size);
    to.for_each_run(row, [&](T* run, Index stride, Index begin, Index count) {
      kernels::copy_row(scratch + begin, 1, count, run, stride);
    });
  };
  const Index rows_per_task = std::max<Index>(1, elements_per_task / size);
  const auto map_task = [&](Index task, Index worker) {
    const Index end = std::min(from.count(), (task + 1) * rows_per_task);
    for (Index row = task * rows_per_task; row < end; ++row) map_row(row, worker);
  };
  options.executor.parallel_for((from.count() + rows_per_task - 1) / rows_per_task, map_task);
}

/// Combines the packets of f over contiguous memory with `combine`, several side by side, then those, then
/// the lanes; lanes past the end start and stay at `neutral`. Side by side they need not wait for each other,
/// and rounding errors of a sum grow with a part of its length only.
template <class T, class F, class Combine>
T reduce_run(const T* x, Index count, T neutral, F f, Combine combine) {
  constexpr int width = kernels::packet_width<T>, together = std::max(4, 16 / width);
  kernels::Packet<T> sums[std::size_t{together}];
  std::fill(sums, sums + together, kernels::broadcast(neutral));
  Index i = 0;
  for (; i + together * width <= count; i += together * width)
    kernels::unroll<together>(
        [&](auto s) ATTN_LAMBDA_INLINE { sums[s] = combine(f(kernels::load(x + i + s * width)), sums[s]); });
  auto sum = sums[0];
  for (int s = 1; s < together; ++s) sum = combine(sums[s], sum);
  for (; i + width <= count; i += width) sum = combine(f(kernels::load(x + i)), sum);
  T lanes[std::size_t{width}];
  kernels::store(lanes, sum);
  if (i < count) {
    T rest[std::size_t{width}] = {};
    std::copy_n(x + i, count - i, rest);
    T values[std::size_t{width}];
    kernels::store(values, combine(f(kernels::load(rest)), sum));
    std::copy_n(values, count - i, lanes);
  }
  T total = lanes[0];
  for (Index lane = 1; lane < width; ++lane) total = combine(lanes[lane], total);
  return total;
}

/// Sum of f over contiguous memory.
template <class T, class F>
T sum_run(const T* x, Index count, F f) {
  struct Add {
    T operator()(T a, T b) const { return a + b; }
    auto operator()(const kernels::Packet<T>& a, const kernels::Packet<T>& b) const
        requires(kernels::packet_width<T> > 1) {
      return kernels::add(a, b);
    }
  };
  return reduce_run(x, count, T(0), f, Add{});
}

}  // namespace detail
ATTN_NAMESPACE_END
