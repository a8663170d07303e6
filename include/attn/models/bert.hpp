// attn/models/bert.hpp - BertEncoder: token ids to hidden states and sentence embeddings.
#pragma once
#include <concepts>
#include <filesystem>
#include <span>
#include <vector>

#include "attn/io/shards.hpp"
#include "attn/models/bert_config.hpp"
#include "attn/models/weight_reader.hpp"
#include "attn/modules/transformer_encoder.hpp"
#include "attn/ops/pool.hpp"

ATTN_NAMESPACE_BEGIN

/// What becomes of the rows behind a sequence's length.
enum class PaddedRows {
  zero,    ///< not computed: the hidden states there are 0
  compute  ///< computed as queries that see the sequence's tokens, as other libraries do
};

struct BertOptions {
  /// Segment of each token, [batch, len], each in [0, num_token_types); without data: all 0.
  TensorView<const Index, 2> token_types{};
  PaddedRows padded_rows = PaddedRows::zero;
  ExecutorRef executor{};          ///< default: the calling thread; results do not depend on it
  Workspace* workspace = nullptr;  ///< default: scratch is allocated in the call
};

/// What to return besides the last hidden state.
struct BertRequest {
  std::vector<Index> hidden_states{};     ///< 0: the embeddings; i: the result of layer i - 1
  std::vector<Index> attention_layers{};  ///< layers whose attention weights are wanted, from 0
};

/// As requested, in the order of the request.
template <Element T>
struct BertDetails {
  Tensor<T, 3> last_hidden_state;                     ///< [batch, len, embed_dim]
  std::vector<Tensor<T, 3>> hidden_states;            ///< each [batch, len, embed_dim]
  std::vector<Tensor<Accumulator<T>, 4>> attentions;  ///< each [batch, num_heads, len, len]; 0 at padding
};

/// The encoder of BERT (Devlin et al. 2019): embeddings of word, position and segment, then post-norm layers.
///
/// A batch is ids [batch, len] of any integer type with a length per sequence; ids at and behind it are
/// padding and never looked at. Only real tokens are computed: a padded batch costs what its tokens cost. One
/// object may serve any number of threads at once, each call with its own workspace.
template <Element T>
class BertEncoder {
 public:
  /// All parameters zero (norms one).
  explicit BertEncoder(const BertConfig& config);
  /// From Hugging Face names, with or without "bert." before them; pooler and position_ids are ignored.
  /// @throws FormatError naming a weight that is missing or has another shape or type.
  BertEncoder(const BertConfig& config, const WeightMap& weights);
  /// From a directory with config.json and model.safetensors (or its shards).
  static BertEncoder load(const std::filesystem::path& directory) {
    // The config first, so that it is also missed first.
    const BertConfig config = read_bert_config(directory / "config.json");
    return BertEncoder(config, open_weights(directory));
  }

  const BertConfig& config() const { return config_; }
  TransformerEncoder<T>& encoder() { return encoder_; }
  const TransformerEncoder<T>& encoder() const { return encoder_; }

  /// The hidden states after the last layer: out [batch, len, embed_dim]. `lengths`: one per sequence, each
  /// in [0, len]; empty: no padding. With a workspace that has served this shape once, nothing is allocated.
  /// @throws ShapeError if extents or lengths do not fit; std::invalid_argument naming an id that is out of
  /// range.
  template <TensorLike Ids, WritableTensor Out>
  void forward_into(const Ids& ids, std::span<const Index> lengths, Out&& out,
                    const BertOptions& options = {}) const {
    const TensorView<T, 3> to = as_view(out);
    run(as_view(ids), lengths, options,
        [&](const Batch& batch, const Rows& rows, const auto& attend, const MultiHeadAttentionOptions& how) {
          check_hidden(batch, to);
          encoder_.apply(rows, attend, how);
          batch.scatter(rows, to);
        });
  }
  /// As forward_into; returns out.
  template <TensorLike Ids>
  [[nodiscard]] Tensor<T, 3> forward(const Ids& ids, std::span<const Index> lengths = {},
                                     const BertOptions& options = {}) const {
    Tensor<T, 3> out({as_view(ids).extent(0), as_view(ids).extent(1), config_.embed_dim});
    forward_into(ids, lengths, out, options);
    return out;
  }

  /// forward, and what is requested of the layers within; last_hidden_state has the same bits as there.
  template <TensorLike Ids>
  [[nodiscard]] BertDetails<T> forward_with_details(const Ids& ids, std::span<const Index> lengths,
                                                    const BertRequest& request,
                                                    const BertOptions& options = {}) const;

