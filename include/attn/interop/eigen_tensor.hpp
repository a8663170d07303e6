// attn/interop/eigen_tensor.hpp - Eigen::Tensor, TensorFixedSize and TensorMap as they are, of either layout.
//
// Declares the three templates instead of including them: who has such a tensor has included
// unsupported/Eigen/CXX11/Tensor, and nobody else pays for it.
#pragma once
#include "attn/core/tensor_traits.hpp"

namespace Eigen {
template <typename Scalar, int NumIndices, int Options, typename IndexType>
class Tensor;
template <typename Scalar, typename Dimensions, int Options, typename IndexType>
class TensorFixedSize;
template <typename PlainObjectType, int Options, template <class> class MakePointer>
class TensorMap;
}  // namespace Eigen

ATTN_NAMESPACE_BEGIN

namespace detail {

/// An index of the type that is asked for: Eigen 3.4's tensors take a signed or an unsigned one.
struct AnyInteger {
  int value;
  template <std::integral Integer>
  operator Integer() const {  // NOLINT(google-explicit-constructor)
    return static_cast<Integer>(value);
  }
};

/// Axis i of the view is dimension i of the tensor; an Eigen::Tensor is column-major unless it says RowMajor.
struct EigenTensorTraits {
  template <class X>
  static auto view(X& x) {
    constexpr int rank = static_cast<int>(X::NumDimensions);
    static_assert(rank >= 1, "attn: a tensor without axes has no view");
    Dims<rank> extents{}, strides{};
    Index step = 1;
    for (int i = 0; i < rank; ++i) {
      const int axis = static_cast<int>(X::Layout) == static_cast<int>(Eigen::RowMajor) ? rank - 1 - i : i;
      extents[axis] = static_cast<Index>(x.dimension(AnyInteger{axis}));
      strides[axis] = step;
      step *= extents[axis];
    }
    return TensorView<std::remove_pointer_t<decltype(x.data())>, rank>(x.data(), extents, strides);
  }
};

}  // namespace detail

template <typename Scalar, int NumIndices, int Options, typename IndexType>
struct TensorTraits<Eigen::Tensor<Scalar, NumIndices, Options, IndexType>> : detail::EigenTensorTraits {};

template <typename Scalar, typename Dimensions, int Options, typename IndexType>
struct TensorTraits<Eigen::TensorFixedSize<Scalar, Dimensions, Options, IndexType>>
    : detail::EigenTensorTraits {};

/// A map of a const tensor gives a read-only view; a const map of a tensor does not, as in Eigen.
template <typename PlainObjectType, int Options, template <class> class MakePointer>
struct TensorTraits<Eigen::TensorMap<PlainObjectType, Options, MakePointer>> : detail::EigenTensorTraits {};

ATTN_NAMESPACE_END
