// attn/models/causal_lm.hpp - CausalLM: token ids to the logits of the next token, with or without caches.
#pragma once
#include <concepts>
#include <filesystem>
#include <span>

#include "attn/io/shards.hpp"
#include "attn/masks/alibi.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/window.hpp"
#include "attn/models/causal_lm_cache.hpp"
#include "attn/models/causal_lm_json.hpp"
#include "attn/models/causal_lm_tokens.hpp"
#include "attn/models/causal_lm_weights.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

template <class T>
void fill_zero(const TensorView<T, 1>& row) {
  for (Index c = 0; c < row.extent(0); ++c) row(c) = T(0);
}

template <class A, int Rank>
void multiply(const TensorView<A, Rank>& x, A factor) {
  if constexpr (Rank == 1) {
    for (Index c = 0; c < x.extent(0); ++c) x(c) *= factor;
  } else {
    for (Index i = 0; i < x.extent(0); ++i) multiply(x[i], factor);
  }
}

}  // namespace detail

/// A decoder-only language model with weights of type T; activations, caches' inputs and logits are of the
/// type that T accumulates in.
///
/// Ids are [batch, n] of any integer type, or a span: a batch of one. Without a cache a call computes whole
/// sequences. With a cache it continues them: prefill, a prompt in chunks, and decoding are one call, and
/// give what the whole sequence gives, up to rounding and the cache's storage. One object may serve any
/// number of threads at once, each call with its own workspace and cache. With a workspace that has served
/// a shape once, and a cache with room, nothing is allocated.
template <Element T>
class CausalLM {
 public:
  using Scalar = Accumulator<T>;
  using Options = CausalLMOptions;
  template <class Storage = Scalar>
  using Cache = CausalLMCache<Scalar, Storage>;

  /// All parameters zero (norms one).
  /// @throws ShapeError as the modules.
  explicit CausalLM(const CausalLMConfig& config)
      : config_(config), modules_(config), alibi_(Causal{}, Alibi(config.num_heads)) {
    check(config.positions != PositionKind::alibi || config.windows.empty(),
          "CausalLM: windows and alibi do not go together");
    check(config.windows.empty() || static_cast<Index>(config.windows.size()) == config.num_layers,
          "CausalLM: ", config.windows.size(), " windows for num_layers ", config.num_layers);
  }
  /// From Hugging Face's names, with or without the model's own before them.
  /// @throws FormatError naming a weight that is missing or has another shape or type.
  CausalLM(const CausalLMConfig& config, const WeightMap& weights) : CausalLM(checked(config, weights)) {
    detail::CausalLMWeights<T>(config_, weights).read(modules_);
  }
  /// From a directory with config.json and model.safetensors (or its shards).
  static CausalLM load(const std::filesystem::path& directory) {
    const CausalLMConfig config = read_causal_lm_config(directory / "config.json");
    return CausalLM(config, open_weights(directory));
  }

  const CausalLMConfig& config() const { return config_; }
  CausalLMModules<T>& modules() { return modules_; }
  const CausalLMModules<T>& modules() const { return modules_; }

  /// What the matrices are kept as for the products, those of the blocks and of the logits
  /// (Linear::store_as). The weights themselves, and embeddings, stay as they are. Needs the model alone.
  void store_weights_as(WeightStorage storage) {
    modules_.for_each_linear([&](Linear<T>& linear) { linear.store_as(storage); });
  }
  /// Does now what the first call would do: brings all matrices into the order of the kernel.
  void pack() {
    modules_.for_each_linear([](const Linear<T>& linear) { linear.pack(); });
  }

  /// An empty cache for this model; `config` says batch, max_len and policy, and the heads are filled in.
  template <class Storage = Scalar>
  Cache<Storage> make_cache(KVCacheConfig config) const {
    config.num_kv_heads = config_.kv_heads();
    config.head_dim = config_.dim_of_heads();
    return Cache<Storage>(config_.num_layers, config);
  }