  /// Sentence embeddings, out [batch, embed_dim]: the mean over the hidden states of a sequence's tokens,
  /// scaled to length 1 (Reimers and Gurevych 2019). A sequence of length 0 gives zeros.
  template <TensorLike Ids, WritableTensor Out>
  void embed_into(const Ids& ids, std::span<const Index> lengths, Out&& out,
                  const BertOptions& options = {}) const;
  /// As embed_into; returns out.
  template <TensorLike Ids>
  [[nodiscard]] Matrix<T> embed(const Ids& ids, std::span<const Index> lengths = {},
                                const BertOptions& options = {}) const {
    Matrix<T> out(as_view(ids).extent(0), config_.embed_dim);
    embed_into(ids, lengths, out, options);
    return out;
  }

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("word_embeddings", self.word_);
    f("position_embeddings", self.position_);
    f("token_type_embeddings", self.token_type_);
    f("embeddings_norm", self.norm_);
    f("encoder", self.encoder_);
  }

 private:
  using Rows =
      TensorView<T, 3>;  // [1, tokens, embed_dim]: the computed rows of all sequences, one after the other

  /// Which rows of a [batch, len] grid are computed, and where they stand.
  struct Batch {
    Index size = 0, len = 0;
    PackedSequences sequences;  // the computed rows, and how many of them are tokens

    Tensor<T, 3> padded(const Rows& rows) const {
      Tensor<T, 3> out({size, len, rows.extent(2)});
      scatter(rows, out.view());
      return out;
    }
    /// Rows to their places in [batch, len, dim]; rows that are not computed become 0.
    void scatter(const Rows& rows, const TensorView<T, 3>& out) const {
      for (Index b = 0; b < size; ++b) {
        const Range own = sequences.rows(b);
        copy(rows[0].slice(0, own), out[b].slice(0, {0, own.size()}));
        for (Index i = own.size(); i < len; ++i)
          for (Index c = 0; c < out.extent(2); ++c) out(b, i, c) = T(0);
      }
    }
  };

  void check_weights(const WeightReader& reader) const;
  void read_weights(const WeightReader& reader);
  static void read_layer(const WeightReader& reader, TransformerEncoderLayer<T>& layer);
  Batch make_batch(Index size, Index len, std::span<const Index> lengths, const BertOptions& options,
                   Workspace::Frame& frame) const;
  template <class Id>
  void embed_tokens(const TensorView<Id, 2>& ids, const Batch& batch, const BertOptions& options,
                    const Rows& rows) const;
  void check_hidden(const Batch& batch, const TensorView<T, 3>& out) const {
    const Dims<3> wanted{batch.size, batch.len, config_.embed_dim};
    check(out.extents() == wanted, "BertEncoder: out ", out, " should be ", wanted);
  }
  void keep_hidden_state(Index number, const Batch& batch, const Rows& rows, const BertRequest& request,
                         BertDetails<T>& details) const;
  template <class Attend>
  void run_layer(Index number, const Batch& batch, const Rows& rows, const Attend& attend,
                 const MultiHeadAttentionOptions& how, const BertRequest& request,
                 BertDetails<T>& details) const;
  /// f(batch, embedded rows, how rows attend, options): everything up to the layers.
  template <class Id, class F>
  void run(const TensorView<Id, 2>& ids, std::span<const Index> lengths, const BertOptions& options,
           F f) const;

  BertConfig config_;
  Parameter<T, 2> word_, position_, token_type_;
  Norm<T> norm_;
  TransformerEncoder<T> encoder_;
};

template <Element T>
BertEncoder<T>::BertEncoder(const BertConfig& config)
    : config_(config),
      word_("word_embeddings", {config.vocab_size, config.embed_dim}),
      position_("position_embeddings", {config.max_len, config.embed_dim}),
      token_type_("token_type_embeddings", {config.num_token_types, config.embed_dim}),
      norm_(NormConfig{.dim = config.embed_dim, .eps = config.norm_eps}),
      encoder_(config.encoder()) {}

template <Element T>
BertEncoder<T>::BertEncoder(const BertConfig& config, const WeightMap& weights) : config_(config) {
  const WeightReader all(weights);
  const WeightReader reader =
      all.below(all.contains("bert.embeddings.word_embeddings.weight") ? "bert." : "");
  check_weights(reader);  // before memory is taken for what a config only claims
  *this = BertEncoder(config);
  read_weights(reader);
}

