// attn/ops/linear.hpp - linear_into: y = activation(x W^T + b + residual) on a weight packed beforehand.
#pragma once
#include <cmath>
#include <optional>

#include "attn/kernels/passes.hpp"
#include "attn/ops/activation.hpp"

ATTN_NAMESPACE_BEGIN

struct LinearOptions {
  ExecutorRef executor{};                        ///< default: the calling thread; results do not depend on it
  Workspace* workspace = nullptr;                ///< default: allocated in the call, where any is needed
  Activation activation = Activation::identity;  ///< applied last
};

/// What a packed weight holds; sums run in the accumulator type all the same.
enum class WeightStorage {
  full,      ///< the element type of the weight
  bfloat16,  ///< half the memory of float, and half the time where a product reads it for few rows
  int8,      ///< 8-bit integers with a scale per output: a quarter of both
};

/// A weight [out, in] and a bias [out] in the order of the kernel (kernels/packed_weight.hpp). A value: holds
/// copies, does not follow the originals.
template <Element T>
using PackedLinear = kernels::PackedWeight<Accumulator<T>>;

namespace detail {
template <class S, Element T>
PackedLinear<T> pack_linear_as(const TensorView<const T, 2>& weight, const TensorView<const T, 1>& bias) {
  check(bias.extent(0) == 0 || bias.extent(0) == weight.extent(0), "pack_linear: bias ", bias,
        " does not fit weight ", weight);
  if constexpr (std::is_same_v<S, std::int8_t>)
    for (Index o = 0; o < weight.extent(0); ++o)
      for (Index i = 0; i < weight.extent(1); ++i)
        check<std::invalid_argument>(std::isfinite(static_cast<float>(weight(o, i))), "pack_linear: weight ",
                                     weight, " holds ", static_cast<float>(weight(o, i)), " at [", o, ", ", i,
                                     "], which 8 bits cannot");
  return {std::type_identity<S>{}, weight, bias};
}
}  // namespace detail

/// Packs a weight [out, in] and a bias [out], or no bias: an empty view.
/// @throws ShapeError if the bias does not fit.
template <Element T>
PackedLinear<T> pack_linear(const TensorView<const T, 2>& weight, const TensorView<const T, 1>& bias = {}) {
  return detail::pack_linear_as<T>(weight, bias);
}
/// As above, in a storage; weights of double stay so. An 8-bit weight is within half a scale of the given
/// one, where the scale is the largest weight of its output over 127.
/// @throws std::invalid_argument if a weight that is to be 8-bit is not finite.
template <Element T>
PackedLinear<T> pack_linear(const TensorView<const T, 2>& weight, const TensorView<const T, 1>& bias,
                            WeightStorage storage) {
  if constexpr (!std::is_same_v<T, double>) {
    if (storage == WeightStorage::bfloat16) return detail::pack_linear_as<Eigen::bfloat16>(weight, bias);
    if (storage == WeightStorage::int8) return detail::pack_linear_as<std::int8_t>(weight, bias);
  }
  return pack_linear(weight, bias);
}

namespace detail {

/// Rank-independent rows: [rows, columns] of a view whose leading axes are one run of rows, else nothing.
template <class T, int Rank>
std::optional<kernels::Rows<T>> as_rows(const TensorView<T, Rank>& x) {
  if (x.stride(Rank - 1) != 1 && x.extent(Rank - 1) > 1) return std::nullopt;
  if constexpr (Rank == 1) {
    return kernels::Rows<T>{x.data(), 0};
  } else {
    Index rows = 1, stride = 0;  // of the axes seen so far; the stride of an axis of one row says nothing
    for (int axis = Rank - 1; axis-- > 0;) {
      if (x.extent(axis) == 1) continue;
      if (rows == 1) stride = x.stride(axis);
      if (x.stride(axis) != rows * stride) return std::nullopt;
      rows *= x.extent(axis);
    }
    return kernels::Rows<T>{x.data(), stride};
  }
}

/// Rows that hold what x holds: x itself if its leading axes are one run of rows, else a copy in the frame.
template <class T, int Rank>
kernels::Rows<const T> rows_for_reading(const TensorView<const T, Rank>& x, Workspace::Frame& frame) {
  if (const auto rows = as_rows(x)) return *rows;
  T* const data = frame.template take<T>(x.size()).data();
  copy(x, TensorView<T, Rank>(data, x.extents()));
  return {data, x.extent(Rank - 1)};
}

}  // namespace detail

