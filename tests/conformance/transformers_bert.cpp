// Hugging Face's BertModel.
#include "attn/models/bert.hpp"
#include "registry.hpp"
#include "tensors.hpp"

namespace attn_conformance {
namespace {

template <class T>
void run_bert(const Case& c, Comparison& out) {
  const attn::BertEncoder<T> model(attn::bert_config(c.config, c.name), c.tensors.under("w."));
  attn::BertRequest request;
  for (Index i = 0; i <= model.config().num_layers; ++i) request.hidden_states.push_back(i);
  for (Index i = 0; i < model.config().num_layers; ++i) request.attention_layers.push_back(i);
  attn::BertOptions options;
  options.padded_rows = attn::PaddedRows::compute;  // as transformers does
  const auto details = model.forward_with_details(
      c.tensors.view<std::int64_t, 2>("in.ids"), prefix_lengths(c.at("in.attention_mask")), request, options);
  out.note_deep_stack();
  out.expect("main", details.last_hidden_state);
  for (std::size_t i = 0; i < details.hidden_states.size(); ++i)
    out.expect("hidden." + std::to_string(i), details.hidden_states[i]);
  for (std::size_t i = 0; i < details.attentions.size(); ++i)
    out.expect("attentions." + std::to_string(i), details.attentions[i]);
}

}  // namespace

std::vector<Kind> transformers_bert_kinds() {
  return {make_kind<float, double>("transformers:BertModel",
                                   []<class T>(const Case& c, Comparison& out) { run_bert<T>(c, out); })};
}

}  // namespace attn_conformance
