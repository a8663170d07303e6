// attn/io/weights.hpp - WeightMap: named tensors of any source (a file, shards, the caller's memory), read
// with checks of name, type and shape.
#pragma once
#include <cstring>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/core/tensor.hpp"
#include "attn/io/dtype.hpp"

ATTN_NAMESPACE_BEGIN

/// One stored tensor: borrowed memory that need not be aligned. Its extents fit: no product overflows.
struct WeightView {
  DType dtype = DType::float32;
  std::vector<Index> shape{};
  std::vector<Index> strides{};  ///< in elements, one per axis
  const std::byte* data = nullptr;

  /// Number of elements.
  Index size() const {
    Index count = 1;
    for (const Index extent : shape) count *= extent;
    return count;
  }
  /// A row-major contiguous tensor.
  static WeightView contiguous(DType dtype, std::vector<Index> shape, const std::byte* data);
};

/// Where weights come from: the name that errors print, and what keeps the memory alive (null: the caller).
struct WeightSource {
  std::string name;
  std::shared_ptr<const void> owner{};
};

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

/// Stored floats convert to any Element; stored booleans and integers to integers, if the value fits.
template <class To, class From>
constexpr bool converts = Element<To> ? Element<From> : std::is_integral_v<To> && !Element<From>;

/// The element at an address without alignment, as a To; false in `fits` if it is an integer out of range.
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
    if (to.size() > 0) std::memcpy(to.data(), from, static_cast<std::size_t>(to.size()) * sizeof(From));
  } else {
    for (Index i = 0; i < to.extent(0); ++i) to(i) = load_as<To, From>(from + i * step, fits);
  }
  return fits;
}

}  // namespace detail

inline WeightView WeightView::contiguous(DType dtype, std::vector<Index> shape, const std::byte* data) {
  WeightView view{dtype, std::move(shape), {}, data};
  view.strides.resize(view.shape.size());
  Index step = 1;
  for (std::size_t axis = view.shape.size(); axis-- > 0;) {
    view.strides[axis] = step;
    step *= view.shape[axis];
  }
  return view;
}

/// Named tensors, sorted by name. Copies are cheap and share the memory; weights from a file keep the file
/// open, those of the caller are borrowed. Every failed request is a FormatError that names the source, the
/// weight, and what was expected and found.
class WeightMap {
 public:
  /// `origin`: the name of the whole, for the error of a missing weight.
  explicit WeightMap(std::string origin = "the caller's weights") : origin_(std::move(origin)) {}

  /// Borrows a tensor: a view, Tensor, Eigen object, or your own type with TensorTraits.
  /// @throws FormatError if the name is taken.
  template <TensorLike X>
  WeightMap& add(std::string name, const X& tensor) {
    const auto view = as_view(tensor);
    WeightView weight{dtype_of<ElementOf<const X>>, {}, {}, reinterpret_cast<const std::byte*>(view.data())};
    for (int axis = 0; axis < view.rank; ++axis) {
      weight.shape.push_back(view.extent(axis));
      weight.strides.push_back(view.stride(axis));
    }
    return add(std::move(name), std::move(weight),
               std::make_shared<const WeightSource>(WeightSource{origin_}));
  }
  WeightMap& add(std::string name, WeightView weight, std::shared_ptr<const WeightSource> source) {
    const auto [entry, is_new] = entries_.try_emplace(std::move(name), std::move(weight), std::move(source));
    check<FormatError>(is_new, origin_, ": weight '", entry->first, "' is there twice");
    return *this;
  }
  /// Adds all weights of another map.
  /// @throws FormatError if a name is taken.
  WeightMap& merge(const WeightMap& other) {
    for (const auto& [name, entry] : other.entries_) add(name, entry.weight, entry.source);
    return *this;
  }

  bool contains(std::string_view name) const { return entries_.find(name) != entries_.end(); }
  Index size() const { return static_cast<Index>(entries_.size()); }
  const std::string& origin() const { return origin_; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
  }

  /// Type, shape and memory of a weight.
  const WeightView& at(std::string_view name) const { return find(name).weight; }

  /// The weights whose names start with `prefix`, without it: under("encoder.layers.0.").
  WeightMap under(std::string_view prefix) const {
    WeightMap part(origin_ + " under '" + std::string(prefix) + "'");
    for (auto it = entries_.lower_bound(prefix); it != entries_.end(); ++it) {
      if (!std::string_view(it->first).starts_with(prefix)) break;
      part.entries_.emplace(it->first.substr(prefix.size()), it->second);
    }
    return part;
  }

