// attn/models/pytorch.hpp - weights of PyTorch's attention and transformer modules, under PyTorch's names.
//
// load_pytorch(weights, module, prefix) fills a module of the same configuration. Where anything is missing
// or has another shape, it throws a FormatError that names the weight, and the module keeps what it had.
#pragma once
#include "attn/models/weight_reader.hpp"
#include "attn/modules/transformer_decoder.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// Rows [index * count, (index + 1) * count) of three stacked projections.
template <class T, int Rank>
void read_third(const Tensor<T, Rank>& stacked, Index index, Parameter<T, Rank>& parameter) {
  const Index count = parameter.extents()[0];
  parameter.assign(stacked.view().slice(0, {index * count, (index + 1) * count}));
}

/// A vector that PyTorch keeps as [1, 1, n].
template <class T>
void read_row(const WeightReader& reader, const std::string& name, Parameter<T, 1>& parameter) {
  parameter.assign(reader.template get<T, 3>(name, {1, 1, parameter.size()}).view()[0][0]);
}

/// nn.MultiheadAttention: in_proj_weight [3 embed_dim, embed_dim] holds q, k, v one after the other, unless
/// keys or values have a width of their own; then q_proj_weight, k_proj_weight and v_proj_weight.
/// in_proj_bias [3 embed_dim] always holds all three.
template <Element T>
void read_pytorch(const WeightReader& reader, MultiHeadAttention<T>& module) {
  const MultiHeadAttentionConfig& c = module.config();
  const Index width = module.q_proj().config().out_dim;
  Linear<T>* const projections[] = {&module.q_proj(), &module.k_proj(), &module.v_proj()};
  if (c.kdim == c.embed_dim && c.vdim == c.embed_dim && !reader.contains("q_proj_weight")) {
    const auto stacked = reader.template get<T, 2>("in_proj_weight", {3 * width, c.embed_dim});
    for (Index i = 0; i < 3; ++i) read_third(stacked, i, projections[i]->weight());
  } else {
    reader.read("q_proj_weight", module.q_proj().weight());
    reader.read("k_proj_weight", module.k_proj().weight());
    reader.read("v_proj_weight", module.v_proj().weight());
  }
  check(c.q_bias == c.k_bias && c.k_bias == c.v_bias,
        "load_pytorch: in_proj_bias holds the biases of q, k and v, but the module has q_bias ", *c.q_bias,
        ", k_bias ", *c.k_bias, " and v_bias ", *c.v_bias);
  if (*c.q_bias) {
    const auto stacked = reader.template get<T, 1>("in_proj_bias", {3 * width});
    for (Index i = 0; i < 3; ++i) read_third(stacked, i, projections[i]->bias());
  } else {
    reader.require_absent("in_proj_bias");
  }
  if (c.add_bias_kv) {  // [1, 1, embed_dim]
    read_row(reader, "bias_k", module.bias_k());
    read_row(reader, "bias_v", module.bias_v());
  } else {
    reader.require_absent("bias_k");
  }
  reader.read("out_proj", module.out_proj());
}

template <Element T>
void read_pytorch(const WeightReader& reader, FeedForward<T>& module) {
  check(module.config().gating == Gating::none,
        "load_pytorch: PyTorch's layers have no gated feed-forward network");
  reader.read("linear1", module.up_proj());
  reader.read("linear2", module.down_proj());
}

/// nn.TransformerEncoderLayer.
template <Element T>
void read_pytorch(const WeightReader& reader, TransformerEncoderLayer<T>& module) {
  read_pytorch(reader.below("self_attn."), module.self_attention());
  read_pytorch(reader, module.feed_forward());
  reader.read("norm1", module.norm1());
  reader.read("norm2", module.norm2());
}

/// nn.TransformerDecoderLayer.
template <Element T>
void read_pytorch(const WeightReader& reader, TransformerDecoderLayer<T>& module) {
  read_pytorch(reader.below("self_attn."), module.self_attention());
  read_pytorch(reader.below("multihead_attn."), module.cross_attention());
  read_pytorch(reader, module.feed_forward());
  reader.read("norm1", module.norm1());
  reader.read("norm2", module.norm2());
  reader.read("norm3", module.norm3());
}

/// A stack: nn.TransformerEncoder, nn.TransformerDecoder.
template <class Stack>
  requires requires(Stack& s) { s.layers(); }
void read_pytorch(const WeightReader& reader, Stack& module) {
  for (std::size_t i = 0; i < module.layers().size(); ++i)
    read_pytorch(reader.below("layers." + std::to_string(i) + "."), module.layers()[i]);
  if (module.config().final_norm == FinalNorm::present)
    reader.read("norm", module.norm());
  else
    reader.require_absent("norm.weight");
}

/// nn.Transformer.
template <Element T>
void read_pytorch(const WeightReader& reader, Transformer<T>& module) {
  read_pytorch(reader.below("encoder."), module.encoder());
  read_pytorch(reader.below("decoder."), module.decoder());
}

}  // namespace detail

/// A module that load_pytorch knows how to fill.
template <class Module>
concept PyTorchModule = requires(const WeightReader& reader, Module& module) {
  detail::read_pytorch(reader, module);
};

/// Fills MultiHeadAttention from nn.MultiheadAttention, TransformerEncoderLayer from
/// nn.TransformerEncoderLayer, TransformerEncoder from nn.TransformerEncoder (layers.N., norm.). `prefix`
/// stands before every name
/// ("encoder."). Any floating type converts to the module's.
/// @throws FormatError naming the weight and both shapes; the module is unchanged then.
template <PyTorchModule Module>
void load_pytorch(const WeightMap& weights, Module& module, const std::string& prefix = "") {
  Module filled = module;
  detail::read_pytorch(WeightReader(weights, prefix), filled);
  module = std::move(filled);
}

ATTN_NAMESPACE_END
