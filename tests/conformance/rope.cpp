// Rotary position embeddings: ONNX's operator, whose tables are inputs, and the formula with its scalings.
#include "attn/ops/rope.hpp"
#include "attn/ops/heads.hpp"
#include "registry.hpp"
#include "tensors.hpp"

namespace attn_conformance {
namespace {

using attn::RopePairing;

RopePairing pairing_of(bool interleaved) {
  return interleaved ? RopePairing::interleaved : RopePairing::half;
}

/// The rows of a table [positions, pairs] at ids [batch, len]; a table [batch, len, pairs] without ids.
template <class T>
Tensor<T, 3> rows_at_positions(const Case& c, const char* name) {
  const StoredTensor& table = c.at(name);
  if (!c.has("in.position_ids")) return table.get<T, 3>();
  const auto ids = c.at("in.position_ids").view<std::int64_t, 2>();
  const Tensor<T, 2> rows = table.get<T, 2>();
  Tensor<T, 3> chosen({ids.extent(0), ids.extent(1), rows.extent(1)});
  for (Index b = 0; b < ids.extent(0); ++b)
    for (Index i = 0; i < ids.extent(1); ++i)
      for (Index pair = 0; pair < rows.extent(1); ++pair) chosen(b, i, pair) = rows(ids(b, i), pair);
  return chosen;
}

template <class T>
void rotary_embedding(const Case& c, Comparison& out) {
  const RopePairing pairing = pairing_of(c.attribute("interleaved", 0) != 0);
  const auto cos = rows_at_positions<T>(c, "in.cos_cache"), sin = rows_at_positions<T>(c, "in.sin_cache");
  if (c.at("in.X").rank() == 4) {
    auto x = c.at("in.X").get<T, 4>();
    attn::rotate_pairs_into(x, cos, sin, x, pairing);
    out.expect("Y", x);
  } else {
    auto x = c.at("in.X").get<T, 3>();
    const auto heads = attn::split_heads(x, c.config.at("num_heads").get<Index>());
    attn::rotate_pairs_into(heads, cos, sin, heads, pairing);
    out.expect("Y", x);
  }
}

/// The parameters as Hugging Face's configurations name them.
attn::RopeScaling scaling_of(const nlohmann::json& config) {
  using attn::RopeScalingKind;
  if (config.is_null()) return {};
  const std::string type = config.at("rope_type");
  const auto number = [&](const char* key, double otherwise) { return config.value(key, otherwise); };
  attn::RopeScaling s{.factor = number("factor", 1),
                      .original_max_len = config.value("original_max_position_embeddings", Index{0}),
                      .low_freq_factor = number("low_freq_factor", 1),
                      .high_freq_factor = number("high_freq_factor", 4),
                      .beta_fast = number("beta_fast", 32),
                      .beta_slow = number("beta_slow", 1),
                      .truncate = config.value("truncate", true),
                      .mscale = number("mscale", 0),
                      .mscale_all_dim = number("mscale_all_dim", 0)};
  if (config.contains("attention_factor")) s.attention_factor = config["attention_factor"].get<double>();
  s.kind = type == "linear"    ? RopeScalingKind::linear
           : type == "dynamic" ? RopeScalingKind::ntk
           : type == "yarn"    ? RopeScalingKind::yarn
           : type == "llama3"  ? RopeScalingKind::llama3
                               : RopeScalingKind::none;
  if (type == "dynamic") s.factor = attn::dynamic_ntk_factor(s.factor, config.at("len"), s.original_max_len);
  return s;
}

template <class T>
void rope(const Case& c, Comparison& out) {
  auto x = c.at("in.x").get<T, 4>();
  const attn::RotaryEmbedding rotary({.pairing = pairing_of(c.config.at("interleaved")),
                                      .head_dim = x.extent(3),
                                      .rotary_dim = c.config.at("rotary_dim"),
                                      .base = c.config.at("theta"),
                                      .scaling = scaling_of(c.config.value("scaling", nlohmann::json()))});
  const StoredTensor& stored = c.at("in.pos");
  const std::vector<std::int64_t> ids = flat_values<std::int64_t>(stored);
  const std::vector<Index> positions(ids.begin(), ids.end());
  rotary.apply(x, TensorView<const Index, 2>(positions, {stored.shape()[0], stored.shape()[1]}));
  out.expect("out", x);
  if (c.has("out.frequencies"))
    out.expect("frequencies",
               TensorView<const double, 1>(rotary.frequencies(), {rotary.config().rotary_dim / 2}));
}

}  // namespace

std::vector<Kind> rope_kinds() {
  return {
      make_kind<float, Eigen::half, Eigen::bfloat16>(
          "RotaryEmbedding", []<class T>(const Case& c, Comparison& out) { rotary_embedding<T>(c, out); }),
      make_kind<float, double>("rope", []<class T>(const Case& c, Comparison& out) { rope<T>(c, out); })};
}

}  // namespace attn_conformance
