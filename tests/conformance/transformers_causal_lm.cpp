// Hugging Face's decoder-only models: whole sequences, what caches hold, and greedy tokens decoded from them.
#include "attn/models/causal_lm.hpp"
#include "registry.hpp"
#include "tensors.hpp"

namespace attn_conformance {
namespace {

using Ids = Eigen::Matrix<Index, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Hidden states between the blocks, the last one behind the norm, and the weights of each block's attention.
template <class T>
void compare_layers(const attn::CausalLM<T>& model, const Ids& ids, Comparison& out) {
  attn::Workspace workspace;
  const attn::MultiHeadAttentionOptions options{.query_offset = 0, .workspace = &workspace};
  Tensor<T, 3> x = model.embed(ids);
  out.expect("hidden.0", x);
  const Index layers = model.config().num_layers, len = ids.cols();
  for (Index i = 0; i < layers; ++i) {
    Tensor<T, 4> weights({ids.rows(), model.config().num_heads, len, len});
    model.with_mask(i, [&]<class M>(const M& mask) {
      model.modules().blocks[attn::as_size(i)].apply(
          x.view(), attn::AttendWithWeights<T, M>{mask, weights.view()}, options);
    });
    if (i + 1 == layers) model.modules().norm.forward_into(x, x);
    out.expect("hidden." + std::to_string(i + 1), x);
    out.expect("attentions." + std::to_string(i), weights);
  }
}

/// The last rows of what a cache stores: other libraries drop what a window no longer reaches.
template <class T>
Tensor<T, 4> newest_rows(const attn::StoredRows<T>& rows, Index count) {
  Tensor<T, 4> newest({rows.extent(0), rows.extent(1), count, rows.extent(3)});
  const Index first = rows.extent(2) - count;
  const TensorView<const T, 4> all(rows.data, rows.extents, rows.strides);
  attn::copy(all.slice(2, {first, first + count}), newest.view());
  return newest;
}

template <class T>
void compare_caches(const Case& c, const attn::CausalLM<T>& model, const Ids& ids, Comparison& out) {
  auto cache = model.make_cache({.batch = ids.rows(), .max_len = ids.cols()});
  (void)model.forward(ids, cache);
  for (Index i = 0; i < model.config().num_layers; ++i) {
    const std::string name = "cache." + std::to_string(i);
    const auto& layer = cache.layers[attn::as_size(i)];
    out.expect(name + ".k", newest_rows(layer.keys(), c.at("out." + name + ".k").shape()[2]));
    out.expect(name + ".v", newest_rows(layer.values(), c.at("out." + name + ".v").shape()[2]));
  }
}

/// The logits behind each id, the ids given in chunks of this length.
template <class T>
void compare_chunks(const attn::CausalLM<T>& model, const Ids& ids, Index chunk, Comparison& out) {
  auto cache = model.make_cache({.batch = ids.rows(), .max_len = ids.cols()});
  Tensor<T, 3> logits({ids.rows(), ids.cols(), model.config().vocab_size});
  for (Index first = 0; first < ids.cols(); first += chunk) {
    const Index count = std::min(chunk, ids.cols() - first);
    const Ids part = ids.middleCols(first, count);
    model.forward_into(part, cache, logits.view().slice(1, {first, first + count}));
  }
  out.expect("main", logits);
}

/// Greedy tokens, each decoded from the cache, and the logits behind the last.
template <class T>
void compare_greedy(const Case& c, const attn::CausalLM<T>& model, const Ids& ids, Comparison& out) {
  const Index steps = c.at("out.greedy6").shape()[1];
  auto cache = model.make_cache({.batch = ids.rows(), .max_len = ids.cols() + steps});
  attn::Matrix<T> logits = model.forward(ids, cache);
  Ids tokens(ids.rows(), steps);
  for (Index step = 0; step < steps; ++step) {
    for (Index b = 0; b < ids.rows(); ++b) logits.row(b).maxCoeff(&tokens(b, step));
    const Ids next = tokens.col(step);
    logits = model.forward(next, cache);
  }
  out.expect("greedy6", tokens);
  out.expect("last_step_logits", logits);
}

template <class T>
void run_causal_lm(const Case& c, Comparison& out) {
  const attn::CausalLM<T> model(attn::causal_lm_config(c.config, c.name), c.tensors.under("w."));
  const auto stored = c.tensors.view<std::int64_t, 2>("in.ids");
  Ids ids(stored.extent(0), stored.extent(1));
  attn::copy(stored, attn::as_view(ids));
  out.note_deep_stack();
  out.expect("main", model.forward(ids));
  compare_layers(model, ids, out);
  compare_caches(c, model, ids, out);
  for (const Index chunk : {1, 4}) compare_chunks(model, ids, chunk, out);
  compare_greedy(c, model, ids, out);
}

}  // namespace

std::vector<Kind> transformers_causal_lm_kinds() {
  std::vector<Kind> kinds;
  for (const char* name : {"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM",
                           "GPT2LMHeadModel", "BloomForCausalLM"})
    kinds.push_back(
        make_kind<float, double>(std::string("transformers:") + name,
                                 []<class T>(const Case& c, Comparison& out) { run_causal_lm<T>(c, out); }));
  return kinds;
}

}  // namespace attn_conformance
