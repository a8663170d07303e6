// PyTorch's transformer layers, and nn.Transformer.
#include <memory>
#include <stdexcept>

#include "attn/models/pytorch.hpp"
#include "attn/modules/transformer_decoder.hpp"
#include "registry.hpp"
#include "torch_masks.hpp"

namespace attn_conformance {
namespace {

/// Numbers of a formula instead of a file: the manifest's config.formula.
StoredTensor generate(const std::string& name, std::vector<Index> shape, const nlohmann::json& rule) {
  Index size = 1;
  for (const Index extent : shape) size *= extent;
  const auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(size));
  const auto seed = rule.at("seed").get<std::uint64_t>();
  const double bound = rule.at("bound").get<double>(), plus = rule.value("plus", 0.0);
  for (std::size_t i = 0; i < values->size(); ++i) {
    std::uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15;  // splitmix64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    z ^= z >> 31;
    const double u = static_cast<double>(z >> 40) * 0x1p-24;
    (*values)[i] = static_cast<float>(plus + bound * (2 * u - 1));
  }
  std::vector<Index> strides = attn::detail::contiguous_strides(shape);
  const auto* const data = reinterpret_cast<const std::byte*>(values->data());
  return {name, DType::float32, std::move(shape), std::move(strides), data, values};
}

/// The case with its generated tensors, if it has any.
Case with_generated_tensors(const Case& c) {
  Case full = c;
  if (!c.config.contains("formula")) return full;
  const Index batch = c.config.at("N"), len = c.config.at("L"), memory_len = c.config.at("S");
  const Index dim = c.config.at("d_model");
  full.tensors.add("in.x", generate("in.x", {batch, len, dim}, c.config.at("x")));
  full.tensors.add("in.memory", generate("in.memory", {batch, memory_len, dim}, c.config.at("memory")));
  for (const auto& [name, rule] : c.config.at("weights").items())
    full.tensors.add("w." + name, generate("w." + name, rule.at("shape"), rule));
  const auto x = full.tensors.view<float, 3>("in.x");
  for (Index i = 0; i < 4; ++i)
    if (x(0, 0, i) != c.config.at("x_first4").at(static_cast<std::size_t>(i)).get<float>())
      throw std::runtime_error("the formula gives other numbers than config.x_first4");
  return full;
}

attn::TransformerLayerConfig layer_config(const Case& c) {
  const bool gelu = c.attribute<std::string>("activation", "relu") == "gelu";
  const bool pre = c.attribute("norm_first", false);
  return {.embed_dim = c.attribute<Index>("d_model", 0),
          .num_heads = c.attribute<Index>("nhead", 0),
          .feed_forward_dim = c.attribute<Index>("dim_feedforward", 0),
          .activation = gelu ? attn::Activation::gelu : attn::Activation::relu,
          .norm = pre ? attn::NormPlacement::pre : attn::NormPlacement::post,
          .norm_eps = c.attribute("layer_norm_eps", 1e-5),
          .bias = c.attribute("bias", true)};
}

template <class T>
void run_encoder_layer(const Case& stored, Comparison& out) {
  const Case c = with_generated_tensors(stored);
  attn::TransformerEncoderLayer<T> layer(layer_config(c));
  attn::load_pytorch(c.tensors, layer, "w.");
  const bool batch_first = c.attribute("batch_first", false);
  const auto x = c.at("in.x").get<T, 3>();
  Tensor<T, 3> result(x.extents());
  layer.forward_into(batch_major(x.view(), batch_first), batch_major(result.view(), batch_first),
                     TorchMasks(c, {"in.mask", "in.key_padding_mask"}));
  out.expect("out", result);
}

template <class T>
void run_decoder_layer(const Case& stored, Comparison& out) {
  const Case c = with_generated_tensors(stored);
  attn::TransformerDecoderLayer<T> layer(layer_config(c));
  attn::load_pytorch(c.tensors, layer, "w.");
  const bool batch_first = c.attribute("batch_first", false);
  const auto x = c.at("in.x").get<T, 3>(), memory = c.at("in.memory").get<T, 3>();
  Tensor<T, 3> result(x.extents());
  layer.forward_into(batch_major(x.view(), batch_first), batch_major(memory.view(), batch_first),
                     batch_major(result.view(), batch_first),
                     TorchMasks(c, {"in.mask", "in.key_padding_mask"}),
                     TorchMasks(c, {"in.memory_mask", "in.memory_key_padding_mask"}));
  out.expect("out", result);
}

/// nn.Transformer with its batch first; the memory has the source's padding.
template <class T>
void run_transformer(const Case& c, Comparison& out) {
  const auto layers = c.config.at("layers").get<std::vector<Index>>();
  const auto final_norm =
      c.attribute("final_norms", true) ? attn::FinalNorm::present : attn::FinalNorm::absent;
  attn::Transformer<T> transformer({layer_config(c), layers.at(0), final_norm},
                                   {layer_config(c), layers.at(1), final_norm});
  attn::load_pytorch(c.tensors, transformer, "w.");
  const auto source = c.at("in.src").get<T, 3>(), target = c.at("in.tgt").get<T, 3>();
  const TorchMasks source_mask(c, {"in.src_mask", "in.src_key_padding_mask"});
  const TorchMasks target_mask(c, {"in.tgt_mask", "in.tgt_key_padding_mask"});
  const TorchMasks memory_mask(c, {"in.src_key_padding_mask"});
  out.note_deep_stack();
  out.expect("memory", transformer.encoder().forward(source, source_mask));
  out.expect("out", transformer.forward(source, target, source_mask, target_mask, memory_mask));
}

}  // namespace

std::vector<Kind> torch_transformer_kinds() {
  return {
      make_kind<float, double>("TransformerEncoderLayer",
                               []<class T>(const Case& c, Comparison& out) { run_encoder_layer<T>(c, out); }),
      make_kind<float, double>("TransformerDecoderLayer",
                               []<class T>(const Case& c, Comparison& out) { run_decoder_layer<T>(c, out); }),
      make_kind<float, double>("nn.Transformer",
                               []<class T>(const Case& c, Comparison& out) { run_transformer<T>(c, out); })};
}

}  // namespace attn_conformance
