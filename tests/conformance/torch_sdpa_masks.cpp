// Scaled dot-product attention with masks for which PyTorch has no argument: their right results come from
// the formula.
#include "attn/masks/alibi.hpp"
#include "attn/masks/document.hpp"
#include "attn/masks/prefix.hpp"
#include "attn/masks/relative_bias.hpp"
#include "attn/masks/window.hpp"
#include "torch_sdpa.hpp"

namespace attn_conformance {
namespace {

template <class T>
void window(const Case& c, Comparison& out) {
  const attn::SlidingWindow mask{.left = c.config.at("left"), .right = c.config.at("right")};
  SdpaCase<T>(c).attend(mask, out);
}

template <class T>
void alibi(const Case& c, Comparison& out) {
  const SdpaCase<T> sdpa(c);
  const Index num_heads = c.at("in.q").shape()[1];
  if (c.config.at("form") == "symmetric")
    sdpa.attend(attn::Alibi(num_heads, attn::AlibiForm::symmetric), out);
  else
    sdpa.attend(attn::Causal{} & attn::Alibi(num_heads), out);
}

template <class T>
void relative_bias(const Case& c, Comparison& out) {
  const SdpaCase<T> sdpa(c);
  const bool is_causal = c.config.at("form") == "causal";
  const auto direction = is_causal ? attn::RelativeDirection::causal : attn::RelativeDirection::bidirectional;
  const attn::RelativeBias bias(c.at("in.table").get<T, 2>(),
                                {c.config.at("num_buckets"), c.config.at("max_distance"), direction});
  with_also(bias, is_causal ? std::optional(attn::Causal{}) : std::nullopt,
            [&](const auto& mask) { sdpa.attend(mask, out); });
}

template <class T>
void documents(const Case& c, Comparison& out) {
  const SdpaCase<T> sdpa(c);
  const attn::Documents mask(c.at("in.query_ids").view<Index, 2>(), c.at("in.key_ids").view<Index, 2>());
  with_also(mask, c.attribute("causal", false) ? std::optional(attn::Causal{}) : std::nullopt,
            [&](const auto& all) { sdpa.attend(all, out); });
}

template <class T>
void prefix(const Case& c, Comparison& out) {
  const auto lengths = c.config.at("lengths").get<std::vector<Index>>();
  SdpaCase<T>(c).attend(attn::PrefixLm{lengths}, out);
}

template <class T>
void key_padding(const Case& c, Comparison& out) {
  const auto lengths = c.config.at("lengths").get<std::vector<Index>>();
  SdpaCase<T>(c).attend(attn::KeyPadding{lengths}, out);
}

template <class F>
Kind mask_kind(std::string name, F f) {
  return make_kind<float, double>(std::move(name), f);
}

}  // namespace

std::vector<Kind> torch_sdpa_mask_kinds() {
  return {
      mask_kind("sdpa.window", []<class T>(const Case& c, Comparison& out) { window<T>(c, out); }),
      mask_kind("sdpa.alibi", []<class T>(const Case& c, Comparison& out) { alibi<T>(c, out); }),
      mask_kind("sdpa.relative_bias",
                []<class T>(const Case& c, Comparison& out) { relative_bias<T>(c, out); }),
      mask_kind("sdpa.documents", []<class T>(const Case& c, Comparison& out) { documents<T>(c, out); }),
      mask_kind("sdpa.prefix", []<class T>(const Case& c, Comparison& out) { prefix<T>(c, out); }),
      mask_kind("sdpa.key_padding", []<class T>(const Case& c, Comparison& out) { key_padding<T>(c, out); }),
  };
}

}  // namespace attn_conformance