template <Element T>
void BertEncoder<T>::check_weights(const WeightReader& reader) const {
  const Index dim = config_.embed_dim, wide = config_.feed_forward_dim;
  reader.require<2>("embeddings.word_embeddings.weight", {config_.vocab_size, dim});
  reader.require<2>("embeddings.position_embeddings.weight", {config_.max_len, dim});
  reader.require<2>("embeddings.token_type_embeddings.weight", {config_.num_token_types, dim});
  for (Index i = 0; i < config_.num_layers; ++i) {
    const WeightReader layer = reader.below("encoder.layer." + std::to_string(i) + ".");
    layer.require<2>("attention.output.dense.weight", {dim, dim});
    layer.require<2>("intermediate.dense.weight", {wide, dim});
    layer.require<2>("output.dense.weight", {dim, wide});
  }
}

template <Element T>
void BertEncoder<T>::read_weights(const WeightReader& reader) {
  reader.read("embeddings.word_embeddings.weight", word_);
  reader.read("embeddings.position_embeddings.weight", position_);
  reader.read("embeddings.token_type_embeddings.weight", token_type_);
  reader.read("embeddings.LayerNorm", norm_);
  for (std::size_t i = 0; i < encoder_.layers().size(); ++i)
    read_layer(reader.below("encoder.layer." + std::to_string(i) + "."), encoder_.layers()[i]);
}

template <Element T>
void BertEncoder<T>::read_layer(const WeightReader& reader, TransformerEncoderLayer<T>& layer) {
  reader.read("attention.self.query", layer.self_attention().q_proj());
  reader.read("attention.self.key", layer.self_attention().k_proj());
  reader.read("attention.self.value", layer.self_attention().v_proj());
  reader.read("attention.output.dense", layer.self_attention().out_proj());
  reader.read("attention.output.LayerNorm", layer.norm1());
  reader.read("intermediate.dense", layer.feed_forward().up_proj());
  reader.read("output.dense", layer.feed_forward().down_proj());
  reader.read("output.LayerNorm", layer.norm2());
}

template <Element T>
auto BertEncoder<T>::make_batch(Index size, Index len, std::span<const Index> lengths,
                                const BertOptions& options, Workspace::Frame& frame) const -> Batch {
  check(len <= config_.max_len, "BertEncoder: ids [", size, ", ", len, "] are longer than max_len ",
        config_.max_len);
  check(lengths.empty() || static_cast<Index>(lengths.size()) == size, "BertEncoder: ", lengths.size(),
        " lengths for ids [", size, ", ", len, "]");
  const std::span<Index> own = frame.take<Index>(size), offsets = frame.take<Index>(size + 1);
  offsets[0] = 0;
  for (std::size_t b = 0; b < own.size(); ++b) {
    own[b] = lengths.empty() ? len : lengths[b];
    check(0 <= own[b] && own[b] <= len, "BertEncoder: lengths[", b, "] is ", own[b], ", not within ids [",
          size, ", ", len, "]");
    offsets[b + 1] = offsets[b] + (options.padded_rows == PaddedRows::zero ? own[b] : len);
  }
  return {size, len, {offsets, own}};
}

template <Element T>
template <class Id>
void BertEncoder<T>::embed_tokens(const TensorView<Id, 2>& ids, const Batch& batch,
                                  const BertOptions& options, const Rows& rows) const {
  using A = Accumulator<T>;
  const auto row_of = [&](const char* what, const Parameter<T, 2>& table, auto id, Index b, Index i) {
    const Index row = std::in_range<Index>(id) ? static_cast<Index>(id) : -1;
    check<std::invalid_argument>(0 <= row && row < table.extents()[0], "BertEncoder: ", what, "(", b, ", ", i,
                                 ") is ", id, ", not within [0, ", table.extents()[0], ")");
    return table.data() + row * config_.embed_dim;
  };
  for (Index b = 0; b < batch.size; ++b) {
    const Range own = batch.sequences.rows(b);
    for (Index i = 0; i < own.size(); ++i) {
      const T* const word = row_of("ids", word_, ids(b, i), b, i);
      const Index type = options.token_types.data() == nullptr ? 0 : options.token_types(b, i);
      const T* const segment = row_of("token_types", token_type_, type, b, i);
      const T* const position = position_.data() + i * config_.embed_dim;
      T* const row = &rows(0, own.begin + i, 0);
      for (Index c = 0; c < config_.embed_dim; ++c)
        row[c] = static_cast<T>(static_cast<A>(word[c]) + static_cast<A>(segment[c]) +
                                static_cast<A>(position[c]));
    }
  }
}

