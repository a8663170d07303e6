// The operators of ONNX on all elements or rows of a tensor: activations, softmax and norms.
#include "attn/ops/activation.hpp"
#include "attn/ops/norm.hpp"
#include "attn/ops/softmax.hpp"
#include "registry.hpp"
#include "tensors.hpp"

namespace attn_conformance {
namespace {

using Eigen::bfloat16;
using Eigen::half;

/// f(x) -> result, of a case with one input and one output.
template <class T, class F>
void map_case(const Case& c, const char* in, const char* name, Comparison& out, F f) {
  with_tensor<T>(c.at(in), [&](const auto& x) { out.expect(name, f(x)); });
}

/// Normalises over all axes from the attribute `axis` on.
attn::NormOptions norm_options(const Case& c) {
  attn::NormOptions options{.eps = c.attribute("epsilon", 1e-5f)};
  options.axes = {c.attribute("axis", -1), -1};
  return options;
}

template <class T>
void layer_normalization(const Case& c, Comparison& out) {
  with_tensor<T>(c.at("in.Scale"), [&](const auto& scale) {
    map_case<T>(c, "in.X", "Y", out, [&](const auto& x) {
      if (!c.has("in.B")) return attn::layer_norm(x, scale, attn::NoAffine{}, norm_options(c));
      const StoredTensor& bias = c.at("in.B");
      using Bias = std::remove_cvref_t<decltype(scale)>;
      return attn::layer_norm(x, scale, bias.get<T, Bias::rank>(), norm_options(c));
    });
  });
}

template <class T>
void rms_normalization(const Case& c, Comparison& out) {
  with_tensor<T>(c.at("in.scale"), [&](const auto& scale) {
    map_case<T>(c, "in.X", "Y", out,
                [&](const auto& x) { return attn::rms_norm(x, scale, norm_options(c)); });
  });
}

}  // namespace

std::vector<Kind> onnx_elementwise_kinds() {
  return {
      make_kind<float, half, bfloat16>("Gelu",
                                       []<class T>(const Case& c, Comparison& out) {
                                         const bool by_tanh =
                                             c.attribute<std::string>("approximate", "none") == "tanh";
                                         map_case<T>(c, "in.X", "Y", out, [&](const auto& x) {
                                           return by_tanh ? attn::gelu_tanh(x) : attn::gelu(x);
                                         });
                                       }),
      make_kind<float, half, bfloat16>("Swish",
                                       []<class T>(const Case& c, Comparison& out) {
                                         if (c.attribute("alpha", 1.0) != 1) throw Skip{"Swish with alpha"};
                                         map_case<T>(c, "in.X", "Y", out,
                                                     [](const auto& x) { return attn::silu(x); });
                                       }),
      make_kind<float, half, bfloat16>("Softmax",
                                       []<class T>(const Case& c, Comparison& out) {
                                         map_case<T>(c, "in.input", "output", out, [&](const auto& x) {
                                           return attn::softmax(x, {.axis = c.attribute("axis", -1)});
                                         });
                                       }),
      make_kind<float, half, bfloat16>("LogSoftmax",
                                       []<class T>(const Case& c, Comparison& out) {
                                         map_case<T>(c, "in.input", "output", out, [&](const auto& x) {
                                           return attn::log_softmax(x, {.axis = c.attribute("axis", -1)});
                                         });
                                       }),
      make_kind<float, half, bfloat16>(
          "LayerNormalization",
          []<class T>(const Case& c, Comparison& out) { layer_normalization<T>(c, out); }),
      make_kind<float, half, bfloat16>(
          "RMSNormalization", []<class T>(const Case& c, Comparison& out) { rms_normalization<T>(c, out); }),
  };
}

}  // namespace attn_conformance
