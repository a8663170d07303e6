// Gated feed-forward networks: down(activation(gate(x)) * up(x)).
#include "attn/modules/feed_forward.hpp"
#include "registry.hpp"
#include "tensors.hpp"

namespace attn_conformance {
namespace {

template <class T>
void load_projection(const Case& c, const std::string& name, attn::Linear<T>& projection) {
  projection.weight().assign(c.at("w." + name).get<T, 2>());
  if (c.has("w." + name + "_bias")) projection.bias().assign(c.at("w." + name + "_bias").get<T, 1>());
}

template <class T>
void run_feed_forward(const Case& c, attn::Activation activation, Comparison& out) {
  const std::vector<Index>& shape = c.at("w.gate").shape();
  attn::FeedForward<T> network({.embed_dim = shape[1],
                                .hidden_dim = shape[0],
                                .activation = activation,
                                .gating = attn::Gating::gated,
                                .bias = c.has("w.gate_bias")});
  load_projection(c, "gate", network.gate_proj());
  load_projection(c, "up", network.up_proj());
  load_projection(c, "down", network.down_proj());
  with_tensor<T>(c.at("in.x"), [&](const auto& x) { out.expect("out", network.forward(x)); });
}

Kind feed_forward_kind(std::string name, attn::Activation activation) {
  return make_kind<float, double>(std::move(name), [=]<class T>(const Case& c, Comparison& out) {
    run_feed_forward<T>(c, activation, out);
  });
}

}  // namespace

std::vector<Kind> torch_feed_forward_kinds() {
  using attn::Activation;
  return {feed_forward_kind("glu_ffn", Activation::sigmoid), feed_forward_kind("reglu_ffn", Activation::relu),
          feed_forward_kind("geglu_ffn", Activation::gelu),
          feed_forward_kind("geglu_tanh_ffn", Activation::gelu_tanh),
          feed_forward_kind("swiglu_ffn", Activation::silu)};
}

}  // namespace attn_conformance