template <Element T>
template <class Id, class F>
void BertEncoder<T>::run(const TensorView<Id, 2>& ids, std::span<const Index> lengths,
                         const BertOptions& options, F f) const {
  static_assert(std::integral<Id>, "attn: ids are integers");
  check(options.token_types.data() == nullptr || options.token_types.extents() == ids.extents(),
        "BertEncoder: token_types ", options.token_types, " and ids ", ids, " differ in extents");
  Workspace local;
  Workspace& workspace = options.workspace ? *options.workspace : local;
  Workspace::Frame frame(workspace);
  const Batch batch = make_batch(ids.extent(0), ids.extent(1), lengths, options, frame);
  const Dims<3> extents{1, batch.sequences.offsets.back(), config_.embed_dim};
  const Rows rows(frame.take<T>(product(extents)).data(), extents);
  embed_tokens(ids, batch, options, rows);
  norm_.forward_into(rows, rows, {options.executor, &workspace});
  f(batch, rows, AttendPacked<NoMask>{batch.sequences, NoMask{}},
    MultiHeadAttentionOptions{.executor = options.executor, .workspace = &workspace});
}

template <Element T>
template <TensorLike Ids>
BertDetails<T> BertEncoder<T>::forward_with_details(const Ids& ids, std::span<const Index> lengths,
                                                    const BertRequest& request,
                                                    const BertOptions& options) const {
  for (const Index layer : request.attention_layers)
    check(0 <= layer && layer < config_.num_layers, "BertEncoder: there is no layer ", layer, " of ",
          config_.num_layers);
  for (const Index number : request.hidden_states)
    check(0 <= number && number <= config_.num_layers, "BertEncoder: there is no hidden state ", number,
          " with ", config_.num_layers, " layers");
  BertDetails<T> details;
  details.hidden_states.resize(request.hidden_states.size());
  details.attentions.resize(request.attention_layers.size());
  run(as_view(ids), lengths, options,
      [&](const Batch& batch, const Rows& rows, const auto& attend, const MultiHeadAttentionOptions& how) {
        keep_hidden_state(0, batch, rows, request, details);
        for (Index layer = 0; layer < config_.num_layers; ++layer) {
          run_layer(layer, batch, rows, attend, how, request, details);
          keep_hidden_state(layer + 1, batch, rows, request, details);
        }
        details.last_hidden_state = batch.padded(rows);
      });
  return details;
}

template <Element T>
void BertEncoder<T>::keep_hidden_state(Index number, const Batch& batch, const Rows& rows,
                                       const BertRequest& request, BertDetails<T>& details) const {
  for (std::size_t i = 0; i < request.hidden_states.size(); ++i)
    if (request.hidden_states[i] == number) details.hidden_states[i] = batch.padded(rows);
}

template <Element T>
template <class Attend>
void BertEncoder<T>::run_layer(Index number, const Batch& batch, const Rows& rows, const Attend& attend,
                               const MultiHeadAttentionOptions& how, const BertRequest& request,
                               BertDetails<T>& details) const {
  const TransformerEncoderLayer<T>& layer = encoder_.layers()[static_cast<std::size_t>(number)];
  Tensor<Accumulator<T>, 4>* weights = nullptr;
  for (std::size_t i = 0; i < request.attention_layers.size(); ++i) {
    if (request.attention_layers[i] != number) continue;
    if (weights == nullptr) {
      weights = &details.attentions[i];
      *weights = Tensor<Accumulator<T>, 4>({batch.size, config_.num_heads, batch.len, batch.len});
      layer.apply(rows, AttendPackedWithWeights<T, NoMask>{batch.sequences, NoMask{}, weights->view()}, how);
    } else {
      details.attentions[i] = *weights;
    }
  }
  if (weights == nullptr) layer.apply(rows, attend, how);
}

template <Element T>
template <TensorLike Ids, WritableTensor Out>
void BertEncoder<T>::embed_into(const Ids& ids, std::span<const Index> lengths, Out&& out,
                                const BertOptions& options) const {
  const TensorView<T, 2> to = as_view(out);
  const Dims<2> wanted{as_view(ids).extent(0), config_.embed_dim};
  check(to.extents() == wanted, "BertEncoder: out ", to, " should be ", wanted);
  run(as_view(ids), lengths, options,
      [&](const Batch& batch, const Rows& rows, const auto& attend, const MultiHeadAttentionOptions& how) {
        encoder_.apply(rows, attend, how);
        for (Index b = 0; b < batch.size; ++b)
          detail::mean_of_rows(TensorView<const T, 2>(rows[0].slice(0, batch.sequences.keys(b))), to[b]);
      });
  normalize_rows(to);
}

ATTN_NAMESPACE_END
