// attn/core/tensor.hpp - Tensor: owns a contiguous row-major block and hands out views of it.
#pragma once
#include <limits>
#include <new>
#include <stdexcept>
#include <vector>

#include "attn/core/tensor_traits.hpp"
#include "attn/core/tensor_view.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {
/// std::allocator with the alignment of a cache line.
template <class T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t alignment{64};
  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}  // NOLINT(google-explicit-constructor)
  T* allocate(std::size_t count) {
    // Extents are checked before; without this, g++ warns that the copy of a tensor may be too large.
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T))
      raise<std::length_error>("Tensor: ", count, " elements of ", sizeof(T),
                               " bytes exceed the address space");
    return static_cast<T*>(::operator new(count * sizeof(T), alignment));
  }
  void deallocate(T* data, std::size_t) { ::operator delete(data, alignment); }
  template <class U>
  friend bool operator==(const CacheLineAllocator&, const CacheLineAllocator<U>&) {
    return true;
  }
};
}  // namespace detail

/// A value: copies copy the elements. Elements start at zero, at an address aligned to 64 bytes.
template <Element T, int Rank>
class Tensor {
 public:
  using value_type = T;
  using Extents = Dims<Rank>;
  static constexpr int rank = Rank;

  /// Every extent 0.
  Tensor() : extents_{} {}

  /// @throws ShapeError if an extent is negative; std::length_error if the elements exceed the address space.
  explicit Tensor(const Extents& extents) : extents_(detail::checked_extents("Tensor", extents)) {
    check<std::length_error>(product(extents) <= max_size, "Tensor: extents ", extents, " of elements of ",
                             sizeof(T), " bytes exceed the address space");
    data_.resize(static_cast<std::size_t>(product(extents)));
  }

  /// Contiguous copy of a view of any strides.
  explicit Tensor(const TensorView<const T, Rank>& from) : Tensor(from.extents()) { copy(from, view()); }

  const Extents& extents() const { return extents_; }
  Index extent(int axis) const { return extents_[axis]; }
  Index size() const { return static_cast<Index>(data_.size()); }
  T* data() { return data_.data(); }
  const T* data() const { return data_.data(); }

  TensorView<T, Rank> view() { return {data(), extents_}; }
  TensorView<const T, Rank> view() const { return {data(), extents_}; }

  template <class... Indices>
  T& operator()(Indices... index) {
    return view()(index...);
  }
  template <class... Indices>
  const T& operator()(Indices... index) const {
    return view()(index...);
  }

  friend bool operator==(const Tensor& a, const Tensor& b) {
    return a.extents_ == b.extents_ && a.data_ == b.data_;
  }

 private:
  static constexpr Index max_size = std::numeric_limits<Index>::max() / static_cast<Index>(sizeof(T));

  Extents extents_;
  std::vector<T, detail::CacheLineAllocator<T>> data_;
};

/// to = from, element by element, converting; extents must be equal (unchecked) and the memory must not
/// overlap.
template <class From, class To, int Rank>
void copy(const TensorView<From, Rank>& from, const TensorView<To, Rank>& to) {
  if constexpr (Rank == 1) {
    for (Index i = 0; i < from.extent(0); ++i) to(i) = static_cast<To>(from(i));
  } else {
    for (Index i = 0; i < from.extent(0); ++i) copy(from[i], to[i]);
  }
}

template <Element T, int Rank>
struct TensorTraits<Tensor<T, Rank>> {
  static TensorView<T, Rank> view(Tensor<T, Rank>& x) { return x.view(); }
  static TensorView<const T, Rank> view(const Tensor<T, Rank>& x) { return x.view(); }
};

ATTN_NAMESPACE_END
