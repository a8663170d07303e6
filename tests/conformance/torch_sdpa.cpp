// PyTorch's scaled_dot_product_attention, with its logsumexp and probabilities.
#include "torch_sdpa.hpp"

#include "attn/models/pytorch_masks.hpp"

namespace attn_conformance {
namespace {

template <class T, class F>
void with_tensor_mask(const Case& c, F f) {
  if (!c.has("in.mask")) return f(attn::NoMask{});
  if (c.at("in.mask").dtype() == DType::boolean)
    f(attn::pytorch_sdpa_mask(PairValues<std::uint8_t>(c.at("in.mask")).view()));
  else
    f(attn::pytorch_sdpa_mask(PairValues<T>(c.at("in.mask")).view()));
}

template <class T>
void run_sdpa(const Case& c, Comparison& out) {
  const SdpaCase<T> sdpa(c);
  const auto causal = c.attribute("causal", false) ? std::optional(attn::Causal{}) : std::nullopt;
  with_tensor_mask<T>(
      c, [&](const auto& mask) { with_also(mask, causal, [&](const auto& all) { sdpa.attend(all, out); }); });
}

}  // namespace

std::vector<Kind> torch_sdpa_kinds() {
  return {make_kind<float, double, Eigen::half, Eigen::bfloat16>(
      "sdpa", []<class T>(const Case& c, Comparison& out) { run_sdpa<T>(c, out); })};
}

}  // namespace attn_conformance
