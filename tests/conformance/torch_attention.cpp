// PyTorch's nn.MultiheadAttention.
#include <utility>

#include "attn/models/pytorch.hpp"
#include "attn/modules/multi_head_attention.hpp"
#include "registry.hpp"
#include "torch_masks.hpp"

namespace attn_conformance {
namespace {

template <class T>
attn::MultiHeadAttention<T> load_module(const Case& c) {
  attn::MultiHeadAttention<T> module({.embed_dim = c.attribute<Index>("embed_dim", 0),
                                      .num_heads = c.attribute<Index>("num_heads", 0),
                                      .kdim = c.attribute<Index>("kdim", 0),
                                      .vdim = c.attribute<Index>("vdim", 0),
                                      .bias = c.attribute("bias", true),
                                      .add_bias_kv = c.attribute("add_bias_kv", false),
                                      .add_zero_attn = c.attribute("add_zero_attn", false)});
  attn::load_pytorch(c.tensors, module, "w.");
  return module;
}

/// Inputs and output are [len, dim] (Rank 2), or [batch, len, dim] or [len, batch, dim] (Rank 3).
template <class T, int Rank>
void run_attention(const Case& c, Comparison& out) {
  const attn::MultiHeadAttention<T> module = load_module<T>(c);
  const bool batch_first = c.attribute("batch_first", false);
  const bool is_self = c.attribute("self", false);
  const auto query = c.at("in.query").get<T, Rank>();
  const auto key = c.at(is_self ? "in.query" : "in.key").get<T, Rank>();
  const auto value = c.at(is_self ? "in.query" : "in.value").get<T, Rank>();
  const auto q = batch_major(query.view(), batch_first), k = batch_major(key.view(), batch_first);
  const auto v = batch_major(value.view(), batch_first);

  const auto attend = [&](const auto& mask) {
    Tensor<T, Rank> result(query.extents());
    module.forward_into(q, k, v, batch_major(result.view(), batch_first), mask);
    out.expect("out", result);
    if (!c.has("out.weights")) return;
    const auto weights = module.forward_with_weights(q, k, v, mask).weights;
    if (c.attribute("average_attn_weights", true))
      out.expect("weights", attn::average_heads(weights));
    else
      out.expect("weights", weights);
  };
  const auto attend_padded = [&](const auto& mask) {
    if (!c.has("in.key_padding_mask")) return attend(mask);
    with_torch_mask(c, "in.key_padding_mask", [&](const auto& padding) { attend(mask & padding); });
  };
  if (c.has("in.attn_mask"))
    with_torch_mask(c, "in.attn_mask", attend_padded);
  else if (c.has("in.key_padding_mask"))
    with_torch_mask(c, "in.key_padding_mask", attend);
  else
    attend(attn::NoMask{});
}

}  // namespace

std::vector<Kind> torch_attention_kinds() {
  return {make_kind<float, double>("nn.MultiheadAttention", []<class T>(const Case& c, Comparison& out) {
    if (c.at("in.query").rank() == 2)
      run_attention<T, 2>(c, out);
    else
      run_attention<T, 3>(c, out);
  })};
}

}  // namespace attn_conformance
