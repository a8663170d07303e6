// attn/ops/norm.hpp - layer normalisation and root-mean-square normalisation over any adjacent axes.
#pragma once
#include <cmath>

#include "attn/ops/rows.hpp"

ATTN_NAMESPACE_BEGIN

struct NormOptions {
  double eps = 1e-5;               ///< added to the mean square, before the root
  RowAxes axes{};                  ///< the axes normalised over; default: the last
  ExecutorRef executor{};          ///< default: the calling thread; the result does not depend on it
  Workspace* workspace = nullptr;  ///< default: allocated in the call, where needed at all
};

/// In the place of a weight or bias: there is none.
struct NoAffine {};

namespace detail {

/// Values that are constant along rows: a weight or a bias, as contiguous memory of type A, or null.
template <class A, class X>
const A* affine_values(const char* name, const char* role, const X& x, Index size, Workspace::Frame& frame) {
  if constexpr (std::is_same_v<X, NoAffine>) {
    return nullptr;
  } else {
    const auto view = read_view(x);
    check(view.size() == size, name, ": ", role, " ", view, " does not fit rows of ", size, " elements");
    if constexpr (std::is_same_v<ElementOf<X>, A>) {
      if (view.is_contiguous()) return view.data();
    }
    A* const values = frame.take<A>(size).data();
    const Rows<std::remove_pointer_t<decltype(view.data())>, rank_of<X>> rows(name, view, {0, -1});
    rows.for_each_run(0, [&](const auto* run, Index stride, Index begin, Index count) {
      kernels::copy_row(run, stride, count, values + begin, 1);
    });
    return values;
  }
}

/// out = center_and_scale(x) * weight + bias; null weight: 1, null bias: 0.
template <class A, class F>
void affine_run(const A* x, A* out, Index size, const A* weight, const A* bias, F center_and_scale) {
  if (weight && bias) {
    const auto f = [&](const auto& v, const auto& w, const auto& b)
                       ATTN_LAMBDA_INLINE { return kernels::multiply_add(center_and_scale(v), w, b); };
    map_run(size, out, f, x, weight, bias);
  } else if (weight) {
    const auto f = [&](const auto& v, const auto& w)
                       ATTN_LAMBDA_INLINE { return kernels::mul(center_and_scale(v), w); };
    map_run(size, out, f, x, weight);
  } else if (bias) {
    const auto f = [&](const auto& v, const auto& b)
                       ATTN_LAMBDA_INLINE { return kernels::add(center_and_scale(v), b); };
    map_run(size, out, f, x, bias);
  } else {
    map_run(size, out, center_and_scale, x);
  }
}

/// The mean is found in two steps, first roughly and then from the differences to that, so that the small
/// deviations of a row far from zero keep their digits; the variance comes from the same differences.
template <class A>
void layer_norm_row(const A* x, A* out, Index size, const A* weight, const A* bias, A eps) {
  const A count = static_cast<A>(size);
  const A rough = sum_run(x, size, [](const auto& v) { return v; }) / count;
  const auto away = [&](const auto& v)
                        ATTN_LAMBDA_INLINE { return kernels::sub(v, kernels::broadcast(rough)); };
  const A rest = sum_run(x, size, away) / count;
  const auto centered = [&](const auto& v)
                            ATTN_LAMBDA_INLINE { return kernels::sub(away(v), kernels::broadcast(rest)); };
  const A variance = sum_run(x, size,
                             [&](const auto& v) ATTN_LAMBDA_INLINE {
                               const auto d = centered(v);
                               return kernels::mul(d, d);
                             }) /
                     count;
  const A factor = 1 / std::sqrt(variance + eps);
  affine_run(x, out, size, weight, bias, [&](const auto& v) ATTN_LAMBDA_INLINE {
    return kernels::mul(centered(v), kernels::broadcast(factor));
  });
}

template <class A>
void rms_norm_row(const A* x, A* out, Index size, const A* weight, const A* bias, A eps) {
  const A square = sum_run(x, size, [](const auto& v) { return kernels::mul(v, v); }) / static_cast<A>(size);
  const A factor = 1 / std::sqrt(square + eps);
  affine_run(x, out, size, weight, bias,
             [&](const auto& v) ATTN_LAMBDA_INLINE { return kernels::mul(v, kernels::broadcast(factor)); });
}

/// Writes one row from another, with a weight and a bias that may be null.
template <class A>
using NormRow = void (*)(const A* x, A* out, Index size, const A* weight, const A* bias, A eps);

template <class T, int Rank>
void norm_rows(const char* name, const TensorView<const T, Rank>& x, const TensorView<T, Rank>& out,
               RowAxes axes, const RunOptions& options, NormRow<Accumulator<T>> row,
               const Accumulator<T>* weight, const Accumulator<T>* bias, Accumulator<T> eps) {
  using A = Accumulator<T>;
  map_rows(name, x, out, axes, options,
           [=](const A* in, A* to, Index size) { row(in, to, size, weight, bias, eps); });
}

#ifdef ATTN_INSTANTIATE
#define ATTN_INSTANTIATE_NORM_ROWS(T, Rank)                                                                  \
  ATTN_INSTANTIATE void norm_rows(const char*, const TensorView<const T, Rank>&, const TensorView<T, Rank>&, \
                                  RowAxes, const RunOptions&, NormRow<T>, const T*, const T*, T);
// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define ATTN_INSTANTIATE_NORMS(T)                                                   \
  ATTN_INSTANTIATE void layer_norm_row(const T*, T*, Index, const T*, const T*, T); \
  ATTN_INSTANTIATE void rms_norm_row(const T*, T*, Index, const T*, const T*, T);   \
  ATTN_INSTANTIATE_NORM_ROWS(T, 2)                                                  \
  ATTN_INSTANTIATE_NORM_ROWS(T, 3)                                                  \
  ATTN_INSTANTIATE_NORM_ROWS(T, 4)
// NOLINTEND(bugprone-macro-parentheses)
ATTN_INSTANTIATE_NORMS(float)
ATTN_INSTANTIATE_NORMS(double)
#undef ATTN_INSTANTIATE_NORMS
#undef ATTN_INSTANTIATE_NORM_ROWS
#endif

template <class X, class Weight, class Bias, class Out>
void norm_into(const char* name, const X& x, const Weight& weight, const Bias& bias, Out&& out,
               const NormOptions& options, NormRow<Accumulator<ElementOf<const X>>> row) {
  using T = ElementOf<const X>;
  using A = Accumulator<T>;
  static_assert(Element<T> && std::same_as<T, ElementOf<Out>>,
                "attn: x and out differ in their element type");
  static_assert(rank_of<X> == rank_of<Out>, "attn: x and out differ in rank");
  Workspace local;
  Workspace& workspace = options.workspace ? *options.workspace : local;
  Workspace::Frame frame(workspace);
  const Index size = Rows<const T, rank_of<X>>(name, read_view(x), options.axes).size();
  const A* const w = affine_values<A>(name, "weight", weight, size, frame);
  const A* const b = affine_values<A>(name, "bias", bias, size, frame);
  const A eps = static_cast<A>(options.eps);
  norm_rows(name, read_view(x), as_view(out), options.axes, {options.executor, &workspace}, row, w, b, eps);
}

}  // namespace detail

