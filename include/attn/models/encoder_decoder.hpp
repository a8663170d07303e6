// attn/models/encoder_decoder.hpp - EncoderDecoder: T5 and BART, from a source text to the logits of a
// target, with caches.
#pragma once
#include <algorithm>
#include <concepts>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "attn/io/shards.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/relative_bias.hpp"
#include "attn/models/encoder_decoder_cache.hpp"
#include "attn/models/encoder_decoder_weights.hpp"
#include "attn/modules/derived_copy.hpp"

ATTN_NAMESPACE_BEGIN

/// How one call of an EncoderDecoder runs.
struct EncoderDecoderOptions {
  /// Tokens of each sequence that count, each in [0, n]; the ids behind them are padding and never looked at.
  /// Empty: all. A target with 0 stays as it is.
  std::span<const Index> lengths{};
  ExecutorRef executor{};          ///< default: the calling thread; results do not depend on it
  Workspace* workspace = nullptr;  ///< default: scratch is allocated in the call
};

/// A sequence-to-sequence model with weights of type T; activations, caches' inputs and logits are of the
/// type that T accumulates in.
///
/// Ids are [batch, n] of any integer type. begin() encodes sources and fills the cache of what the decoder
/// takes from them, once; after that forward_into() continues the targets, by one token or many. One object
/// may serve any number of threads at once, each call with its own workspace and cache. With a workspace that
/// has served a shape once, and a cache with room, forward_into allocates nothing.
template <Element T>
class EncoderDecoder {
 public:
  using Scalar = Accumulator<T>;
  using Options = EncoderDecoderOptions;
  template <class Storage = Scalar>
  using Cache = EncoderDecoderCache<Scalar, Storage>;

  /// All parameters zero (norms one).
  /// @throws ShapeError as the modules.
  explicit EncoderDecoder(const EncoderDecoderConfig& config) : config_(config), modules_(config) {}
  /// From Hugging Face's names. A matrix of the logits that is there is read, whatever the config says.
  /// @throws FormatError naming a weight that is missing or has another shape or type.
  EncoderDecoder(const EncoderDecoderConfig& config, const WeightMap& weights)
      : EncoderDecoder(checked(config, weights)) {
    detail::EncoderDecoderWeights<T>(config_, weights).read(modules_);
  }
  /// From a directory with config.json and model.safetensors (or its shards).
  static EncoderDecoder load(const std::filesystem::path& directory) {
    const EncoderDecoderConfig config = read_encoder_decoder_config(directory / "config.json");
    return EncoderDecoder(config, open_weights(directory));
  }

  const EncoderDecoderConfig& config() const { return config_; }
  EncoderDecoderModules<T>& modules() { return modules_; }
  const EncoderDecoderModules<T>& modules() const { return modules_; }

  /// An empty cache for sources of up to `source_len` tokens; `config` says batch, max_len of the targets and
  /// policy, and the heads are filled in.
  template <class Storage = Scalar>
  Cache<Storage> make_cache(KVCacheConfig config, Index source_len) const {
    const MultiHeadAttentionConfig attention =
        MultiHeadAttention<T>(config_.decoder.layer.attention()).config();
    config.num_kv_heads = attention.num_kv_heads;
    config.head_dim = attention.head_dim;
    return Cache<Storage>(config_.decoder.num_layers, config, source_len);
  }

  /// The encoder's result [batch, n, embed_dim]; rows of padding mean nothing.
  /// @throws std::invalid_argument naming an id that is out of range; std::length_error if the source is
  /// longer than the model knows; ShapeError if the lengths do not fit.
  template <TensorLike Ids>
  [[nodiscard]] Tensor<Scalar, 3> encode(const Ids& ids, const Options& options = {}) const;

  /// Encodes sources ids [batch, n] and fills the cache with what the decoder's layers take from them.
  /// @throws std::invalid_argument if the cache has a source already: reset() it first. Else as encode.
  template <TensorLike Ids, class Storage>
  void begin(const Ids& ids, Cache<Storage>& cache, const Options& options = {}) const;

