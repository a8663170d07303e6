// PyTorch's functions on all elements or rows of a tensor: activations, softmax, norms; and what encodes
// positions.
#include "attn/masks/alibi.hpp"
#include "attn/ops/activation.hpp"
#include "attn/ops/norm.hpp"
#include "attn/ops/positions.hpp"
#include "attn/ops/softmax.hpp"
#include "registry.hpp"
#include "tensors.hpp"

namespace attn_conformance {
namespace {

/// A kind with the one input x and the output out = f(case, x).
template <class F>
Kind map_kind(std::string name, F f) {
  return make_kind<float, double>(std::move(name), [f]<class T>(const Case& c, Comparison& out) {
    with_tensor<T>(c.at("in.x"), [&](const auto& x) { out.expect("out", f(c, x)); });
  });
}

Kind activation_kind(std::string name, attn::Activation activation) {
  return map_kind(std::move(name), [=](const Case&, const auto& x) { return attn::activate(activation, x); });
}

auto layer_norm(const Case& c, const auto& x) {
  using T = attn::ElementOf<decltype(x)>;
  const attn::NormOptions options{.eps = c.attribute("eps", 1e-5)};
  if (!c.has("w.weight")) return attn::layer_norm(x, attn::NoAffine{}, attn::NoAffine{}, options);
  return attn::layer_norm(x, c.at("w.weight").get<T, 1>(), c.at("w.bias").get<T, 1>(), options);
}
auto rms_norm(const Case& c, const auto& x) {
  using T = attn::ElementOf<decltype(x)>;
  return attn::rms_norm(x, c.at("w.weight").get<T, 1>(), {.eps = c.attribute("eps", 1e-6)});
}

/// The slopes, and the bias as it changes scores of 0.
template <class T>
void alibi(const Case& c, Comparison& out) {
  const Index num_heads = c.config.at("heads");
  const attn::Alibi mask(num_heads);
  const std::vector<double>& slopes = mask.slopes();
  out.expect("slopes", TensorView<const double, 1>(slopes, {num_heads}));
  Tensor<T, 3> bias({num_heads, c.at("out.bias").shape()[1], c.at("out.bias").shape()[2]});
  const attn::Problem problem{.num_heads = num_heads, .q_len = bias.extent(1), .kv_len = bias.extent(2)};
  for (Index head = 0; head < num_heads; ++head)
    for (attn::Position q = 0; q < problem.q_len; ++q)
      for (attn::Position k = 0; k < problem.kv_len; ++k)
        bias(head, q, k) = attn::mask_score(mask, T(0), {0, head, q, k}, problem);
  out.expect("bias", bias);
}

}  // namespace

std::vector<Kind> torch_elementwise_kinds() {
  using attn::Activation;
  return {
      activation_kind("relu", Activation::relu),
      activation_kind("gelu", Activation::gelu),
      activation_kind("gelu_tanh", Activation::gelu_tanh),
      activation_kind("silu", Activation::silu),
      activation_kind("tanh", Activation::tanh),
      activation_kind("sigmoid", Activation::sigmoid),
      map_kind("softmax", [](const Case& c,
                             const auto& x) { return attn::softmax(x, {.axis = c.attribute("dim", -1)}); }),
      map_kind("log_softmax",
               [](const Case& c, const auto& x) {
                 return attn::log_softmax(x, {.axis = c.attribute("dim", -1)});
               }),
      map_kind("layer_norm", [](const Case& c, const auto& x) { return layer_norm(c, x); }),
      make_kind<float, double>("sinusoidal_positional_encoding",
                               []<class T>(const Case& c, Comparison& out) {
                                 out.expect("pe", attn::sinusoidal_positions<T>(c.config.at("positions"),
                                                                                c.config.at("d")));
                               }),
      make_kind<float, double>("alibi_bias",
                               []<class T>(const Case& c, Comparison& out) { alibi<T>(c, out); }),
      map_kind("rms_norm", [](const Case& c, const auto& x) { return rms_norm(c, x); }),
  };
}

}  // namespace attn_conformance