  /// The weight itself, no copy; its type must be exactly T (std::uint8_t also stands for bool).
  /// @throws FormatError also if the memory is not aligned for T: copy it then.
  template <class T, int Rank>
  TensorView<const T, Rank> view(std::string_view name) const {
    static_assert(!std::is_same_v<T, bool>, "attn: a stored bool may be any byte: view it as std::uint8_t");
    const Entry& entry = find(name);
    const DType found = entry.weight.dtype;
    const bool bool_bytes = std::is_same_v<T, std::uint8_t> && found == DType::boolean;
    require(found == dtype_of<T> || bool_bytes, name, entry, "has type ", found, ", not ", dtype_of<T>);
    require(reinterpret_cast<std::uintptr_t>(entry.weight.data) % alignof(T) == 0, name, entry,
            "is not aligned for ", dtype_of<T>, " in memory and can only be copied");
    Dims<Rank> strides{};
    const Dims<Rank> extents = extents_of<Rank>(name, entry, &strides);
    return {reinterpret_cast<const T*>(entry.weight.data), extents, strides};
  }

  /// A copy of the weight, converted to T from any floating type.
  template <Element T, int Rank>
  Tensor<T, Rank> get(std::string_view name) const {
    Tensor<T, Rank> copy(extents_of<Rank>(name, find(name)));
    copy_to(name, copy.view());
    return copy;
  }
  /// As above, and the shape must be `expected`.
  template <Element T, int Rank>
  Tensor<T, Rank> get(std::string_view name, const Dims<Rank>& expected) const {
    require_shape(name, find(name), expected);
    return get<T, Rank>(name);
  }

  /// Copies the weight into caller's memory, whose extents it must have. Floating types convert to each
  /// other; integer and bool to integers, if every value fits.
  template <class T, int Rank>
  void copy_to(std::string_view name, const TensorView<T, Rank>& to) const {
    const Entry& entry = find(name);
    require_shape(name, entry, to.extents());
    Dims<Rank> strides{};
    extents_of<Rank>(name, entry, &strides);
    with_stored_type(entry.weight.dtype, [&]<class From>(std::type_identity<From>) {
      if constexpr (detail::converts<T, From>) {
        const bool fits = detail::copy_elements<From>(entry.weight.data, strides.values, to);
        require(fits, name, entry, "holds a value that does not fit ", dtype_of<T>);
      } else {
        require(false, name, entry, "has type ", entry.weight.dtype, ", which does not convert to ",
                dtype_of<T>);
      }
    });
  }

 private:
  struct Entry {
    Entry(WeightView w, std::shared_ptr<const WeightSource> s) : weight(std::move(w)), source(std::move(s)) {}
    WeightView weight;
    std::shared_ptr<const WeightSource> source;
  };

  template <class... Parts>
  static void require(bool ok, std::string_view name, const Entry& entry, const Parts&... parts) {
    check<FormatError>(ok, entry.source->name, ": weight '", name, "' ", parts...);
  }

  const Entry& find(std::string_view name) const {
    const auto it = entries_.find(name);
    check<FormatError>(it != entries_.end(), origin_, ": weight '", name, "' is missing");
    return it->second;
  }

  /// Extents, and on request strides; a tensor without axes is read as [1].
  template <int Rank>
  static Dims<Rank> extents_of(std::string_view name, const Entry& entry, Dims<Rank>* strides = nullptr) {
    const WeightView& w = entry.weight;
    Dims<Rank> extents{};
    if (Rank == 1 && w.shape.empty()) {
      if (strides) (*strides)[0] = 1;
      extents[0] = 1;
      return extents;
    }
    require(w.shape.size() == std::size_t{Rank}, name, entry, "has shape ", detail::PrintShape{w.shape},
            ", not one of rank ", Rank);
    for (int axis = 0; axis < Rank; ++axis) {
      extents[axis] = w.shape[static_cast<std::size_t>(axis)];
      if (strides) (*strides)[axis] = w.strides[static_cast<std::size_t>(axis)];
    }
    return extents;
  }

  template <int Rank>
  static void require_shape(std::string_view name, const Entry& entry, const Dims<Rank>& expected) {
    const std::vector<Index>& shape = entry.weight.shape;
    bool equal = shape.size() == std::size_t{Rank} || (Rank == 1 && shape.empty() && expected[0] == 1);
    for (std::size_t axis = 0; equal && axis < shape.size(); ++axis)
      equal = shape[axis] == expected[static_cast<int>(axis)];
    require(equal, name, entry, "has shape ", detail::PrintShape{shape}, ", not ", expected);
  }

  std::string origin_;
  std::map<std::string, Entry, std::less<>> entries_;
};

ATTN_NAMESPACE_END