  /// Appends ids to the targets. logits [batch, vocab_size]: those behind the last token of each sequence;
  /// logits [batch, n, vocab_size]: those behind each id. Behind padding they mean nothing.
  /// @throws std::invalid_argument if the cache has no source, or naming an id that is out of range;
  /// std::length_error if a target leaves the model's context or the cache's room; ShapeError if lengths,
  /// batch or logits do not fit. The cache is unchanged then.
  template <TensorLike Ids, class Storage, WritableTensor Out>
  void forward_into(const Ids& ids, Cache<Storage>& cache, Out&& logits, const Options& options = {}) const;

  /// Whole sources and targets: the logits [batch, n, vocab_size] behind each id of the targets.
  /// `options.lengths` are of the sources.
  template <TensorLike Ids, TensorLike TargetIds>
  [[nodiscard]] Tensor<Scalar, 3> forward(const Ids& ids, const TargetIds& target_ids,
                                          const Options& options = {}) const;

  /// The tokens that are likeliest one after the other (of equal ones the lowest), of each source, behind
  /// config().start_token: up to and with one of config().end_tokens, at most `max_tokens`.
  template <TensorLike Ids>
  [[nodiscard]] std::vector<std::vector<Index>> greedy(const Ids& ids, Index max_tokens,
                                                       const Options& options = {}) const;

  // The steps of encode and forward, for those who look inside.

  /// What enters a stack: embeddings of ids [batch, n] whose first stand at `positions`.
  template <std::integral Id>
  void embed_into(const TensorView<const Id, 2>& ids, std::span<const Index> positions, bool is_source,
                  const TensorView<Scalar, 3>& x, const RunOptions& run) const;
  /// f(mask), the mask among rows of a source of these lengths.
  template <class F>
  void with_source_mask(std::span<const Index> lengths, F f) const {
    const KeyPadding padding{lengths};
    if (config_.relative_buckets > 0)
      f(all_of(relative_bias(modules_.encoder_input, RelativeDirection::bidirectional), padding));
    else
      f(padding);
  }
  /// f(mask), the mask among rows of a target.
  template <class F>
  void with_target_mask(F f) const {
    if (config_.relative_buckets == 0) return f(Causal{});
    const auto build = [&] {
      return all_of(Causal{}, relative_bias(modules_.decoder_input, RelativeDirection::causal));
    };
    f(*target_mask_.get({modules_.decoder_input.relative_bias.version()}, build));
  }
  /// Hidden states [.., embed_dim] behind the decoder's last norm, which are contiguous and are overwritten,
  /// to logits.
  template <int Rank>
  void logits_into(const TensorView<Scalar, Rank>& x, const TensorView<Scalar, Rank>& logits,
                   const RunOptions& run) const;

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    EncoderDecoderModules<T>::visit_members(self.modules_, f);
  }

 private:
  using Rows = TensorView<Scalar, 3>;  // [batch, n, dim]

  static EncoderDecoderConfig checked(EncoderDecoderConfig config, const WeightMap& weights) {
    if (weights.contains("lm_head.weight")) config.tied_embeddings = false;
    detail::EncoderDecoderWeights<T>(config, weights).check();
    return config;
  }
  RelativeBias<Scalar> relative_bias(const EncoderDecoderInput<T>& input, RelativeDirection direction) const {
    Tensor<Scalar, 2> table(input.relative_bias.extents());
    copy(input.relative_bias.view(), table.view());
    return RelativeBias<Scalar>(table, {config_.relative_buckets, config_.relative_max_distance, direction});
  }
  /// options.lengths, or n for each entry, in memory of the frame.
  /// @throws ShapeError if they do not fit.
  static std::span<const Index> counts_of(Index batch, Index n, const Options& options,
                                          Workspace::Frame& frame);
  template <std::integral Id>
  void check_ids(const TensorView<const Id, 2>& ids, std::span<const Index> counts,
                 std::span<const Index> positions) const;
  template <class Storage, Mask M>
  static void decode_layer(const TransformerDecoderLayer<T>& layer, const Rows& x,
                           KVCache<Scalar, Storage>& own, const KVCache<Scalar, Storage>& source,
                           const M& mask, const CachedAttentionOptions& options);
  template <class IdView, class Out>
  void check_logits(const IdView& ids, const Out& logits) const {
    constexpr int rank = rank_of<Out>;
    static_assert(rank == 2 || rank == 3, "attn: logits are [batch, vocab_size] or [batch, n, vocab_size]");
    Dims<rank> wanted{};
    for (int axis = 0; axis + 1 < rank; ++axis) wanted[axis] = ids.extent(axis);
    wanted[rank - 1] = config_.vocab_size;
    check(as_view(logits).extents() == wanted, "EncoderDecoder: logits ", as_view(logits), " should be ",
          wanted);
  }
  template <class Out>
  void write_logits(std::span<const Index> counts, const Rows& x, Out& logits, const RunOptions& run) const;

  EncoderDecoderConfig config_;
  EncoderDecoderModules<T> modules_;
  DerivedCopy<std::optional<AllOf<Causal, RelativeBias<Scalar>>>, 1> target_mask_;
};

