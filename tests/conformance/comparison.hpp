// tests/conformance/comparison.hpp - the outputs of one case in one element type, held against the right
// ones.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "attn/core/tensor_traits.hpp"
#include "case.hpp"

namespace attn_conformance {

/// Thrown by a runner for a case that the library does not compute (yet).
struct Skip {
  std::string reason;
};

namespace detail {

/// The elements of a view in row-major order.
template <class T, int Rank>
std::vector<double> values_of(const TensorView<const T, Rank>& view) {
  std::vector<double> values(static_cast<std::size_t>(view.size()));
  attn::copy(view, TensorView<double, Rank>(values.data(), view.extents()));
  return values;
}

inline double base_tolerance(DType type) {
  switch (type) {
    case DType::float64:
      return 1e-12;
    case DType::float16:
      return 2e-3;
    case DType::bfloat16:
      return 1.6e-2;
    default:
      return 2e-6;
  }
}

inline std::vector<double> values_of(const StoredTensor& tensor) {
  const StoredTensor flat(tensor.label(), tensor.dtype(), {tensor.size()}, {1}, tensor.data());
  std::vector<double> values(static_cast<std::size_t>(tensor.size()));
  if (tensor.dtype() == DType::int64) {
    std::vector<std::int64_t> integers(values.size());
    flat.copy_to(TensorView<std::int64_t, 1>(integers, {tensor.size()}));
    std::copy(integers.begin(), integers.end(), values.begin());
  } else {
    flat.copy_to(TensorView<double, 1>(values, {tensor.size()}));
  }
  return values;
}

/// The index of element number `i`, as "[1, 0, 3]".
inline std::string place(std::size_t number, const std::vector<Index>& shape) {
  std::vector<Index> index(shape.size());
  auto rest = static_cast<Index>(number);
  for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) index[axis] = rest % shape[axis];
  std::ostringstream text;
  text << attn::detail::PrintShape{index};
  return text.str();
}

/// How far apart two elements are; equal infinities are not, and NaN is from everything.
inline double distance(double got, double right) {
  if (got == right) return 0;
  const double difference = std::abs(got - right);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

}  // namespace detail

/// Collects how far the outputs of a case are from the right ones.
///
/// Allowed is a base error of the element type (float 2e-6, double 1e-12, half 2e-3, bfloat16 1.6e-2), times
/// the largest value of the right output, times the factors that the runner states.
class Comparison {
 public:
  Comparison(const Case& c, DType type) : case_(c), type_(type) {}

  /// Scores of this size lose digits before the softmax: above 10, a tenth of it is a factor.
  void note_largest_score(double score) { score_factor_ = std::max(1.0, score / 10); }
  /// Several layers one after the other: a factor of 5.
  void note_deep_stack() { depth_factor_ = 5; }

  /// `got` is to be the tensor out.<name> of the case.
  template <attn::TensorLike X>
  void expect(const std::string& name, const X& got) {
    const auto view = attn::as_view(got);
    using T = typename decltype(view)::value_type;
    const TensorView<const T, decltype(view)::rank> values(view);
    std::vector<Index> shape;
    for (int axis = 0; axis < view.rank; ++axis) shape.push_back(view.extent(axis));
    compare(name, shape, detail::values_of(values));
  }

  /// One line for each output that is wrong; empty if all are right.
  const std::string& failures() const { return failures_; }
  /// The largest error as a part of what is allowed.
  double worst() const { return worst_; }
  bool compared_anything() const { return !compared_.empty(); }
  /// Outputs of the case that were not compared.
  std::vector<std::string> ignored() const;

 private:
  void compare(const std::string& name, const std::vector<Index>& shape, const std::vector<double>& got);
  void fail(const std::string& name, const std::string& what);

  const Case& case_;
  DType type_;
  double score_factor_ = 1, depth_factor_ = 1;
  std::string failures_;
  double worst_ = 0;
  std::set<std::string> compared_;
};

inline void Comparison::fail(const std::string& name, const std::string& what) {
  failures_ += "  " + std::string(attn::name_of(type_)) + ": " + name + ": " + what + "\n";
}

inline void Comparison::compare(const std::string& name, const std::vector<Index>& shape,
                                const std::vector<double>& got) {
  compared_.insert(name);
  const StoredTensor& tensor = case_.at("out." + name);
  std::ostringstream text;
  if (shape != tensor.shape()) {
    text << "has shape " << attn::detail::PrintShape{shape} << ", not "
         << attn::detail::PrintShape{tensor.shape()};
    return fail(name, text.str());
  }
  const std::vector<double> wanted = detail::values_of(tensor);
  double largest = 0, error = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool has_answer = !(case_.may_be_nan && std::isnan(wanted[i]));
    const double distance = detail::distance(got[i], has_answer ? wanted[i] : 0);
    if (std::isfinite(wanted[i])) largest = std::max(largest, std::abs(wanted[i]));
    if (distance <= error || (!has_answer && std::isfinite(got[i]))) continue;
    error = distance;
    at = i;
  }
  const double allowed = detail::base_tolerance(type_) * score_factor_ * depth_factor_ * largest;
  if (error > 0) worst_ = std::max(worst_, error / allowed);
  if (error <= allowed) return;
  text << "largest error " << error << " at " << detail::place(at, shape) << " (got " << got[at]
       << ", right is " << wanted[at] << "), allowed " << allowed;
  fail(name, text.str());
}

inline std::vector<std::string> Comparison::ignored() const {
  std::vector<std::string> names;
  for (const std::string& name : case_.tensors.names())
    if (name.starts_with("out.") && !compared_.contains(name.substr(4))) names.push_back(name.substr(4));
  return names;
}

}  // namespace attn_conformance
