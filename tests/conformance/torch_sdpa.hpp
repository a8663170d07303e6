// tests/conformance/torch_sdpa.hpp - a case of scaled dot-product attention, whatever its mask.
#pragma once
#include <cmath>
#include <optional>
#include <vector>

#include "attn/ops/sdpa.hpp"
#include "masks.hpp"
#include "registry.hpp"

namespace attn_conformance {

/// The inputs in.q, in.k, in.v and in.sinks, and the options scale, soft_cap and query_offset (a number, or
/// one per batch entry) of a case. Its outputs are out, lse and probs.
template <class T>
class SdpaCase {
 public:
  explicit SdpaCase(const Case& c)
      : case_(c), q_(c.at("in.q").get<T, 4>()), k_(c.at("in.k").get<T, 4>()), v_(c.at("in.v").get<T, 4>()) {
    if (c.has("in.sinks")) sinks_ = flat_values<double>(c.at("in.sinks"));
    if (c.config.contains("query_offset") && c.config["query_offset"].is_array())
      offsets_ = c.config["query_offset"].get<std::vector<Index>>();
  }

  template <class M>
  void attend(const M& mask, Comparison& out) const {
    const attn::SdpaOptions options = make_options();
    const auto scores = attn::sdpa_with_weights(q_, k_, v_, mask, options, attn::ScoreStage::scaled).weights;
    double largest = 0;
    for (Index i = 0; i < scores.size(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(scores.data()[i])));
    out.note_largest_score(largest);

    const auto fused = attn::sdpa_with_logsumexp(q_, k_, v_, mask, options);
    out.expect("out", fused.out);
    if (case_.has("out.lse")) out.expect("lse", fused.logsumexp);
    if (case_.has("out.probs"))
      out.expect("probs", attn::sdpa_with_weights(q_, k_, v_, mask, options).weights);
  }

 private:
  attn::SdpaOptions make_options() const {
    attn::SdpaOptions options{.soft_cap = case_.attribute("soft_cap", 0.0), .sinks = sinks_};
    if (case_.config.contains("scale") && !case_.config["scale"].is_null())
      options.scale = case_.config["scale"].get<double>();
    if (offsets_.empty())
      options.query_offset = case_.attribute<Index>("query_offset", 0);  // is_causal aligns top-left
    else
      options.query_offset = std::span<const Index>(offsets_);
    return options;
  }

  const Case& case_;
  Tensor<T, 4> q_, k_, v_;
  std::vector<double> sinks_;
  std::vector<Index> offsets_;
};

}  // namespace attn_conformance