template <Element T>
std::span<const Index> EncoderDecoder<T>::counts_of(Index batch, Index n, const Options& options,
                                                    Workspace::Frame& frame) {
  check(options.lengths.empty() || static_cast<Index>(options.lengths.size()) == batch,
        "EncoderDecoder: ", options.lengths.size(), " lengths for a batch of ", batch);
  const std::span<Index> counts = frame.take<Index>(batch);
  for (std::size_t b = 0; b < counts.size(); ++b) {
    counts[b] = options.lengths.empty() ? n : options.lengths[b];
    check(0 <= counts[b] && counts[b] <= n, "EncoderDecoder: lengths[", b, "] is ", counts[b],
          ", not within [0, ", n, "], the ids of a sequence");
  }
  return counts;
}

template <Element T>
template <std::integral Id>
void EncoderDecoder<T>::check_ids(const TensorView<const Id, 2>& ids, std::span<const Index> counts,
                                  std::span<const Index> positions) const {
  for (Index b = 0; b < ids.extent(0); ++b) {
    const Index count = counts[as_size(b)], before = positions[as_size(b)];
    check<std::length_error>(count <= config_.max_len - before, "EncoderDecoder: sequence ", b, " of ",
                             before, " and ", count, " new tokens is longer than the model knows, ",
                             config_.max_len);
    for (Index i = 0; i < count; ++i) {
      const Id id = ids(b, i);
      check<std::invalid_argument>(std::in_range<Index>(id) && 0 <= static_cast<Index>(id) &&
                                       static_cast<Index>(id) < config_.vocab_size,
                                   "EncoderDecoder: ids(", b, ", ", i, ") is ", id, ", not within [0, ",
                                   config_.vocab_size, ")");
    }
  }
}

template <Element T>
template <std::integral Id>
void EncoderDecoder<T>::embed_into(const TensorView<const Id, 2>& ids, std::span<const Index> positions,
                                   bool is_source, const TensorView<Scalar, 3>& x,
                                   const RunOptions& run) const {
  const auto& input = is_source ? modules_.encoder_input : modules_.decoder_input;
  const TensorView<const T, 2> table = modules_.table().view();
  const auto scale = static_cast<Scalar>(config_.embedding_scale);
  for (Index b = 0; b < ids.extent(0); ++b)
    for (Index i = 0; i < ids.extent(1); ++i) {
      // an id of padding may be anything
      const Index id = std::in_range<Index>(ids(b, i)) ? static_cast<Index>(ids(b, i)) : 0;
      const TensorView<const T, 1> row = table[0 <= id && id < table.extent(0) ? id : 0];
      for (Index c = 0; c < x.extent(2); ++c) x(b, i, c) = static_cast<Scalar>(row(c)) * scale;
      if (!input.positions) continue;
      const TensorView<const T, 2> places = input.positions.view();
      const Index place = config_.position_offset + positions[as_size(b)] + i;
      const TensorView<const T, 1> here = places[std::min(place, places.extent(0) - 1)];
      for (Index c = 0; c < x.extent(2); ++c) x(b, i, c) += static_cast<Scalar>(here(c));
    }
  if (config_.embedding_norm) input.embedding_norm.forward_into(x, x, run);
}

