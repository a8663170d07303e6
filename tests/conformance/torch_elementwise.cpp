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

/// Over all axes from the attribute `axis` on, by default the last.
attn::NormOptions norm_options(const Case& c, double eps) {
  return {.eps = c.attribute("eps", eps), .axes = {c.attribute("axis", -1), -1}};
}

/// f(the elements of a weight or bias, or NoAffine if the case does not have it).
template <class T, class F>
void with_affine(const Case& c, const char* name, F f) {
  if (!c.has(name)) return f(attn::NoAffine{});
  const std::vector<T> values = flat_values<T>(c.at(name));
  f(TensorView<const T, 1>(values, {static_cast<Index>(values.size())}));
}

template <class T>
void layer_norm(const Case& c, Comparison& out) {
  with_tensor<T>(c.at("in.x"), [&](const auto& x) {
    with_affine<T>(c, "w.weight", [&](const auto& weight) {
      with_affine<T>(c, "w.bias", [&](const auto& bias) {
        out.expect("out", attn::layer_norm(x, weight, bias, norm_options(c, 1e-5)));
      });
    });
  });
}
template <class T>
void rms_norm(const Case& c, Comparison& out) {
  with_tensor<T>(c.at("in.x"), [&](const auto& x) {
    with_affine<T>(c, "w.weight", [&](const auto& weight) {
      out.expect("out", attn::rms_norm(x, weight, norm_options(c, 1e-6)));
    });
  });
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
      make_kind<float, double>("layer_norm",
                               []<class T>(const Case& c, Comparison& out) { layer_norm<T>(c, out); }),
      make_kind<float, double>("sinusoidal_positional_encoding",
                               []<class T>(const Case& c, Comparison& out) {
                                 out.expect("pe", attn::sinusoidal_positions<T>(c.config.at("positions"),
                                                                                c.config.at("d")));
                               }),
      make_kind<float, double>("alibi_bias",
                               []<class T>(const Case& c, Comparison& out) { alibi<T>(c, out); }),
      make_kind<float, double>("rms_norm",
                               []<class T>(const Case& c, Comparison& out) { rms_norm<T>(c, out); }),
  };
}

}  // namespace attn_conformance
