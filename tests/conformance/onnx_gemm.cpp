// The Gemm operator of ONNX as a Linear.
#include "attn/modules/linear.hpp"
#include "registry.hpp"
#include "tensors.hpp"

namespace attn_conformance {
namespace {

template <class T, int Rank>
void scale(const TensorView<T, Rank>& x, double factor) {
  for (Index i = 0; i < x.size(); ++i) x.data()[i] *= static_cast<T>(factor);
}

template <class T>
TensorView<T, 2> transposed(const TensorView<T, 2>& x) {
  return {x.data(), {x.extent(1), x.extent(0)}, {x.stride(1), x.stride(0)}};
}

/// alpha * A * B + beta * C: a Linear with the weight alpha * B^T, and with beta * C as its bias, if that is
/// a row or one number, or else as what it is added to.
template <class T>
void gemm(const Case& c, Comparison& out) {
  auto a = c.at("in.A").get<T, 2>(), b = c.at("in.B").get<T, 2>();
  const auto x = c.attribute("transA", 0) != 0 ? transposed(a.view()) : a.view();
  const auto weight = c.attribute("transB", 0) != 0 ? b.view() : transposed(b.view());
  attn::Linear<T> linear({.in_dim = weight.extent(1), .out_dim = weight.extent(0)});
  linear.weight().assign(weight);
  linear.weight().edit([&](const TensorView<T, 2>& w) { scale(w, c.attribute("alpha", 1.0)); });

  Tensor<T, 2> y({x.extent(0), weight.extent(0)});
  const double beta = c.attribute("beta", 1.0);
  if (c.has("in.C") && c.at("in.C").shape() == c.at("out.Y").shape()) {
    auto matrix = c.at("in.C").get<T, 2>();
    scale(matrix.view(), beta);
    linear.add_into(x, matrix, y);
    return out.expect("Y", y);
  }
  if (c.has("in.C")) {
    const std::vector<T> row = flat_values<T>(c.at("in.C"));
    linear.bias().edit([&](const TensorView<T, 1>& bias) {
      for (Index i = 0; i < bias.size(); ++i)
        bias(i) = row.size() == 1 ? row[0] : row.at(static_cast<std::size_t>(i));
      scale(bias, beta);
    });
  }
  linear.forward_into(x, y);
  out.expect("Y", y);
}

}  // namespace

std::vector<Kind> onnx_gemm_kinds() {
  return {make_kind<float>("Gemm", []<class T>(const Case& c, Comparison& out) { gemm<T>(c, out); })};
}

}  // namespace attn_conformance
