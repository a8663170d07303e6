// attn/core/overlap.hpp - whether what a function writes shares memory with what it reads, or with itself.
#pragma once
#include "attn/core/tensor_view.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// How far, in elements, a step along an axis goes.
template <class T, int Rank>
Index step_length(const TensorView<T, Rank>& view, int axis) {
  return view.stride(axis) < 0 ? -view.stride(axis) : view.stride(axis);
}

/// The addresses of a view modulo a period, as far as an interval tells: [begin, begin + size) + period * n.
struct Residues {
  std::uintptr_t begin = 0;
  std::uint64_t size = 0;
};
/// Axes whose stride is a multiple of the period add nothing.
template <class T, int Rank>
Residues residues(const TensorView<T, Rank>& view, std::uint64_t period) {
  std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(view.data());
  std::uint64_t size = sizeof(T);
  for (int axis = 0; axis < Rank; ++axis) {
    const std::uint64_t stride = as_size(step_length(view, axis)) * sizeof(T);
    if (stride % period == 0) continue;
    const std::uint64_t reach = stride * static_cast<std::uint64_t>(view.extent(axis) - 1);
    if (view.stride(axis) < 0) begin -= reach;
    size += reach;
  }
  return {begin % period, size};
}

/// No address lies in both, as seen modulo the period.
inline bool are_apart(const Residues& a, const Residues& b, std::uint64_t period) {
  const std::uint64_t from_a_to_b = (b.begin + period - a.begin) % period;
  return a.size <= from_a_to_b && b.size <= period - from_a_to_b;
}
template <class A, int RankA, class B, int RankB>
bool has_dividing_period(const TensorView<A, RankA>& a, const TensorView<B, RankB>& b) {
  for (int axis = 0; axis < RankA; ++axis) {
    if (a.extent(axis) == 1 || a.stride(axis) == 0) continue;
    const std::uint64_t period = as_size(step_length(a, axis)) * sizeof(A);
    if (are_apart(residues(a, period), residues(b, period), period)) return true;
  }
  return false;
}

}  // namespace detail

/// True if the two share no element: if their address ranges are apart, or if they lie in different columns
/// of rows of one length, as query, key, value and output do in one matrix [tokens, 4 * embed_dim]. Of views
/// that interleave in another way it says false.
template <class A, int RankA, class B, int RankB>
bool is_disjoint(const TensorView<A, RankA>& a, const TensorView<B, RankB>& b) {
  const AddressRange x = address_range(a), y = address_range(b);
  return x.end <= y.begin || y.end <= x.begin || detail::has_dividing_period(a, b) ||
         detail::has_dividing_period(b, a);
}

namespace detail {
/// Euclid's; <numeric> has it, and much else to compile.
constexpr Index greatest_common_divisor(Index a, Index b) {
  return b == 0 ? a : greatest_common_divisor(b, a % b);
}

/// Each axis steps over all that the axes behind it reach, as in any slice of a row-major tensor.
template <class T, int Rank>
bool is_nested(const TensorView<T, Rank>& view) {
  Index reach = 0;  // from the first to the last element of the axes seen so far
  for (int axis = Rank; axis-- > 0;) {
    if (view.extent(axis) == 1) continue;
    if (view.stride(axis) <= reach) return false;
    reach += view.stride(axis) * (view.extent(axis) - 1);
  }
  return true;
}
}  // namespace detail

/// True if two index tuples that differ in one or two axes have one address: strides of 0, overlapping
/// windows.
template <class T, int Rank>
bool has_coinciding_elements(const TensorView<T, Rank>& view) {
  if (view.size() == 0 || detail::is_nested(view)) return false;
  const auto stride = [&](int axis) { return detail::step_length(view, axis); };
  for (int a = 0; a < Rank; ++a) {
    if (view.extent(a) == 1) continue;
    if (stride(a) == 0) return true;
    for (int b = 0; b < a; ++b) {
      if (view.extent(b) == 1) continue;
      // stride(b) / divisor steps along a are as far as stride(a) / divisor along b
      const Index divisor = detail::greatest_common_divisor(stride(a), stride(b));
      if (view.extent(b) > stride(a) / divisor && view.extent(a) > stride(b) / divisor) return true;
    }
  }
  return false;
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
