// attn/core/tensor_traits.hpp - TensorTraits: how a caller's container becomes a TensorView (the adaptation
// point).
#pragma once
#include <type_traits>
#include <utility>

#include "attn/core/tensor_view.hpp"

ATTN_NAMESPACE_BEGIN

/// Specialise with `static auto view(X&)` and `static auto view(const X&)`, each returning a TensorView, to
/// let `X` be passed to attn.
template <class X>
struct TensorTraits;

template <class T, int Rank>
struct TensorTraits<TensorView<T, Rank>> {
  static TensorView<T, Rank> view(const TensorView<T, Rank>& x) { return x; }
};

/// Any dense Eigen object with directly addressable storage: Matrix, Array, Map, Ref, Block, of either
/// storage order. Rank 2, [rows, cols]. Expressions have no storage and are not accepted: evaluate them
/// first.
template <class X>
  requires(std::is_base_of_v<Eigen::DenseBase<X>, X> && (X::Flags & Eigen::DirectAccessBit) != 0)
struct TensorTraits<X> {
  static auto view(X& x) requires((X::Flags & Eigen::LvalueBit) != 0) {
    return TensorView<std::remove_pointer_t<decltype(x.data())>, 2>(x.data(), {x.rows(), x.cols()},
                                                                    strides(x));
  }
  static auto view(const X& x) {
    return TensorView<const typename X::Scalar, 2>(x.data(), {x.rows(), x.cols()}, strides(x));
  }

 private:
  static Dims<2> strides(const X& x) {
    return X::IsRowMajor ? Dims<2>{x.outerStride(), x.innerStride()}
                         : Dims<2>{x.innerStride(), x.outerStride()};
  }
};

/// A container, view or Eigen object that has storage which attn can look at.
template <class X>
concept TensorLike = requires(X& x) {
  TensorTraits<std::remove_cvref_t<X>>::view(x);
};

/// The view of a container; const containers give read-only views.
template <TensorLike X>
auto as_view(X&& x) {
  return TensorTraits<std::remove_cvref_t<X>>::view(x);
}

/// A TensorLike whose elements may be assigned through its view.
template <class X>
concept WritableTensor =
    TensorLike<X> && !std::is_const_v<typename decltype(as_view(std::declval<X&>()))::element_type>;

/// Element type of a TensorLike, without const.
template <TensorLike X>
using ElementOf = typename decltype(as_view(std::declval<X&>()))::value_type;

/// Rank of a TensorLike.
template <TensorLike X>
inline constexpr int rank_of = decltype(as_view(std::declval<X&>()))::rank;

/// The view with leading axes of extent 1 up to rank `To`: [len, dim] becomes [1, 1, len, dim].
template <int To, class T, int Rank>
TensorView<T, To> with_rank(const TensorView<T, Rank>& x) {
  static_assert(Rank <= To, "attn: this tensor has more axes than the function takes");
  Dims<To> extents{}, strides{};
  for (int axis = 0; axis < To; ++axis) {
    const int source = axis - (To - Rank);
    extents[axis] = source < 0 ? 1 : x.extent(source);
    strides[axis] = source < 0 ? 0 : x.stride(source);
  }
  return {x.data(), extents, strides};
}

/// [batch, heads, len, dim] of a tensor of rank 2 [len, dim], 3 [heads, len, dim] or 4.
template <class T, int Rank>
TensorView<T, 4> as_bhld(const TensorView<T, Rank>& x) {
  static_assert(2 <= Rank && Rank <= 4, "attn: q, k, v need rank 2 [len, dim], 3 [heads, len, dim] or 4");
  return with_rank<4>(x);
}

ATTN_NAMESPACE_END