/// out = activation(x W^T + b + residual).
///
/// x [..., in], out [..., out], any rank, strides and element type; residual as out, or an empty view for
/// none; it may be out itself. Sums run in the accumulator type, over the inputs in a fixed order.
/// @throws ShapeError if the extents do not fit together; std::invalid_argument if out overlaps x, or the
/// residual in part.
template <Element T, int Rank>
void linear_into(const TensorView<const T, Rank>& x, const PackedLinear<T>& weight,
                 const TensorView<T, Rank>& out, const LinearOptions& options = {},
                 const TensorView<const T, Rank>& residual = {}) {
  using A = Accumulator<T>;
  Dims<Rank> wanted = x.extents();
  wanted[Rank - 1] = weight.out();
  check(x.extent(Rank - 1) == weight.in(), "linear_into: x ", x, " does not have the ", weight.in(),
        " inputs of the weight [", weight.out(), ", ", weight.in(), "]");
  check(out.extents() == wanted, "linear_into: out ", out, " should be ", wanted, " for x ", x);
  check(residual.data() == nullptr || residual.extents() == wanted, "linear_into: residual ", residual,
        " should be ", wanted);
  detail::check_distinct("linear_into", "out", out);
  check<std::invalid_argument>(is_disjoint(x, out), "linear_into: out overlaps x ", x);
  check<std::invalid_argument>(residual.data() == nullptr ||
                                   is_same(residual, TensorView<const T, Rank>(out)) ||
                                   is_disjoint(residual, out),
                               "linear_into: out overlaps residual ", residual,
                               " in part; it may be residual itself or lie elsewhere");
  if (out.size() == 0) return;

  Workspace local;
  Workspace& workspace = options.workspace != nullptr ? *options.workspace : local;
  Workspace::Frame frame(workspace);
  kernels::ProjectionArguments<A> arguments;
  arguments.x = detail::rows_for_reading(x, frame);
  if constexpr (!std::is_same_v<T, A>) arguments.type = &kernels::row_type<A, T>();
  arguments.tokens = out.size() / weight.out();
  arguments.weight = &weight;
  if (residual.data() != nullptr) arguments.residual = detail::rows_for_reading(residual, frame);
  if (options.activation != Activation::identity)
    arguments.epilogue = detail::activation_of<A>(options.activation);

  const std::optional<kernels::Rows<T>> rows = detail::as_rows(out);
  const auto y = rows ? *rows : kernels::Rows<T>{frame.template take<T>(out.size()).data(), weight.out()};
  arguments.y = y;
  kernels::run_projection(arguments, options.executor, workspace);
  if (!rows) copy(TensorView<const T, Rank>(y.data, wanted), out);
}

#ifdef ATTN_INSTANTIATE
#define ATTN_INSTANTIATE_LINEAR(T, Rank)                                                      \
  ATTN_INSTANTIATE void linear_into(const TensorView<const T, Rank>&, const PackedLinear<T>&, \
                                    const TensorView<T, Rank>&, const LinearOptions&,         \
                                    const TensorView<const T, Rank>&);
ATTN_INSTANTIATE_LINEAR(float, 2)
ATTN_INSTANTIATE_LINEAR(float, 3)
ATTN_INSTANTIATE_LINEAR(double, 2)
ATTN_INSTANTIATE_LINEAR(double, 3)
#undef ATTN_INSTANTIATE_LINEAR
#endif

ATTN_NAMESPACE_END
