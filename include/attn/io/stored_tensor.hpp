// attn/io/stored_tensor.hpp - StoredTensor: a tensor of a file or of the caller, whose type and rank are
// known at run time only.
#pragma once
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attn/core/tensor.hpp"
#include "attn/io/dtype.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// Prints a shape as "[2, 3]".
struct PrintShape {
  const std::vector<Index>& shape;
  friend std::ostream& operator<<(std::ostream& out, const PrintShape& p) {
    out << "[";
    for (std::size_t axis = 0; axis < p.shape.size(); ++axis) out << (axis ? ", " : "") << p.shape[axis];
    return out << "]";
  }
};

/// Row-major strides; a product that overflows is the caller's to exclude.
inline std::vector<Index> contiguous_strides(const std::vector<Index>& shape) {
  std::vector<Index> strides(shape.size());
  Index step = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

/// Stored floats convert to any Element; stored booleans and integers to integers, if the value fits.
template <class To, class From>
constexpr bool converts = Element<To> ? Element<From> : std::is_integral_v<To> && !Element<From>;

/// The element at an address without alignment, as a To; clears `fits` if it is an integer out of range.
template <class To, class From>
ATTN_ALWAYS_INLINE To load_as(const std::byte* address, bool& fits) {
  From value;
  std::memcpy(&value, address, sizeof value);
  if constexpr (std::is_same_v<From, StoredBool>) {
    return static_cast<To>(value != StoredBool::no);
  } else {
    if constexpr (std::is_integral_v<From>) fits = fits && std::in_range<To>(value);
    return static_cast<To>(value);
  }
}

/// to = the elements at `from` with these strides (in elements); false if an integer was out of range.
template <class From, class To, int Rank>
bool copy_elements(const std::byte* from, const Index* strides, const TensorView<To, Rank>& to) {
  const Index step = strides[0] * static_cast<Index>(sizeof(From));
  bool fits = true;
  if constexpr (Rank > 1) {
    for (Index i = 0; i < to.extent(0); ++i) fits &= copy_elements<From>(from + i * step, strides + 1, to[i]);
  } else if (std::is_same_v<From, To> && strides[0] == 1 && to.stride(0) == 1) {
    std::memcpy(to.data(), from, static_cast<std::size_t>(to.size()) * sizeof(From));
  } else {
    for (Index i = 0; i < to.extent(0); ++i) to(i) = load_as<To, From>(from + i * step, fits);
  }
  return fits;
}

}  // namespace detail

/// A typed shape over memory that need not be aligned; copies are cheap and share the memory. Every failed
/// request is a FormatError that names the tensor, and what was expected and found.
class StoredTensor {
 public:
  /// `label`: what errors call it. `strides` are in elements. `owner` keeps the memory alive; null: the
  /// caller does. The products of extents and of strides must not overflow (unchecked).
  StoredTensor(std::string label, DType dtype, std::vector<Index> shape, std::vector<Index> strides,
               const std::byte* data, std::shared_ptr<const void> owner = nullptr)
      : label_(std::move(label)),
        dtype_(dtype),
        shape_(std::move(shape)),
        strides_(std::move(strides)),
        data_(data),
        owner_(std::move(owner)) {}

  /// Borrows the caller's tensor.
  template <class T, int Rank>
  StoredTensor(std::string label, const TensorView<T, Rank>& view)
      : StoredTensor(std::move(label), dtype_of<std::remove_const_t<T>>, {}, {},
                     reinterpret_cast<const std::byte*>(view.data())) {
    for (int axis = 0; axis < Rank; ++axis) {
      shape_.push_back(view.extent(axis));
      strides_.push_back(view.stride(axis));
    }
  }

