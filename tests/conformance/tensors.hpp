// tests/conformance/tensors.hpp - stored tensors whose rank a runner learns at run time.
#pragma once
#include <vector>

#include "case.hpp"
#include "comparison.hpp"

namespace attn_conformance {

/// f(Tensor<T, rank>) of a stored tensor of rank 1 to 4 (a tensor without axes counts as [1]).
template <class T, class F>
void with_tensor(const StoredTensor& stored, F f) {
  switch (stored.rank()) {
    case 0:
    case 1:
      return f(stored.get<T, 1>());
    case 2:
      return f(stored.get<T, 2>());
    case 3:
      return f(stored.get<T, 3>());
    case 4:
      return f(stored.get<T, 4>());
    default:
      throw Skip{"tensors of rank " + std::to_string(stored.rank())};
  }
}

/// The elements of a tensor in row-major order.
template <class T>
std::vector<T> flat_values(const StoredTensor& stored) {
  std::vector<T> values(static_cast<std::size_t>(stored.size()));
  const StoredTensor flat(stored.label(), stored.dtype(), {stored.size()}, {1}, stored.data());
  flat.copy_to(TensorView<T, 1>(values.data(), {stored.size()}));
  return values;
}

/// A copy as [batch, heads, q_len, kv_len], shapes of fewer axes aligned right; T: an element, or
/// std::uint8_t for bool.
template <class T>
class PairValues {
 public:
  explicit PairValues(const StoredTensor& stored) : values_(flat_values<T>(stored)) {
    for (int axis = 0; axis < stored.rank(); ++axis)
      extents_[axis + 4 - stored.rank()] = stored.shape()[static_cast<std::size_t>(axis)];
  }

  TensorView<const T, 4> view() const { return {values_.data(), extents_}; }

  /// Appends keys of this value until there are `kv_len`; a single key stands for all and stays.
  void pad_keys(Index kv_len, T value) {
    const Index rows = product(extents_) / std::max<Index>(extents_[3], 1), keys = extents_[3];
    if (keys == 1 || keys >= kv_len) return;
    std::vector<T> padded(static_cast<std::size_t>(rows * kv_len), value);
    for (Index row = 0; row < rows; ++row)
      std::copy_n(values_.data() + row * keys, keys, padded.data() + row * kv_len);
    values_ = std::move(padded);
    extents_[3] = kv_len;
  }

 private:
  std::vector<T> values_;
  attn::Dims<4> extents_{1, 1, 1, 1};
};

/// Tokens of each row of an attention mask [batch, len], which must be ones followed by zeros.
inline std::vector<Index> prefix_lengths(const StoredTensor& mask) {
  const auto ones = mask.view<std::int64_t, 2>();
  std::vector<Index> lengths;
  for (Index b = 0; b < ones.extent(0); ++b) {
    Index length = 0;
    while (length < ones.extent(1) && ones(b, length) == 1) ++length;
    for (Index i = length; i < ones.extent(1); ++i)
      if (ones(b, i) != 0) throw Skip{"an attention mask with padding before tokens"};
    lengths.push_back(length);
  }
  return lengths;
}

}  // namespace attn_conformance
