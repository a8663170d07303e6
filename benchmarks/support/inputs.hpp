// benchmarks/support/inputs.hpp - normally distributed tensors, the same in every program and run.
#pragma once
#include <algorithm>

#include "attn/core/tensor.hpp"
#include "support/numpy_normal.hpp"

namespace bench {

/// A tensor filled with the next numbers of `normal`, times `factor`.
template <attn::Element T, int Rank>
attn::Tensor<T, Rank> normal_tensor(NumpyNormal& normal, const attn::Dims<Rank>& extents, float factor = 1) {
  attn::Tensor<T, Rank> x(extents);
  std::generate(x.data(), x.data() + x.size(), [&] { return static_cast<T>(normal() * factor); });
  return x;
}

}  // namespace bench