/// A weight or bias of a norm: a tensor, or NoAffine.
template <class X>
concept AffineLike = TensorLike<const X> || std::same_as<X, NoAffine>;

/// out = (x - mean) / sqrt(variance + eps) * weight + bias over each row (Ba, Kiros, Hinton 2016), with the
/// variance of the population (division by the count).
///
/// Any rank and strides; weight and bias have as many elements as a row, in its order, of any element type;
/// NoAffine{} leaves one out. `out` has the extents of x and is x itself or lies elsewhere. 16-bit elements
/// are computed in float.
/// @throws ShapeError if the extents do not fit, `out` overlaps x in part, or there are no such axes.
template <TensorLike X, AffineLike Weight, AffineLike Bias, WritableTensor Out>
void layer_norm_into(const X& x, const Weight& weight, const Bias& bias, Out&& out,
                     const NormOptions& options = {}) {
  detail::norm_into("layer_norm", x, weight, bias, out, options,
                    detail::layer_norm_row<Accumulator<ElementOf<const X>>>);
}

/// layer_norm as a new Matrix (rank 2) or Tensor.
template <TensorLike X, AffineLike Weight = NoAffine, AffineLike Bias = NoAffine>
auto layer_norm(const X& x, const Weight& weight = {}, const Bias& bias = {},
                const NormOptions& options = {}) {
  auto out = detail::make_result<ElementOf<const X>>(detail::read_view(x).extents());
  layer_norm_into(x, weight, bias, out, options);
  return out;
}

/// out = x / sqrt(mean(x^2) + eps) * weight over each row (Zhang, Sennrich 2019). Otherwise as
/// layer_norm_into.
template <TensorLike X, AffineLike Weight, WritableTensor Out>
void rms_norm_into(const X& x, const Weight& weight, Out&& out, const NormOptions& options = {}) {
  detail::norm_into("rms_norm", x, weight, NoAffine{}, out, options,
                    detail::rms_norm_row<Accumulator<ElementOf<const X>>>);
}

/// rms_norm as a new Matrix (rank 2) or Tensor.
template <TensorLike X, AffineLike Weight = NoAffine>
auto rms_norm(const X& x, const Weight& weight = {}, const NormOptions& options = {}) {
  auto out = detail::make_result<ElementOf<const X>>(detail::read_view(x).extents());
  rms_norm_into(x, weight, out, options);
  return out;
}

ATTN_NAMESPACE_END
