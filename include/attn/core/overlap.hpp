// attn/core/overlap.hpp - whether what a function writes shares memory with what it reads, or with itself.
#pragma once
#include "attn/core/tensor_view.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// Where a view has its elements, whatever their type and number of axes. Borrows the view's extents.
struct Footprint {
  AddressRange range;
  std::uintptr_t data;
  std::uint64_t element_size;
  int rank;
  const Index *extents, *strides;

  template <class T, int Rank>
  explicit Footprint(const TensorView<T, Rank>& view)
      : range(address_range(view)),
        data(reinterpret_cast<std::uintptr_t>(view.data())),
        element_size(sizeof(T)),
        rank(Rank),
        extents(view.extents().values),
        strides(view.strides().values) {}

  /// How far, in elements, a step along an axis goes.
  Index step_length(int axis) const { return strides[axis] < 0 ? -strides[axis] : strides[axis]; }
  bool is_empty() const { return range.begin == range.end; }
};

/// The addresses of a view modulo a period, as far as an interval tells: [begin, begin + size) + period * n.
struct Residues {
  std::uintptr_t begin = 0;
  std::uint64_t size = 0;
};
/// Axes whose stride is a multiple of the period add nothing.
inline Residues residues(const Footprint& view, std::uint64_t period) {
  std::uintptr_t begin = view.data;
  std::uint64_t size = view.element_size;
  for (int axis = 0; axis < view.rank; ++axis) {
    const std::uint64_t stride = as_size(view.step_length(axis)) * view.element_size;
    if (stride % period == 0) continue;
    const std::uint64_t reach = stride * static_cast<std::uint64_t>(view.extents[axis] - 1);
    if (view.strides[axis] < 0) begin -= reach;
    size += reach;
  }
  return {begin % period, size};
}

/// No address lies in both, as seen modulo the period.
inline bool are_apart(const Residues& a, const Residues& b, std::uint64_t period) {
  const std::uint64_t from_a_to_b = (b.begin + period - a.begin) % period;
  return a.size <= from_a_to_b && b.size <= period - from_a_to_b;
}
inline bool has_dividing_period(const Footprint& a, const Footprint& b) {
  for (int axis = 0; axis < a.rank; ++axis) {
    if (a.extents[axis] == 1 || a.strides[axis] == 0) continue;
    const std::uint64_t period = as_size(a.step_length(axis)) * a.element_size;
    if (are_apart(residues(a, period), residues(b, period), period)) return true;
  }
  return false;
}
inline bool is_disjoint(const Footprint& a, const Footprint& b) {
  return a.range.end <= b.range.begin || b.range.end <= a.range.begin || has_dividing_period(a, b) ||
         has_dividing_period(b, a);
}

/// Euclid's; <numeric> has it, and much else to compile.
constexpr Index greatest_common_divisor(Index a, Index b) {
  return b == 0 ? a : greatest_common_divisor(b, a % b);
}

/// Each axis steps over all that the axes behind it reach, as in any slice of a row-major tensor.
inline bool is_nested(const Footprint& view) {
  Index reach = 0;  // from the first to the last element of the axes seen so far
  for (int axis = view.rank; axis-- > 0;) {
    if (view.extents[axis] == 1) continue;
    if (view.strides[axis] <= reach) return false;
    reach += view.strides[axis] * (view.extents[axis] - 1);
  }
  return true;
}
inline bool has_coinciding_elements(const Footprint& view) {
  if (view.is_empty() || is_nested(view)) return false;
  for (int a = 0; a < view.rank; ++a) {
    if (view.extents[a] == 1) continue;
    const Index step = view.step_length(a);
    if (step == 0) return true;
    for (int b = 0; b < a; ++b) {
      if (view.extents[b] == 1) continue;
      // other / divisor steps along a are as far as step / divisor along b
      const Index other = view.step_length(b), divisor = greatest_common_divisor(step, other);
      if (view.extents[b] > step / divisor && view.extents[a] > other / divisor) return true;
    }
  }
  return false;
}

}  // namespace detail

/// True if the two share no element: if their address ranges are apart, or if they lie in different columns
/// of rows of one length, as query, key, value and output do in one matrix [tokens, 4 * embed_dim]. Of views
/// that interleave in another way it says false.
template <class A, int RankA, class B, int RankB>
bool is_disjoint(const TensorView<A, RankA>& a, const TensorView<B, RankB>& b) {
  return detail::is_disjoint(detail::Footprint(a), detail::Footprint(b));
}

/// True if the two have every element in common, each at the same place.
template <class T, int Rank>
bool is_same(const TensorView<T, Rank>& a, const TensorView<T, Rank>& b) {
  if (a.data() != b.data() || a.extents() != b.extents()) return false;
  for (int axis = 0; axis < Rank; ++axis)
    if (a.extent(axis) > 1 && a.stride(axis) != b.stride(axis)) return false;
  return true;
}

/// True if two index tuples that differ in one or two axes have one address: strides of 0, overlapping
/// windows.
template <class T, int Rank>
bool has_coinciding_elements(const TensorView<T, Rank>& view) {
  return detail::has_coinciding_elements(detail::Footprint(view));
}

namespace detail {
/// @throws ShapeError if a result of `function` has elements that coincide.
template <class T, int Rank>
void check_distinct(const char* function, const char* name, const TensorView<T, Rank>& result) {
  check(!has_coinciding_elements(result), function, ": ", name, " ", result, " with strides ",
        result.strides(), " has elements that coincide in memory");
}
}  // namespace detail

ATTN_NAMESPACE_END
