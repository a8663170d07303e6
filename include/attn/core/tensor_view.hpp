// attn/core/tensor_view.hpp - TensorView: a non-owning strided view of fixed rank, the currency of every
// layer.
#pragma once
#include <algorithm>
#include <cstdint>
#include <ostream>
#include <span>
#include <type_traits>

#include "attn/core/error.hpp"
#include "attn/core/types.hpp"

ATTN_NAMESPACE_BEGIN

/// Extents or strides; indexed by a signed axis, so that call sites need no casts.
template <int Rank>
struct Dims {
  Index values[static_cast<std::size_t>(Rank)];
  constexpr Index& operator[](int axis) { return values[axis]; }
  constexpr Index operator[](int axis) const { return values[axis]; }
  friend constexpr bool operator==(const Dims&, const Dims&) = default;
};

/// Prints as "[2, 8, 5, 64]".
template <int Rank>
std::ostream& operator<<(std::ostream& out, const Dims<Rank>& dims) {
  out << "[";
  for (int axis = 0; axis < Rank; ++axis) out << (axis ? ", " : "") << dims[axis];
  return out << "]";
}

/// Strides, in elements, of a row-major contiguous tensor.
template <int Rank>
constexpr Dims<Rank> contiguous_strides(const Dims<Rank>& extents) {
  Dims<Rank> strides{};
  Index step = 1;
  for (int axis = Rank; axis-- > 0;) {
    strides[axis] = step;
    step *= extents[axis];
  }
  return strides;
}

/// Number of elements.
template <int Rank>
constexpr Index product(const Dims<Rank>& extents) {
  Index size = 1;
  for (int axis = 0; axis < Rank; ++axis) size *= extents[axis];
  return size;
}

namespace detail {
/// The extents, if a tensor can have them.
/// @throws ShapeError if one is negative; std::length_error if there are more elements than Index counts.
template <int Rank>
const Dims<Rank>& checked_extents(const char* type, const Dims<Rank>& extents) {
  double size = 1;  // of the axes that are not empty, which strides multiply
  for (int axis = 0; axis < Rank; ++axis) {
    check(extents[axis] >= 0, type, ": extents ", extents, " must not be negative");
    if (extents[axis] > 0) size *= static_cast<double>(extents[axis]);
  }
  check<std::length_error>(size < 0x1p63, type, ": extents ", extents,
                           " have more elements than can be counted");
  return extents;
}
}  // namespace detail

/// A pointer with extents and strides (both in elements). Copies refer to the same memory; strides may be 0
/// (broadcast) or negative. A const view of T is TensorView<const T, Rank>.
template <class T, int Rank>
class TensorView {
  static_assert(Rank >= 1, "attn: a TensorView has at least one axis");

 public:
  using element_type = T;
  using value_type = std::remove_const_t<T>;
  using Extents = Dims<Rank>;
  static constexpr int rank = Rank;

  /// An empty view: every extent 0.
  TensorView() : TensorView(nullptr, Extents{}) {}

  /// @throws ShapeError if an extent is negative; std::length_error if there are more elements than Index
  /// counts.
  TensorView(T* data, const Extents& extents, const Extents& strides)
      : data_(data), extents_(detail::checked_extents("TensorView", extents)), strides_(strides) {}

  /// Row-major, contiguous.
  TensorView(T* data, const Extents& extents)
      : data_(data),
        extents_(detail::checked_extents("TensorView", extents)),
        strides_(contiguous_strides(extents)) {}

  /// Row-major over all elements of `data`.
  /// @throws ShapeError if `data` does not have as many elements as `extents` say.
  TensorView(std::span<T> data, const Extents& extents) : TensorView(data.data(), extents) {
    check(static_cast<Index>(data.size()) == size(), "TensorView: span of ", data.size(),
          " elements does not fill ", extents);
  }

  /// A mutable view converts to a read-only one, never back.
  template <class U>
    requires(std::same_as<T, const U>)
  TensorView(const TensorView<U, Rank>& other)  // NOLINT(google-explicit-constructor)
      : data_(other.data()), extents_(other.extents()), strides_(other.strides()) {}

  T* data() const { return data_; }
  const Extents& extents() const { return extents_; }
  const Extents& strides() const { return strides_; }
  Index extent(int axis) const { return extents_[axis]; }
  Index stride(int axis) const { return strides_[axis]; }
  Index size() const { return product(extents_); }
  bool is_contiguous() const {
    Index step = 1;
    for (int axis = Rank; axis-- > 0;) {
      if (extents_[axis] != 1 && strides_[axis] != step) return false;
      step *= extents_[axis];
    }
    return true;
  }

  /// The element at an index per axis; unchecked.
  template <class... Indices>
    requires(static_cast<int>(sizeof...(Indices)) == Rank)
  T& operator()(Indices... index) const {
    Index offset = 0;
    int axis = 0;
    ((offset += static_cast<Index>(index) * strides_[axis++]), ...);
    return data_[offset];
  }

  /// The view at `index` of the first axis, one rank less; unchecked.
  TensorView<T, Rank - 1> operator[](Index index) const requires(Rank > 1) {
    Dims<Rank - 1> extents{}, strides{};
    for (int axis = 1; axis < Rank; ++axis) {
      extents[axis - 1] = extents_[axis];
      strides[axis - 1] = strides_[axis];
    }
    return {data_ + index * strides_[0], extents, strides};
  }

  /// The part `range` of one axis.
  /// @throws ShapeError if the range leaves the axis.
  TensorView slice(int axis, Range range) const {
    check(0 <= range.begin && range.begin <= range.end && range.end <= extents_[axis], "TensorView::slice: [",
          range.begin, ", ", range.end, ") leaves axis ", axis, " of ", *this);
    TensorView part = *this;
    part.data_ += range.begin * strides_[axis];
    part.extents_[axis] = range.size();
    return part;
  }

 private:
  T* data_;
  Extents extents_;
  Extents strides_;
};

/// Prints the extents.
template <class T, int Rank>
std::ostream& operator<<(std::ostream& out, const TensorView<T, Rank>& view) {
  return out << view.extents();
}

/// First and one-past-last address that the view can touch; {0, 0} if it has no element.
struct AddressRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
template <class T, int Rank>
AddressRange address_range(const TensorView<T, Rank>& view) {
  if (view.size() == 0) return {};
  Index low = 0, high = 0;
  for (int axis = 0; axis < Rank; ++axis) {
    const Index reach = (view.extent(axis) - 1) * view.stride(axis);
    (reach < 0 ? low : high) += reach;
  }
  const auto address = [&](Index offset) { return reinterpret_cast<std::uintptr_t>(view.data() + offset); };
  return {address(low), address(high + 1)};
}

ATTN_NAMESPACE_END
