// attn/ops/softmax.hpp - softmax and its logarithm along any axis.
#pragma once
#include <cmath>
#include <limits>

#include "attn/ops/rows.hpp"

ATTN_NAMESPACE_BEGIN

struct SoftmaxOptions {
  int axis = -1;           ///< of the rows that sum to 1; negative counts from the end
  ExecutorRef executor{};  ///< default: the calling thread; the result does not depend on it
  Workspace* workspace =
      nullptr;  ///< default: allocated in the call, and only for rows that are not contiguous
};

namespace detail {

/// What is subtracted before exponentials are taken: the largest element, or 0 in a row of -inf only. A NaN
/// need not be found: it comes through in the sum.
template <class A>
A softmax_shift(const A* x, Index size) {
  A largest = -std::numeric_limits<A>::infinity();
  for (Index i = 0; i < size; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest == -std::numeric_limits<A>::infinity() ? A(0) : largest;
}

/// e^(x - shift) on packets; exactly 0 for -inf.
template <class A>
struct ShiftedExp {
  A shift;
  template <class P>
  ATTN_ALWAYS_INLINE P operator()(const P& x) const {
    const P log2e = kernels::broadcast(A(1.4426950408889634074));
    return kernels::exp2(kernels::mul(kernels::sub(x, kernels::broadcast(shift)), log2e));
  }
};

template <class A>
void softmax_row(const A* x, A* out, Index size) {
  map_run(size, out, ShiftedExp<A>{softmax_shift(x, size)}, x);
  const A sum = sum_run(static_cast<const A*>(out), size, [](const auto& e) { return e; });
  const A factor = sum == 0 ? A(0) : 1 / sum;
  const auto scale = [&](const auto& e)
                         ATTN_LAMBDA_INLINE { return kernels::mul(e, kernels::broadcast(factor)); };
  map_run(size, out, scale, static_cast<const A*>(out));
}

template <class A>
void log_softmax_row(const A* x, A* out, Index size) {
  const A shift = softmax_shift(x, size);
  const A sum = sum_run(x, size, ShiftedExp<A>{shift});
  const A log_sum = sum == 0 ? A(0) : std::log(sum);
  const auto subtract = [&](const auto& e) ATTN_LAMBDA_INLINE {
    return kernels::sub(kernels::sub(e, kernels::broadcast(shift)), kernels::broadcast(log_sum));
  };
  map_run(size, out, subtract, x);
}

#ifdef ATTN_INSTANTIATE
ATTN_INSTANTIATE void softmax_row(const float*, float*, Index);
ATTN_INSTANTIATE void softmax_row(const double*, double*, Index);
ATTN_INSTANTIATE void log_softmax_row(const float*, float*, Index);
ATTN_INSTANTIATE void log_softmax_row(const double*, double*, Index);
#endif

template <class X, class Out, class F>
void softmax_into(const char* name, const X& x, Out&& out, const SoftmaxOptions& options, F row) {
  using T = ElementOf<const X>;
  static_assert(Element<T> && std::same_as<T, ElementOf<Out>>,
                "attn: x and out differ in their element type");
  static_assert(rank_of<X> == rank_of<Out>, "attn: x and out differ in rank");
  map_rows(name, read_view(x), as_view(out), {options.axis, options.axis},
           {options.executor, options.workspace}, row);
}

}  // namespace detail

/// out = e^x / sum(e^x) along one axis; 16-bit elements are computed in float.
///
/// Any rank and strides; `out` has the extents of x and is x itself or lies elsewhere. Elements of -inf give
/// exactly 0. A row of nothing but -inf gives zeros, as a query that sees no key does everywhere in attn
/// (PyTorch: NaN). A row with +inf or NaN gives NaN.
/// @throws ShapeError if the extents differ, `out` overlaps x in part, or there is no such axis.
template <TensorLike X, WritableTensor Out>
void softmax_into(const X& x, Out&& out, const SoftmaxOptions& options = {}) {
  using A = Accumulator<ElementOf<const X>>;
  detail::softmax_into("softmax", x, out, options, detail::softmax_row<A>);
}

/// softmax as a new Matrix (rank 2) or Tensor.
template <TensorLike X>
auto softmax(const X& x, const SoftmaxOptions& options = {}) {
  auto out = detail::make_result<ElementOf<const X>>(detail::read_view(x).extents());
  softmax_into(x, out, options);
  return out;
}

/// out = x - log(sum(e^x)) along one axis: the logarithm of softmax, without its underflow. A row of nothing
/// but -inf gives -inf. Otherwise as softmax_into.
template <TensorLike X, WritableTensor Out>
void log_softmax_into(const X& x, Out&& out, const SoftmaxOptions& options = {}) {
  using A = Accumulator<ElementOf<const X>>;
  detail::softmax_into("log_softmax", x, out, options, detail::log_softmax_row<A>);
}

/// log_softmax as a new Matrix (rank 2) or Tensor.
template <TensorLike X>
auto log_softmax(const X& x, const SoftmaxOptions& options = {}) {
  auto out = detail::make_result<ElementOf<const X>>(detail::read_view(x).extents());
  log_softmax_into(x, out, options);
  return out;
}

ATTN_NAMESPACE_END
