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

/// x * sigmoid(alpha * x), which is silu(alpha * x) / alpha.
template <class T>
auto swish(const auto& x, double alpha) {
  const auto scaled = [](auto y, double factor) {
    for (Index i = 0; i < y.size(); ++i)
      y.data()[i] = static_cast<T>(static_cast<double>(y.data()[i]) * factor);
    return y;
  };
  return alpha == 1
             ? attn::activate(attn::Activation::silu, x)
             : scaled(attn::silu(scaled(attn::activate(attn::Activation::identity, x), alpha)), 1 / alpha);
}

/// swish(A) * B.
template <class T>
void swiglu(const Case& c, Comparison& out) {
  with_tensor<T>(c.at("in.A"), [&](const auto& a) {
    auto y = swish<T>(a, c.attribute("alpha", 1.0));
    using A = std::remove_cvref_t<decltype(a)>;
    attn::multiply_into(c.at("in.B").get<T, A::rank>(), y);
    out.expect("Y", y);
  });
}

/// Normalises each channel of [batch, channels, height, width] over the other axes.
template <class T>
void mean_variance_normalization(const Case& c, Comparison& out) {
  if (c.config.contains("axes")) throw Skip{"MeanVarianceNormalization over chosen axes"};
  const auto channels_first = [](const auto& x) {
    using Element = std::remove_pointer_t<decltype(x.data())>;
    return TensorView<Element, 4>(x.data(), {x.extent(1), x.extent(0), x.extent(2), x.extent(3)},
                                  {x.stride(1), x.stride(0), x.stride(2), x.stride(3)});
  };
  const auto x = c.at("in.X").get<T, 4>();
  Tensor<T, 4> y(x.extents());
  attn::NormOptions options{.eps = 0};
  options.axes = {1, -1};
  attn::layer_norm_into(channels_first(x.view()), attn::NoAffine{}, attn::NoAffine{},
                        channels_first(y.view()), options);
  out.expect("Y", y);
}

template <class T>
void gelu(const Case& c, Comparison& out) {
  const bool by_tanh = c.attribute<std::string>("approximate", "none") == "tanh";
  map_case<T>(c, "in.X", "Y", out,
              [&](const auto& x) { return by_tanh ? attn::gelu_tanh(x) : attn::gelu(x); });
}

template <class T>
void softmax(const Case& c, Comparison& out) {
  map_case<T>(c, "in.input", "output", out,
              [&](const auto& x) { return attn::softmax(x, {.axis = c.attribute("axis", -1)}); });
}

template <class T>
void log_softmax(const Case& c, Comparison& out) {
  map_case<T>(c, "in.input", "output", out,
              [&](const auto& x) { return attn::log_softmax(x, {.axis = c.attribute("axis", -1)}); });
}

/// A kind in the element types that its cases come in.
template <class F>
Kind onnx_kind(std::string name, F f) {
  return make_kind<float, half, bfloat16>(std::move(name), f);
}

}  // namespace

std::vector<Kind> onnx_elementwise_kinds() {
  return {
      onnx_kind("Gelu", []<class T>(const Case& c, Comparison& out) { gelu<T>(c, out); }),
      onnx_kind("Swish",
                []<class T>(const Case& c, Comparison& out) {
                  map_case<T>(c, "in.X", "Y", out,
                              [&](const auto& x) { return swish<T>(x, c.attribute("alpha", 1.0)); });
                }),
      onnx_kind("SwiGLU", []<class T>(const Case& c, Comparison& out) { swiglu<T>(c, out); }),
      onnx_kind("Softmax", []<class T>(const Case& c, Comparison& out) { softmax<T>(c, out); }),
      onnx_kind("LogSoftmax", []<class T>(const Case& c, Comparison& out) { log_softmax<T>(c, out); }),
      onnx_kind("LayerNormalization",
                []<class T>(const Case& c, Comparison& out) { layer_normalization<T>(c, out); }),
      onnx_kind("RMSNormalization",
                []<class T>(const Case& c, Comparison& out) { rms_normalization<T>(c, out); }),
      onnx_kind("MeanVarianceNormalization",
                []<class T>(const Case& c, Comparison& out) { mean_variance_normalization<T>(c, out); }),
  };
}

}  // namespace attn_conformance
