// attn/ops/activation.hpp - activation functions of every element, and Activation, which chooses one at run
// time.
#pragma once
#include <ostream>

#include "attn/kernels/activation.hpp"
#include "attn/ops/elementwise.hpp"

ATTN_NAMESPACE_BEGIN

/// The function between two layers. Formulas in kernels/activation.hpp.
enum class Activation { identity, relu, gelu, gelu_tanh, silu, tanh, sigmoid, gelu_bloom };

namespace detail {

/// The activation as a function over runs: the one place where the run-time choice becomes code.
template <class A>
kernels::RunFunction<A> activation_of(Activation activation) {
  const auto run = [](auto f) -> kernels::RunFunction<A> {
    return [](const A* in, A* out, Index count) { map_run(count, out, decltype(f){}, in); };
  };
  switch (activation) {
    case Activation::relu:
      return run(kernels::Relu{});
    case Activation::gelu:
      return run(kernels::Gelu{});
    case Activation::gelu_tanh:
      return run(kernels::GeluTanh{});
    case Activation::silu:
      return run(kernels::Silu{});
    case Activation::tanh:
      return run(kernels::Tanh{});
    case Activation::sigmoid:
      return run(kernels::Sigmoid{});
    case Activation::gelu_bloom:
      return run(kernels::GeluBloom{});
    case Activation::identity:
      break;
  }
  return run(kernels::Identity{});
}

#ifdef ATTN_INSTANTIATE
ATTN_INSTANTIATE kernels::RunFunction<float> activation_of<float>(Activation);
ATTN_INSTANTIATE kernels::RunFunction<double> activation_of<double>(Activation);
#endif

}  // namespace detail

/// The name of the enumerator.
inline std::ostream& operator<<(std::ostream& out, Activation activation) {
  constexpr const char* names[] = {"identity", "relu", "gelu",    "gelu_tanh",
                                   "silu",     "tanh", "sigmoid", "gelu_bloom"};
  return out << names[static_cast<int>(activation)];
}

/// out = activation(x), element by element; 16-bit elements are computed in float.
///
/// Any rank and strides; `out` has the extents of x and is x itself (in place) or lies elsewhere.
/// @throws ShapeError if the extents differ or `out` overlaps x in part.
template <TensorLike X, WritableTensor Out>
void activate_into(Activation activation, const X& x, Out&& out, const RunOptions& options = {}) {
  using T = ElementOf<const X>;
  static_assert(Element<T> && std::same_as<T, ElementOf<Out>>,
                "attn: x and out differ in their element type");
  static_assert(rank_of<X> == rank_of<Out>, "attn: x and out differ in rank");
  detail::map_elements("activate", detail::read_view(x), as_view(out),
                       detail::activation_of<Accumulator<T>>(activation), options);
}

/// activation(x) as a new Matrix (rank 2) or Tensor.
template <TensorLike X>
auto activate(Activation activation, const X& x, const RunOptions& options = {}) {
  auto out = detail::make_result<ElementOf<const X>>(detail::read_view(x).extents());
  activate_into(activation, x, out, options);
  return out;
}

/// max(x, 0); NaN stays NaN.
template <TensorLike X>
auto relu(const X& x, const RunOptions& options = {}) {
  return activate(Activation::relu, x, options);
}
/// x * Phi(x) with the normal distribution function Phi, by erf: exact to rounding (a few units in the last
/// place over the whole range, the left tail included).
template <TensorLike X>
auto gelu(const X& x, const RunOptions& options = {}) {
  return activate(Activation::gelu, x, options);
}
/// The tanh approximation of gelu (PyTorch: approximate="tanh").
template <TensorLike X>
auto gelu_tanh(const X& x, const RunOptions& options = {}) {
  return activate(Activation::gelu_tanh, x, options);
}
/// x * sigmoid(x), also called swish.
template <TensorLike X>
auto silu(const X& x, const RunOptions& options = {}) {
  return activate(Activation::silu, x, options);
}
/// Hyperbolic tangent.
template <TensorLike X>
auto tanh(const X& x, const RunOptions& options = {}) {
  return activate(Activation::tanh, x, options);
}
/// 1 / (1 + e^-x).
template <TensorLike X>
auto sigmoid(const X& x, const RunOptions& options = {}) {
  return activate(Activation::sigmoid, x, options);
}

ATTN_NAMESPACE_END
