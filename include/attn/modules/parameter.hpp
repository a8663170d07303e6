// attn/modules/parameter.hpp - Parameter: a named learnable tensor that knows when it was last written.
#pragma once
#include <atomic>
#include <concepts>
#include <cstdint>
#include <string>
#include <utility>

#include "attn/core/tensor.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {
/// A number that no other call has returned; never 0.
inline std::uint64_t next_version() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}
}  // namespace detail

/// A learnable tensor of a module: its name there ("weight"), its value, and a version.
///
/// Reading is free; writing goes through edit() and assign() only. Each write takes a version number that no
/// other parameter of the process has, so equal versions mean equal values, and whoever keeps a derived copy
/// (packed weights, a moment of an optimiser) can tell that it is stale. Copies keep the version. Reading
/// from many threads is safe; a write needs the parameter alone, like that of any value.
template <Element T, int Rank>
class Parameter {
 public:
  using value_type = T;
  static constexpr int rank = Rank;

  /// Absent: no elements, version 0 (the bias of a layer without one).
  Parameter() = default;
  /// Zeros of these extents.
  Parameter(std::string name, const Dims<Rank>& extents)
      : name_(std::move(name)), value_(extents), version_(detail::next_version()) {}

  Parameter(const Parameter&) = default;
  Parameter& operator=(const Parameter&) = default;
  /// Leaves `other` absent.
  Parameter(Parameter&& other) noexcept
      : name_(std::move(other.name_)),
        value_(std::exchange(other.value_, {})),
        version_(std::exchange(other.version_, 0)) {}
  Parameter& operator=(Parameter&& other) noexcept {
    name_ = std::move(other.name_);
    value_ = std::exchange(other.value_, {});
    version_ = std::exchange(other.version_, 0);
    return *this;
  }
  ~Parameter() = default;

  const std::string& name() const { return name_; }
  /// False for a parameter that the module does not have.
  explicit operator bool() const { return version_ != 0; }
  const Dims<Rank>& extents() const { return value_.extents(); }
  Index size() const { return value_.size(); }
  /// Changes with every write.
  std::uint64_t version() const { return version_; }

  TensorView<const T, Rank> view() const { return value_.view(); }
  const T* data() const { return value_.data(); }

  /// Calls f with a writable view, which is valid during the call only.
  template <std::invocable<TensorView<T, Rank>> F>
  void edit(F f) {
    version_ = detail::next_version();
    f(value_.view());
  }

  /// Copies `values`, converting the element type.
  /// @throws ShapeError if the extents differ.
  template <TensorLike X>
    requires(rank_of<X> == Rank)
  void assign(const X& values) {
    const auto from = as_view(values);
    check(from.extents() == extents(), "Parameter ", name_, ": extents ", extents(), " cannot take ", from);
    edit([&](const TensorView<T, Rank>& to) { copy(from, to); });
  }
  /// Copies an Eigen vector (a column or row matrix) into a parameter of rank 1.
  template <TensorLike X>
    requires(Rank == 1 && rank_of<X> == 2)
  void assign(const X& values) {
    const auto from = as_view(values);
    check(from.extent(0) == 1 || from.extent(1) == 1, "Parameter ", name_, ": extents ", extents(),
          " cannot take ", from);
    const int axis = from.extent(0) == 1 ? 1 : 0;
    assign(TensorView(from.data(), Dims<1>{from.extent(axis)}, Dims<1>{from.stride(axis)}));
  }

 private:
  std::string name_;
  Tensor<T, Rank> value_;
  std::uint64_t version_ = 0;
};

ATTN_NAMESPACE_END