  /// Appends ids to what the cache holds. logits [batch, vocab_size]: those behind the last token of each
  /// sequence; logits [batch, n, vocab_size]: those behind each id. Where nothing is appended they are 0.
  /// @throws std::invalid_argument if there is no id, or naming one that is out of range; std::length_error
  /// if a sequence leaves the model's context or the cache's room; ShapeError if lengths, batch or logits do
  /// not fit. The cache is unchanged then.
  template <TensorLike Ids, class Storage, WritableTensor Out>
  void forward_into(const Ids& ids, Cache<Storage>& cache, Out&& logits, const Options& options = {}) const;
  template <class Storage, WritableTensor Out>
  void forward_into(std::span<const Index> ids, Cache<Storage>& cache, Out&& logits,
                    const Options& options = {}) const {
    forward_into(detail::as_one_row(ids), cache, logits, options);
  }
  /// The logits behind the last token of each sequence, [batch, vocab_size].
  template <TensorLike Ids, class Storage>
  [[nodiscard]] Matrix<Scalar> forward(const Ids& ids, Cache<Storage>& cache,
                                       const Options& options = {}) const {
    Matrix<Scalar> logits(cache.batch(), config_.vocab_size);
    forward_into(ids, cache, logits, options);
    return logits;
  }
  template <class Storage>
  [[nodiscard]] Matrix<Scalar> forward(std::span<const Index> ids, Cache<Storage>& cache,
                                       const Options& options = {}) const {
    return forward(detail::as_one_row(ids), cache, options);
  }

  /// Without a cache: the logits behind each id, [batch, n, vocab_size]; 0 behind padding.
  template <TensorLike Ids>
  [[nodiscard]] Tensor<Scalar, 3> forward(const Ids& ids, const Options& options = {}) const;
  [[nodiscard]] Tensor<Scalar, 3> forward(std::span<const Index> ids, const Options& options = {}) const {
    return forward(detail::as_one_row(ids), options);
  }

  // The steps of forward, for those who look inside: embed, each block under its mask, logits_into.

  /// What enters the first block, [batch, n, embed_dim], of sequences that begin here.
  template <TensorLike Ids>
  [[nodiscard]] Tensor<Scalar, 3> embed(const Ids& ids, const Options& options = {}) const;
  /// f(mask), the mask of a layer's attention.
  template <class F>
  void with_mask(Index layer, F f) const {
    const Index width = config_.window(layer);
    if (config_.positions == PositionKind::alibi)
      f(alibi_);
    else
      f(SlidingWindow{.left = width > 0 ? width - 1 : -1, .right = 0});
  }
  /// Hidden states [.., embed_dim], which are overwritten, to logits [.., vocab_size].
  template <int Rank>
  void logits_into(const TensorView<Scalar, Rank>& x, const TensorView<Scalar, Rank>& logits,
                   const RunOptions& run) const;

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    CausalLMModules<T>::visit_members(self.modules_, f);
  }

 private:
  static const CausalLMConfig& checked(const CausalLMConfig& config, const WeightMap& weights) {
    detail::CausalLMWeights<T>(config, weights).check();
    return config;
  }
  using Rows = TensorView<Scalar, 3>;  // [batch, n, dim]

  template <class Out>
  void check_logits(const TokenBatch& tokens, const Out& logits) const {
    constexpr int rank = rank_of<Out>;
    static_assert(rank == 2 || rank == 3, "attn: logits are [batch, vocab_size] or [batch, n, vocab_size]");
    static_assert(std::same_as<ElementOf<Out>, Scalar>, "attn: logits are of the type that T accumulates in");
    Dims<rank> wanted{};
    wanted[0] = tokens.batch;
    if constexpr (rank == 3) wanted[1] = tokens.len;
    wanted[rank - 1] = config_.vocab_size;
    check(as_view(logits).extents() == wanted, "CausalLM: logits ", as_view(logits), " should be ", wanted);
  }
  void check_room(const TokenBatch& tokens, std::span<const Index> positions) const;
  void embed_into(const TokenBatch& tokens, std::span<const Index> positions, const Rows& x,
                  const RunOptions& run) const;
  static std::span<const Index> positions_of(Index batch, std::span<const Index> positions,
                                             Workspace::Frame& frame) {
    const std::span<Index> own = frame.take<Index>(batch);
    for (std::size_t b = 0; b < own.size(); ++b) own[b] = positions.empty() ? 0 : positions[b];
    return own;
  }
  template <class Out>
  void write_logits(const TokenBatch& tokens, const Rows& x, Out&& logits, const RunOptions& run) const;
  /// From ids to logits; block(i, tokens, x, mask, options) runs block i. `positions`: of the first id of
  /// each sequence; empty: 0.
  template <class Id, class Block, class Out>
  void run(const TensorView<const Id, 2>& ids, std::span<const Index> positions, Out&& logits,
           const Options& options, Block block) const;

  CausalLMConfig config_;
  CausalLMModules<T> modules_;
  AllOf<Causal, Alibi> alibi_;
};

