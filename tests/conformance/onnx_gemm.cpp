// The Gemm operator of ONNX, where it is a Linear.
#include "attn/modules/linear.hpp"
#include "registry.hpp"
#include "tensors.hpp"

namespace attn_conformance {
namespace {

/// alpha * A * B + beta * C with one row of C: a Linear with the weight alpha * B^T and the bias beta * C.
template <class T>
void gemm(const Case& c, Comparison& out) {
  const auto transposed = [](const TensorView<T, 2>& x, bool yes) {
    return yes ? TensorView<T, 2>(x.data(), {x.extent(1), x.extent(0)}, {x.stride(1), x.stride(0)}) : x;
  };
  auto a = c.at("in.A").get<T, 2>(), b = c.at("in.B").get<T, 2>();
  const auto weight = transposed(b.view(), c.attribute("transB", 0) == 0);
  attn::Linear<T> linear({.in_dim = weight.extent(1), .out_dim = weight.extent(0)});
  linear.weight().assign(weight);
  linear.weight().edit([&](const TensorView<T, 2>& w) {
    for (Index i = 0; i < w.size(); ++i) w.data()[i] *= static_cast<T>(c.attribute("alpha", 1.0));
  });
  if (c.has("in.C")) {
    const StoredTensor& row = c.at("in.C");
    if (row.size() != 1 && row.size() != weight.extent(0)) throw Skip{"Gemm that adds a whole matrix"};
    const std::vector<T> values = flat_values<T>(row);
    linear.bias().edit([&](const TensorView<T, 1>& bias) {
      for (Index i = 0; i < bias.size(); ++i)
        bias(i) = values[static_cast<std::size_t>(row.size() == 1 ? 0 : i)] *
                  static_cast<T>(c.attribute("beta", 1.0));
    });
  }
  out.expect("Y", linear.forward(transposed(a.view(), c.attribute("transA", 0) != 0)));
}

}  // namespace

std::vector<Kind> onnx_gemm_kinds() {
  return {make_kind<float>("Gemm", []<class T>(const Case& c, Comparison& out) { gemm<T>(c, out); })};
}

}  // namespace attn_conformance