template <Element T>
template <TensorLike Ids>
Tensor<typename EncoderDecoder<T>::Scalar, 3> EncoderDecoder<T>::encode(const Ids& ids,
                                                                        const Options& options) const {
  const auto view = with_rank<2>(detail::read_view(ids));
  Workspace local;
  Workspace& workspace = options.workspace != nullptr ? *options.workspace : local;
  Workspace::Frame frame(workspace);
  const std::span<const Index> counts = counts_of(view.extent(0), view.extent(1), options, frame);
  const std::span<Index> positions = frame.take<Index>(view.extent(0));
  std::fill(positions.begin(), positions.end(), Index{0});
  check_ids(view, counts, positions);
  Tensor<Scalar, 3> x({view.extent(0), view.extent(1), config_.embed_dim()});
  embed_into(view, positions, true, x.view(), {options.executor, &workspace});
  with_source_mask(counts, [&]<class M>(const M& mask) {
    modules_.encoder.apply(x.view(), AttendBatch<M>{mask},
                           {.executor = options.executor, .workspace = &workspace});
  });
  return x;
}

template <Element T>
template <TensorLike Ids, class Storage>
void EncoderDecoder<T>::begin(const Ids& ids, Cache<Storage>& cache, const Options& options) const {
  const Index batch = with_rank<2>(detail::read_view(ids)).extent(0);
  cache.check_fit("EncoderDecoder::begin", config_.decoder.num_layers, batch);
  check<std::invalid_argument>(!cache.has_source(),
                               "EncoderDecoder::begin: the cache has a source; reset() it before the next");
  const Tensor<Scalar, 3> memory = encode(ids, options);
  for (std::size_t i = 0; i < cache.source.size(); ++i)
    modules_.decoder.layers()[i].cross_attention().fill_cross_cache(
        memory, cache.source[i],
        {.counts = options.lengths, .executor = options.executor, .workspace = options.workspace});
  cache.mark_source();
}

template <Element T>
template <class Storage, Mask M>
void EncoderDecoder<T>::decode_layer(const TransformerDecoderLayer<T>& layer, const Rows& x,
                                     KVCache<Scalar, Storage>& own, const KVCache<Scalar, Storage>& source,
                                     const M& mask, const CachedAttentionOptions& options) {
  const RunOptions run{options.executor, options.workspace};
  const NormPlacement norm = layer.config().norm;
  detail::add_branch(norm, layer.norm1(), x, run, [&](const Rows& in) {
    layer.self_attention().apply_cached(in, own, x, x, mask, options);
  });
  detail::add_branch(norm, layer.norm2(), x, run, [&](const Rows& in) {
    layer.cross_attention().apply_cross(in, source, x, x, NoMask{},
                                        {.executor = options.executor, .workspace = options.workspace});
  });
  detail::add_branch(norm, layer.norm3(), x, run,
                     [&](const Rows& in) { layer.feed_forward().add_into(in, x, x, run); });
}

template <Element T>
template <int Rank>
void EncoderDecoder<T>::logits_into(const TensorView<Scalar, Rank>& x, const TensorView<Scalar, Rank>& logits,
                                    const RunOptions& run) const {
  if (config_.head_scale != 1) {
    using Values = Eigen::Array<Scalar, Eigen::Dynamic, 1>;
    Eigen::Map<Values>(x.data(), x.size()) *= static_cast<Scalar>(config_.head_scale);
  }
  modules_.head.forward_into(x, logits, {run.executor, run.workspace});
}

template <Element T>
template <class Out>
void EncoderDecoder<T>::write_logits(std::span<const Index> counts, const Rows& x, Out& logits,
                                     const RunOptions& run) const {
  if constexpr (rank_of<Out> == 2) {
    Workspace::Frame frame(*run.workspace);
    const TensorView<Scalar, 2> last(frame.template take<Scalar>(x.extent(0) * x.extent(2)).data(),
                                     {x.extent(0), x.extent(2)});
    for (Index b = 0; b < x.extent(0); ++b) copy(x[b][std::max<Index>(counts[as_size(b)], 1) - 1], last[b]);
    logits_into(last, as_view(logits), run);
  } else {
    logits_into(x, as_view(logits), run);
  }
}

