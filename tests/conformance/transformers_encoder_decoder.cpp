// Hugging Face's encoder-decoder models T5 and BART: whole targets layer by layer, targets decoded with
// caches in chunks of any length, and greedy tokens.
#include "attn/models/encoder_decoder.hpp"
#include "registry.hpp"
#include "tensors.hpp"

namespace attn_conformance {
namespace {

using Ids = Eigen::Matrix<Index, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T>
class EncoderDecoderCase {
 public:
  explicit EncoderDecoderCase(const Case& c)
      : case_(c),
        model_(attn::encoder_decoder_config(c.config, c.name), c.tensors.under("w.")),
        ids_(read_ids("in.ids")),
        target_ids_(read_ids("in.decoder_ids")) {
    lengths_.assign(attn::as_size(ids_.rows()), ids_.cols());
    if (c.has("in.attention_mask")) lengths_ = prefix_lengths(c.at("in.attention_mask"));
  }

  void run(Comparison& out) {
    const Tensor<T, 3> memory = encode(out);
    out.note_deep_stack();
    decode(memory, out);
    out.expect("main", model_.forward(ids_, target_ids_, {.lengths = lengths_}));
    for (const Index chunk : {1, 2}) decode_in_chunks(chunk, out);
    if (case_.has("out.greedy")) out.expect("greedy", greedy(case_.at("out.greedy").shape()[1]));
  }

 private:
  Ids read_ids(const char* name) const {
    const auto stored = case_.tensors.template view<std::int64_t, 2>(name);
    Ids ids(stored.extent(0), stored.extent(1));
    attn::copy(stored, attn::as_view(ids));
    return ids;
  }
  Tensor<T, 3> embed(const Ids& ids, bool is_source) const {
    Tensor<T, 3> x({ids.rows(), ids.cols(), model_.config().embed_dim()});
    const std::vector<Index> zeros(attn::as_size(ids.rows()));
    model_.embed_into(TensorView<const Index, 2>(attn::as_view(ids)), zeros, is_source, x.view(), {});
    return x;
  }

  Tensor<T, 3> encode(Comparison& out) const {
    Tensor<T, 3> x = embed(ids_, true);
    attn::Workspace workspace;
    const attn::MultiHeadAttentionOptions options{.workspace = &workspace};
    const auto& encoder = model_.modules().encoder;
    const Index heads = encoder.config().layer.num_heads, len = x.extent(1);
    model_.with_source_mask(lengths_, [&]<class M>(const M& mask) {
      for (std::size_t i = 0; i < encoder.layers().size(); ++i) {
        Tensor<T, 4> weights({x.extent(0), heads, len, len});
        encoder.layers()[i].apply(x.view(), attn::AttendWithWeights<T, M>{mask, weights.view()}, options);
        const std::string name = "encoder_attentions." + std::to_string(i);
        if (case_.has("out." + name)) out.expect(name, weights);
      }
    });
    encoder.apply_final_norm(x.view(), options);
    return x;
  }

  void decode(const Tensor<T, 3>& memory, Comparison& out) const {
    using Padding = attn::KeyPadding;
    Tensor<T, 3> x = embed(target_ids_, false);
    attn::Workspace workspace;
    const attn::MultiHeadAttentionOptions options{.workspace = &workspace};
    const auto& decoder = model_.modules().decoder;
    const Index heads = decoder.config().layer.num_heads, len = x.extent(1);
    const Padding padding{lengths_};
    const bool has_layers = case_.has("out.hidden.0");
    if (has_layers) out.expect("hidden.0", x);
    model_.with_target_mask([&]<class M>(const M& mask) {
      for (std::size_t i = 0; i < decoder.layers().size(); ++i) {
        Tensor<T, 4> own({x.extent(0), heads, len, len}), cross({x.extent(0), heads, len, memory.extent(1)});
        decoder.layers()[i].apply(x.view(), memory.view(), attn::AttendWithWeights<T, M>{mask, own.view()},
                                  attn::AttendWithWeights<T, Padding>{padding, cross.view()}, options);
        if (i + 1 == decoder.layers().size() && decoder.norm().weight()) decoder.norm().forward_into(x, x);
        if (!has_layers) continue;
        out.expect("hidden." + std::to_string(i + 1), x);
        out.expect("decoder_attentions." + std::to_string(i), own);
        out.expect("cross_attentions." + std::to_string(i), cross);
      }
    });
    Tensor<T, 3> logits({x.extent(0), len, model_.config().vocab_size});
    model_.logits_into(x.view(), logits.view(), {});
    out.expect("main", logits);
  }

  void decode_in_chunks(Index chunk, Comparison& out) const {
    const Index len = target_ids_.cols();
    auto cache = model_.make_cache({.batch = ids_.rows(), .max_len = len}, ids_.cols());
    model_.begin(ids_, cache, {.lengths = lengths_});
    Tensor<T, 3> logits({ids_.rows(), len, model_.config().vocab_size});
    for (Index first = 0; first < len; first += chunk) {
      const Index count = std::min(chunk, len - first);
      const Ids part = target_ids_.middleCols(first, count);
      model_.forward_into(part, cache, logits.view().slice(1, {first, first + count}));
    }
    out.expect("main", logits);
  }

  /// Behind the end of a target stand tokens of padding.
  Ids greedy(Index max_tokens) const {
    const auto found = model_.greedy(ids_, max_tokens, {.lengths = lengths_});
    Ids tokens = Ids::Constant(ids_.rows(), max_tokens, case_.config.at("pad_token_id").get<Index>());
    for (std::size_t b = 0; b < found.size(); ++b)
      for (std::size_t i = 0; i < found[b].size(); ++i)
        tokens(static_cast<Index>(b), static_cast<Index>(i)) = found[b][i];
    return tokens;
  }

  const Case& case_;
  attn::EncoderDecoder<T> model_;
  Ids ids_, target_ids_;
  std::vector<Index> lengths_;
};

}  // namespace

std::vector<Kind> transformers_encoder_decoder_kinds() {
  const auto run = []<class T>(const Case& c, Comparison& out) { EncoderDecoderCase<T>(c).run(out); };
  return {make_kind<float, double>("transformers:T5ForConditionalGeneration", run),
          make_kind<float, double>("transformers:BartForConditionalGeneration", run)};
}

}  // namespace attn_conformance
