// attn/interop/mdspan.hpp - std::mdspan, and whatever else has its members, as a tensor.
#pragma once
#include <concepts>
#include <cstddef>

#include "attn/core/tensor_traits.hpp"

ATTN_NAMESPACE_BEGIN

/// The part of std::mdspan (C++23), or of its reference implementation for C++20, that a view is made from: a
/// strided layout whose elements are reached by pointer.
template <class X>
concept MdspanLike = requires(const X& x, std::size_t axis) {
  typename X::element_type;
  { X::rank() } -> std::convertible_to<std::size_t>;
  { x.extents().extent(axis) } -> std::convertible_to<std::size_t>;
  { x.stride(axis) } -> std::convertible_to<std::size_t>;
  { x.data_handle() } -> std::convertible_to<typename X::element_type*>;
};

/// Axis i of the view is dimension i of the mdspan. As with the mdspan, the element type says whether
/// elements may be written, not the constness of the mdspan.
template <MdspanLike X>
struct TensorTraits<X> {
  static auto view(const X& x) {
    constexpr int rank = static_cast<int>(X::rank());
    static_assert(rank >= 1, "attn: an mdspan without axes has no view");
    Dims<rank> extents{}, strides{};
    for (std::size_t axis = 0; axis < X::rank(); ++axis) {
      extents[static_cast<int>(axis)] = static_cast<Index>(x.extents().extent(axis));
      strides[static_cast<int>(axis)] = static_cast<Index>(x.stride(axis));
    }
    return TensorView<typename X::element_type, rank>(x.data_handle(), extents, strides);
  }
};

ATTN_NAMESPACE_END
