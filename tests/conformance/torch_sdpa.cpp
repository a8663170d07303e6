// PyTorch's scaled_dot_product_attention, with its logsumexp and probabilities.
#include <cmath>

#include "attn/models/pytorch_masks.hpp"
#include "attn/ops/sdpa.hpp"
#include "masks.hpp"
#include "registry.hpp"

namespace attn_conformance {
namespace {

template <class T>
class Sdpa {
 public:
  explicit Sdpa(const Case& c)
      : case_(c), q_(c.at("in.q").get<T, 4>()), k_(c.at("in.k").get<T, 4>()), v_(c.at("in.v").get<T, 4>()) {
    options_.query_offset = 0;  // is_causal aligns top-left
    if (c.config.contains("scale") && !c.config["scale"].is_null())
      options_.scale = c.config["scale"].get<double>();
  }

  void run(Comparison& out) const {
    const auto causal = case_.attribute("causal", false) ? std::optional(attn::Causal{}) : std::nullopt;
    with_tensor_mask(
        [&](const auto& mask) { with_also(mask, causal, [&](const auto& all) { attend(all, out); }); });
  }

 private:
  template <class F>
  void with_tensor_mask(F f) const {
    if (!case_.has("in.mask")) return f(attn::NoMask{});
    if (case_.at("in.mask").dtype() == DType::boolean)
      f(attn::pytorch_sdpa_mask(PairValues<std::uint8_t>(case_.at("in.mask")).view()));
    else
      f(attn::pytorch_sdpa_mask(PairValues<T>(case_.at("in.mask")).view()));
  }

  template <class M>
  void attend(const M& mask, Comparison& out) const {
    const auto scores = attn::sdpa_with_weights(q_, k_, v_, mask, options_, attn::ScoreStage::scaled).weights;
    double largest = 0;
    for (Index i = 0; i < scores.size(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(scores.data()[i])));
    out.note_largest_score(largest);

    const auto fused = attn::sdpa_with_logsumexp(q_, k_, v_, mask, options_);
    out.expect("out", fused.out);
    if (case_.has("out.lse")) out.expect("lse", fused.logsumexp);
    if (case_.has("out.probs"))
      out.expect("probs", attn::sdpa_with_weights(q_, k_, v_, mask, options_).weights);
  }

  const Case& case_;
  Tensor<T, 4> q_, k_, v_;
  attn::SdpaOptions options_;
};

}  // namespace

std::vector<Kind> torch_sdpa_kinds() {
  return {
      make_kind<float, double>("sdpa", []<class T>(const Case& c, Comparison& out) { Sdpa<T>(c).run(out); })};
}

}  // namespace attn_conformance