template <Element T>
void CausalLM<T>::check_room(const TokenBatch& tokens, std::span<const Index> positions) const {
  for (Index b = 0; b < tokens.batch; ++b) {
    const Index before = positions[as_size(b)];
    check<std::invalid_argument>(before + tokens.count(b) > 0, "CausalLM: the prompt of sequence ", b,
                                 " is empty");
    check<std::length_error>(tokens.count(b) <= config_.max_len - before, "CausalLM: sequence ", b, " of ",
                             before, " tokens in the cache and ", tokens.count(b),
                             " new ones is longer than the context, ", config_.max_len);
  }
}

template <Element T>
void CausalLM<T>::embed_into(const TokenBatch& tokens, std::span<const Index> positions, const Rows& x,
                             const RunOptions& run) const {
  const Parameter<T, 2>&table = modules_.table(), &places = modules_.positions;
  const auto scale = static_cast<Scalar>(config_.embedding_scale);
  const Index dim = config_.embed_dim;
  for (Index b = 0; b < tokens.batch; ++b) {
    for (Index i = 0; i < tokens.len; ++i) {
      const T* const row = table.data() + tokens.id(b, i) * dim;
      Scalar* const to = &x(b, i, 0);
      for (Index c = 0; c < dim; ++c) to[c] = static_cast<Scalar>(row[c]) * scale;
      if (!places || i >= tokens.count(b)) continue;
      const T* const place = places.data() + (positions[as_size(b)] + i) * dim;
      for (Index c = 0; c < dim; ++c) to[c] += static_cast<Scalar>(place[c]);
    }
  }
  if (config_.embedding_norm) modules_.embedding_norm.forward_into(x, x, run);
}

template <Element T>
template <TensorLike Ids>
Tensor<typename CausalLM<T>::Scalar, 3> CausalLM<T>::embed(const Ids& ids, const Options& options) const {
  Workspace local;
  Workspace& workspace = options.workspace != nullptr ? *options.workspace : local;
  Workspace::Frame frame(workspace);
  const TokenBatch tokens =
      detail::make_tokens(with_rank<2>(detail::read_view(ids)), config_.vocab_size, options, frame);
  const std::span<const Index> positions = positions_of(tokens.batch, {}, frame);
  check_room(tokens, positions);
  Tensor<Scalar, 3> x({tokens.batch, tokens.len, config_.embed_dim});
  embed_into(tokens, positions, x.view(), {options.executor, &workspace});
  return x;
}

template <Element T>
template <int Rank>
void CausalLM<T>::logits_into(const TensorView<Scalar, Rank>& x, const TensorView<Scalar, Rank>& logits,
                              const RunOptions& run) const {
  modules_.norm.forward_into(x, x, run);
  modules_.head.forward_into(x, logits, {run.executor, run.workspace});
  if (config_.logit_soft_cap == 0) return;
  detail::multiply(logits, static_cast<Scalar>(1 / config_.logit_soft_cap));
  activate_into(Activation::tanh, logits, logits, run);
  detail::multiply(logits, static_cast<Scalar>(config_.logit_soft_cap));
}