  const std::string& label() const { return label_; }
  DType dtype() const { return dtype_; }
  const std::vector<Index>& shape() const { return shape_; }
  const std::vector<Index>& strides() const { return strides_; }
  const std::byte* data() const { return data_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  /// Number of elements.
  Index size() const {
    Index count = 1;
    for (const Index extent : shape_) count *= extent;
    return count;
  }

  /// The same bytes read as another type of the same size: bfloat16 kept in a uint16 array.
  StoredTensor reinterpret(DType dtype) const {
    require(size_of(dtype) == size_of(dtype_), "has type ", dtype_, ", whose size is not that of ", dtype);
    StoredTensor other = *this;
    other.dtype_ = dtype;
    return other;
  }

  /// The memory itself, no copy; the type must be exactly T (std::uint8_t also stands for bool).
  /// @throws FormatError also if the memory is not aligned for T: copy it then.
  template <class T, int Rank>
  TensorView<const T, Rank> view() const& {
    static_assert(!std::is_same_v<T, bool>, "attn: a stored bool may be any byte: view it as std::uint8_t");
    const bool bool_bytes = std::is_same_v<T, std::uint8_t> && dtype_ == DType::boolean;
    require(dtype_ == dtype_of<T> || bool_bytes, "has type ", dtype_, ", not ", dtype_of<T>);
    require(reinterpret_cast<std::uintptr_t>(data_) % alignof(T) == 0, "is not aligned for ", dtype_of<T>,
            " in memory and can only be copied");
    return {reinterpret_cast<const T*>(data_), extents<Rank>(), dims<Rank>(strides_)};
  }

  template <class T, int Rank>
  TensorView<const T, Rank> view() const&& = delete;  // the memory may go with the temporary

  /// A copy, converted to T from any floating type.
  template <Element T, int Rank>
  Tensor<T, Rank> get() const {
    Tensor<T, Rank> copy(extents<Rank>());
    copy_to(copy.view());
    return copy;
  }
  /// As above, and the shape must be `expected`.
  template <Element T, int Rank>
  Tensor<T, Rank> get(const Dims<Rank>& expected) const {
    require_shape(expected);
    return get<T, Rank>();
  }

  /// Copies into caller's memory, whose extents must be equal. Floating types convert to each other; integers
  /// and bool to integers, if every value fits.
  template <class T, int Rank>
  void copy_to(const TensorView<T, Rank>& to) const {
    require_shape(to.extents());
    if (to.size() == 0) return;  // the other extents may be of any size
    const Dims<Rank> strides = dims<Rank>(strides_);
    with_stored_type(dtype_, [&]<class From>(std::type_identity<From>) {
      if constexpr (detail::converts<T, From>)
        require(detail::copy_elements<From>(data_, strides.values, to), "holds a value that does not fit ",
                dtype_of<T>);
      else
        require(false, "has type ", dtype_, ", which does not convert to ", dtype_of<T>);
    });
  }

 private:
  template <class... Parts>
  void require(bool ok, const Parts&... parts) const {
    check<FormatError>(ok, label_, " ", parts...);
  }

  /// A tensor without axes has the shape [1].
  template <int Rank>
  bool has_rank() const {
    return rank() == Rank || (Rank == 1 && rank() == 0);
  }
  template <int Rank>
  Dims<Rank> dims(const std::vector<Index>& values) const {
    Dims<Rank> dims{};
    if (values.empty()) dims[0] = 1;
    for (int axis = 0; axis < rank(); ++axis) dims[axis] = values[static_cast<std::size_t>(axis)];
    return dims;
  }
  template <int Rank>
  Dims<Rank> extents() const {
    require(has_rank<Rank>(), "has shape ", detail::PrintShape{shape_}, ", not one of rank ", Rank);
    return dims<Rank>(shape_);
  }
  template <int Rank>
  void require_shape(const Dims<Rank>& expected) const {
    require(has_rank<Rank>() && dims<Rank>(shape_) == expected, "has shape ", detail::PrintShape{shape_},
            ", not ", expected);
  }

  std::string label_;
  DType dtype_;
  std::vector<Index> shape_, strides_;
  const std::byte* data_;
  std::shared_ptr<const void> owner_;
};

namespace detail {

/// Elements of `width` bytes in row-major order into sink.write(span of bytes); the tensor is not empty.
template <class Sink>
void write_elements(const std::byte* data, std::span<const Index> shape, std::span<const Index> strides,
                    Index width, Sink& sink, std::vector<std::byte>& row) {
  Index step = 1;
  bool contiguous = true;
  for (std::size_t axis = shape.size(); axis-- > 0; step *= shape[axis])
    contiguous = contiguous && (shape[axis] == 1 || strides[axis] == step);
  if (contiguous) return sink.write({data, static_cast<std::size_t>(step * width)});
  if (shape.size() > 1) {
    for (Index i = 0; i < shape[0]; ++i)
      write_elements(data + i * strides[0] * width, shape.subspan(1), strides.subspan(1), width, sink, row);
    return;
  }
  const auto bytes = static_cast<std::size_t>(width);
  row.resize(static_cast<std::size_t>(shape[0]) * bytes);
  for (Index i = 0; i < shape[0]; ++i)
    std::memcpy(&row[static_cast<std::size_t>(i) * bytes], data + i * strides[0] * width, bytes);
  sink.write(row);
}

/// All elements of a tensor of any strides, in row-major order.
template <class Sink>
void write_row_major(const StoredTensor& tensor, Sink& sink) {
  std::vector<std::byte> row;
  if (tensor.size() > 0)
    write_elements(tensor.data(), tensor.shape(), tensor.strides(), size_of(tensor.dtype()), sink, row);
}

/// Bytes of a contiguous tensor of this shape; nothing if a product of its extents (zeros left out, so that
/// strides are covered) leaves Index.
inline std::optional<std::uint64_t> checked_bytes(const std::vector<Index>& shape, DType dtype) {
  constexpr Index limit = std::numeric_limits<Index>::max();
  Index bytes = size_of(dtype);
  bool empty = false;
  for (const Index extent : shape) {
    empty = empty || extent == 0;
    if (extent > 1 && bytes > limit / extent) return {};
    bytes *= std::max<Index>(extent, 1);
  }
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

}  // namespace detail

ATTN_NAMESPACE_END
