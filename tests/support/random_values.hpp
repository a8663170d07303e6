// tests/support/random_values.hpp - tensors and modules with reproducible values for tests.
#pragma once
#include <string>
#include <type_traits>

#include "attn/core/tensor.hpp"
#include "attn/modules/parameters.hpp"

namespace attn_test {

/// Normally distributed values that are exact in float, whatever T is.
template <class T, int Rank>
attn::Tensor<T, Rank> random_tensor(attn::Dims<Rank> extents, std::uint64_t seed) {
  attn::Tensor<T, Rank> x(extents);
  const attn::CounterRandom random(seed);
  for (attn::Index i = 0; i < x.size(); ++i)
    x.data()[i] = static_cast<T>(static_cast<float>(random.normal(static_cast<std::uint64_t>(i))));
  return x;
}

/// Gives every parameter values: matrices as xavier_uniform, vectors small differences to what they had.
template <class Module>
void randomize(Module& module, std::uint64_t seed) {
  attn::xavier_uniform(module, seed);
  for_each_parameter(
      module, []<class T, int Rank>(const std::string& path, attn::Parameter<T, Rank>& parameter) {
        if constexpr (Rank == 1)
          parameter.edit([&](const attn::TensorView<T, 1>& values) {
            for (attn::Index i = 0; i < values.extent(0); ++i)
              values(i) += static_cast<T>(
                  static_cast<double>((i + static_cast<attn::Index>(path.size())) % 7) / 8 - 0.375);
          });
      });
}

/// The largest absolute difference.
template <class T, int Rank>
double largest_difference(const attn::Tensor<T, Rank>& a, const attn::Tensor<T, Rank>& b) {
  attn::check(a.extents() == b.extents(), "compared tensors ", a.view(), " and ", b.view(),
              " differ in extents");
  double largest = 0;
  for (attn::Index i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a.data()[i]) - static_cast<double>(b.data()[i]));
    largest = difference <= largest ? largest : difference;  // NaN comes through
  }
  return largest;
}

}  // namespace attn_test