template <Element T>
template <class Out>
void CausalLM<T>::write_logits(const TokenBatch& tokens, const Rows& x, Out&& logits,
                               const RunOptions& run) const {
  const auto to = as_view(logits);
  if constexpr (rank_of<Out> == 2) {
    Workspace::Frame frame(*run.workspace);
    const TensorView<Scalar, 2> last(frame.template take<Scalar>(tokens.batch * config_.embed_dim).data(),
                                     {tokens.batch, config_.embed_dim});
    for (Index b = 0; b < tokens.batch; ++b) copy(x[b][std::max<Index>(tokens.count(b), 1) - 1], last[b]);
    logits_into(last, to, run);
    for (Index b = 0; b < tokens.batch; ++b)
      if (tokens.count(b) == 0) detail::fill_zero(to[b]);
  } else {
    logits_into(x, to, run);
    for (Index b = 0; b < tokens.batch; ++b) {
      const Index count = tokens.count(b), first = tokens.first(b);
      for (Index i = count; first > 0 && i-- > 0;) copy(to[b][i], to[b][first + i]);
      for (Index i = 0; i < tokens.len; ++i)
        if (i < first || i >= first + count) detail::fill_zero(to[b][i]);
    }
  }
}

template <Element T>
template <class Id, class Block, class Out>
void CausalLM<T>::run(const TensorView<const Id, 2>& ids, std::span<const Index> positions, Out&& logits,
                      const Options& options, Block block) const {
  Workspace local;
  Workspace& workspace = options.workspace != nullptr ? *options.workspace : local;
  Workspace::Frame frame(workspace);
  const TokenBatch tokens = detail::make_tokens(ids, config_.vocab_size, options, frame);
  check_logits(tokens, logits);
  const std::span<const Index> before = positions_of(tokens.batch, positions, frame);
  check_room(tokens, before);
  const Rows x(frame.take<Scalar>(tokens.batch * tokens.len * config_.embed_dim).data(),
               {tokens.batch, tokens.len, config_.embed_dim});
  const RunOptions run{options.executor, &workspace};
  embed_into(tokens, before, x, run);
  for (Index i = 0; i < config_.num_layers; ++i)
    with_mask(i, [&](const auto& mask) { block(i, tokens, x, mask, run); });
  write_logits(tokens, x, logits, run);
}

template <Element T>
template <TensorLike Ids, class Storage, WritableTensor Out>
void CausalLM<T>::forward_into(const Ids& ids, Cache<Storage>& cache, Out&& logits,
                               const Options& options) const {
  const auto view = with_rank<2>(detail::read_view(ids));
  check(static_cast<Index>(cache.layers.size()) == config_.num_layers && cache.batch() == view.extent(0),
        "CausalLM: a cache of ", cache.layers.size(), " layers and batch ", cache.batch(), " does not fit ",
        config_.num_layers, " layers and ids ", view);
  Workspace local;
  Options how = options;
  if (how.workspace == nullptr) how.workspace = &local;
  Workspace::Frame frame(*how.workspace);
  detail::Rollback<Cache<Storage>> rollback(cache, frame.take<Index>(cache.batch()));
  run(view, cache.positions(), logits, how,
      [&](Index i, const TokenBatch& tokens, const Rows& x, const auto& mask, const RunOptions& run_options) {
        if (i == 0) {  // the ids are known to be good
          if (cache.layers.front().config().window > 0) cache.make_room(tokens.len);
          rollback.arm();
        }
        modules_.blocks[as_size(i)].apply_cached(
            x, cache.layers[as_size(i)], mask,
            {.counts = tokens.counts, .executor = run_options.executor, .workspace = run_options.workspace});
      });
  rollback.keep_changes();
}

template <Element T>
template <TensorLike Ids>
Tensor<typename CausalLM<T>::Scalar, 3> CausalLM<T>::forward(const Ids& ids, const Options& options) const {
  const auto view = with_rank<2>(detail::read_view(ids));
  Tensor<Scalar, 3> logits({view.extent(0), view.extent(1), config_.vocab_size});
  run(view, {}, logits, options,
      [&]<class M>(Index i, const TokenBatch&, const Rows& x, const M& mask, const RunOptions& how) {
        modules_.blocks[as_size(i)].apply(
            x, AttendBatch<M>{mask},
            {.query_offset = 0, .executor = how.executor, .workspace = how.workspace});
      });
  return logits;
}

ATTN_NAMESPACE_END