template <Element T>
template <TensorLike Ids, class Storage, WritableTensor Out>
void EncoderDecoder<T>::forward_into(const Ids& ids, Cache<Storage>& cache, Out&& logits,
                                     const Options& options) const {
  static_assert(std::same_as<ElementOf<Out>, Scalar>, "attn: logits are of the type that T accumulates in");
  const auto view = with_rank<2>(detail::read_view(ids));
  const Index batch = view.extent(0), n = view.extent(1);
  cache.check_fit("EncoderDecoder", config_.decoder.num_layers, batch);
  check<std::invalid_argument>(cache.has_source(), "EncoderDecoder: the cache has no source: begin() it");
  check_logits(view, logits);
  check(n > 0, "EncoderDecoder: there is no token in ids ", view);
  Workspace local;
  Workspace& workspace = options.workspace != nullptr ? *options.workspace : local;
  Workspace::Frame frame(workspace);
  const std::span<const Index> counts = counts_of(batch, n, options, frame);
  check_ids(view, counts, cache.lengths());
  const RunOptions run{options.executor, &workspace};
  const Rows x(frame.take<Scalar>(batch * n * config_.embed_dim()).data(), {batch, n, config_.embed_dim()});
  embed_into(view, cache.lengths(), false, x, run);
  detail::Rollback<Cache<Storage>> rollback(cache, frame.take<Index>(batch));
  rollback.arm();
  with_target_mask([&](const auto& mask) {
    for (std::size_t i = 0; i < cache.source.size(); ++i)
      decode_layer(modules_.decoder.layers()[i], x, cache.target[i], cache.source[i], mask,
                   {.counts = options.lengths, .executor = options.executor, .workspace = &workspace});
  });
  if (config_.decoder.final_norm == FinalNorm::present) modules_.decoder.norm().forward_into(x, x, run);
  write_logits(counts, x, logits, run);
  rollback.keep_changes();
}

template <Element T>
template <TensorLike Ids, TensorLike TargetIds>
Tensor<typename EncoderDecoder<T>::Scalar, 3> EncoderDecoder<T>::forward(const Ids& ids,
                                                                         const TargetIds& target_ids,
                                                                         const Options& options) const {
  const auto source = with_rank<2>(detail::read_view(ids)),
             target = with_rank<2>(detail::read_view(target_ids));
  auto cache = make_cache({.batch = source.extent(0), .max_len = std::max<Index>(target.extent(1), 1)},
                          std::max<Index>(source.extent(1), 1));
  begin(ids, cache, options);
  Tensor<Scalar, 3> logits({target.extent(0), target.extent(1), config_.vocab_size});
  forward_into(target_ids, cache, logits, {.executor = options.executor, .workspace = options.workspace});
  return logits;
}

template <Element T>
template <TensorLike Ids>
std::vector<std::vector<Index>> EncoderDecoder<T>::greedy(const Ids& ids, Index max_tokens,
                                                          const Options& options) const {
  const auto source = with_rank<2>(detail::read_view(ids));
  check<std::invalid_argument>(max_tokens > 0, "EncoderDecoder::greedy: max_tokens ", max_tokens,
                               " must be positive");
  const Index batch = source.extent(0);
  auto cache = make_cache({.batch = batch, .max_len = max_tokens}, std::max<Index>(source.extent(1), 1));
  Workspace local;
  Workspace& workspace = options.workspace != nullptr ? *options.workspace : local;
  begin(ids, cache, {options.lengths, options.executor, &workspace});
  std::vector<std::vector<Index>> found(as_size(batch));
  std::vector<Index> next(as_size(batch), config_.start_token), counts(as_size(batch), 1);
  Matrix<Scalar> logits(batch, config_.vocab_size);
  for (Index step = 0; step < max_tokens && std::count(counts.begin(), counts.end(), 1) > 0; ++step) {
    forward_into(TensorView<const Index, 2>(next.data(), {batch, 1}), cache, logits,
                 {counts, options.executor, &workspace});
    for (std::size_t b = 0; b < found.size(); ++b) {
      if (counts[b] == 0) continue;
      const Scalar* const row = logits.row(static_cast<Index>(b)).data();
      next[b] = static_cast<Index>(std::max_element(row, row + config_.vocab_size) - row);
      found[b].push_back(next[b]);
      if (std::count(config_.end_tokens.begin(), config_.end_tokens.end(), next[b]) > 0) counts[b] = 0;
    }
  }
  return found;
}

ATTN_NAMESPACE_END
