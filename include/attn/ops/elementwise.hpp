// attn/ops/elementwise.hpp - what the operations on all elements or all rows of a tensor share: results,
// checks, and loops over views of any strides and element type.
#pragma once
#include <algorithm>

#include "attn/core/executor.hpp"
#include "attn/core/overlap.hpp"
#include "attn/core/tensor.hpp"
#include "attn/core/workspace.hpp"
#include "attn/kernels/rows.hpp"

ATTN_NAMESPACE_BEGIN

/// Where an operation runs, and what scratch memory it uses.
struct RunOptions {
  ExecutorRef executor{};          ///< default: the calling thread; results do not depend on it
  Workspace* workspace = nullptr;  ///< default: allocated in the call, where any is needed
};

/// What an operation returns: Matrix<T> for rank 2, else Tensor<T, Rank>.
template <Element T, int Rank>
using Result = std::conditional_t<Rank == 2, Matrix<T>, Tensor<T, Rank>>;

namespace detail {

template <Element T, int Rank>
Result<T, Rank> make_result(const Dims<Rank>& extents) {
  if constexpr (Rank == 2)
    return Matrix<T>(extents[0], extents[1]);
  else
    return Tensor<T, Rank>(extents);
}

template <class X>
using ReadView = TensorView<const ElementOf<X>, rank_of<X>>;
template <class X>
ReadView<const X> read_view(const X& x) {
  return as_view(x);
}

/// An elementwise result may replace its input, or lie elsewhere; anything between is an error.
template <class T, int Rank>
void check_elementwise(const char* name, const TensorView<const T, Rank>& x, const TensorView<T, Rank>& out) {
  check(x.extents() == out.extents(), name, ": x ", x, " and out ", out, " differ in extents");
  check_distinct(name, "out", out);
  check(is_same(x, TensorView<const T, Rank>(out)) || is_disjoint(x, out), name, ": out ", out,
        " overlaps x ", x, " in part; it may be x itself or lie elsewhere");
}

/// Number of rows along the last axis.
template <class T, int Rank>
Index row_count(const TensorView<T, Rank>& x) {
  Index rows = 1;
  for (int axis = 0; axis + 1 < Rank; ++axis) rows *= x.extent(axis);
  return rows;
}

/// First element of row `row`, rows counted over all axes but the last.
template <class T, int Rank>
T* row_data(const TensorView<T, Rank>& x, Index row) {
  Index offset = 0;
  for (int axis = Rank - 1; axis-- > 0;) {
    offset += row % x.extent(axis) * x.stride(axis);
    row /= x.extent(axis);
  }
  return x.data() + offset;
}

/// out[i] = f(in[i]...) on packets for contiguous memory; `out` may be one of the inputs.
template <class T, class F, class... In>
void map_run(Index count, T* out, F f, const In*... in) {
  constexpr Index width = kernels::packet_width<T>;
  Index i = 0;
  for (; i + width <= count; i += width) kernels::store(out + i, f(kernels::load(in + i)...));
  if (i == count) return;
  const auto padded = [&](const T* run) {
    T lanes[std::size_t{width}] = {};
    std::copy_n(run + i, count - i, lanes);
    return kernels::load(lanes);
  };
  T lanes[std::size_t{width}];
  kernels::store(lanes, f(padded(in)...));
  std::copy_n(lanes, count - i, out + i);
}

/// f over any stride and element type, in pieces that are gathered into float or double.
template <class T>
void map_strided(Index count, const T* in, Index in_stride, T* out, Index out_stride,
                 kernels::RunFunction<Accumulator<T>> f) {
  using A = Accumulator<T>;
  if constexpr (std::is_same_v<A, T>) {
    if (in_stride == 1 && out_stride == 1) return f(in, out, count);
  }
  constexpr Index piece = 128;
  A values[std::size_t{piece}];
  for (Index i = 0; i < count; i += piece) {
    const Index n = std::min(piece, count - i);
    kernels::copy_row(in + i * in_stride, in_stride, n, values, 1);
    f(values, values, n);
    kernels::copy_row(values, 1, n, out + i * out_stride, out_stride);
  }
}

/// Elements that one task handles: enough to be worth handing over, chosen by shape alone.
inline constexpr Index elements_per_task = 1 << 14;

/// out = f(x) element by element.
template <class T, int Rank>
void map_elements(const char* name, const TensorView<const T, Rank>& x, const TensorView<T, Rank>& out,
                  kernels::RunFunction<Accumulator<T>> f, const RunOptions& options) {
  check_elementwise(name, x, out);
  const bool flat = x.is_contiguous() && out.is_contiguous();
  const Index row_size = flat ? x.size() : x.extent(Rank - 1);
  if (row_size == 0) return;
  const Index rows = flat ? 1 : row_count(x);
  const Index step = flat ? 1 : x.stride(Rank - 1), out_step = flat ? 1 : out.stride(Rank - 1);
  const Index runs_per_row = (row_size + elements_per_task - 1) / elements_per_task;
  const Index rows_per_task = std::max<Index>(1, elements_per_task / row_size);
  const auto map_rows = [&](Index task, Index) {
    const Index run = task % runs_per_row * elements_per_task;
    const Index first = task / runs_per_row * rows_per_task;
    for (Index row = first; row < std::min(rows, first + rows_per_task); ++row)
      map_strided(std::min(elements_per_task, row_size - run), row_data(x, row) + run * step, step,
                  row_data(out, row) + run * out_step, out_step, f);
  };
  options.executor.parallel_for(runs_per_row * ((rows + rows_per_task - 1) / rows_per_task), map_rows);
}

/// out[i] *= x[i] for any stride and element types, computed in the accumulator type.
template <class X, class T>
void multiply_strided(Index count, const X* x, Index x_stride, T* out, Index out_stride) {
  using A = Accumulator<T>;
  const auto product = [](const auto& a, const auto& b) ATTN_LAMBDA_INLINE { return kernels::mul(a, b); };
  if constexpr (std::is_same_v<A, T> && std::is_same_v<A, X>) {
    if (x_stride == 1 && out_stride == 1) return map_run(count, out, product, x, static_cast<const T*>(out));
  }
  for (Index i = 0; i < count; ++i)
    out[i * out_stride] =
        static_cast<T>(static_cast<A>(out[i * out_stride]) * static_cast<A>(x[i * x_stride]));
}

}  // namespace detail

/// out *= x, element by element. Any rank and strides; x may repeat elements by strides of 0.
/// @throws ShapeError if the extents differ or the two overlap.
template <TensorLike X, WritableTensor Out>
void multiply_into(const X& x, Out&& out, const RunOptions& options = {}) {
  static_assert(rank_of<X> == rank_of<Out>, "attn: x and out differ in rank");
  const auto from = detail::read_view(x);
  const auto to = as_view(out);
  constexpr int last = rank_of<X> - 1;
  check(from.extents() == to.extents(), "multiply: x ", from, " and out ", to, " differ in extents");
  check(is_disjoint(from, to), "multiply: out ", to, " overlaps x ", from);
  if (to.size() == 0) return;
  const Index row_size = to.extent(last), rows = detail::row_count(to);
  const Index rows_per_task = std::max<Index>(1, detail::elements_per_task / row_size);
  options.executor.parallel_for((rows + rows_per_task - 1) / rows_per_task, [&](Index task, Index) {
    for (Index row = task * rows_per_task; row < std::min(rows, (task + 1) * rows_per_task); ++row)
      detail::multiply_strided(row_size, detail::row_data(from, row), from.stride(last),
                               detail::row_data(to, row), to.stride(last));
  });
}

ATTN_NAMESPACE_END
