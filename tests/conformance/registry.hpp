// tests/conformance/registry.hpp - which kinds of case there are runners for, and in which element types.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "case.hpp"
#include "comparison.hpp"

namespace attn_conformance {

/// Computes a case with the library and holds the outputs against the right ones.
using Run = std::function<void(const Case&, Comparison&)>;

struct Kind {
  std::string name;
  std::map<DType, Run> runs;
};

/// A kind whose runner `f` is a function object template: f.template operator()<T>(case, comparison) for each
/// T.
template <class... T, class F>
Kind make_kind(std::string name, F f) {
  Kind kind{std::move(name), {}};
  ((kind.runs[attn::dtype_of<T>] = [f](const Case& c, Comparison& out) { f.template operator()<T>(c, out); }),
   ...);
  return kind;
}

// One function per source file.
std::vector<Kind> onnx_attention_kinds();
std::vector<Kind> onnx_elementwise_kinds();
std::vector<Kind> onnx_gemm_kinds();
std::vector<Kind> rope_kinds();
std::vector<Kind> onnx_tensor_scatter_kinds();
std::vector<Kind> torch_attention_kinds();
std::vector<Kind> torch_elementwise_kinds();
std::vector<Kind> torch_feed_forward_kinds();
std::vector<Kind> torch_sdpa_kinds();
std::vector<Kind> torch_sdpa_mask_kinds();
std::vector<Kind> torch_transformer_kinds();
std::vector<Kind> transformers_bert_kinds();
std::vector<Kind> transformers_causal_lm_kinds();
std::vector<Kind> transformers_encoder_decoder_kinds();

}  // namespace attn_conformance
