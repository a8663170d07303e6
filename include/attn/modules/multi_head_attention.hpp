// attn/modules/multi_head_attention.hpp - MultiHeadAttention: projections, attention, and the projection
// back.
#pragma once
#include <optional>

#include "attn/modules/attend.hpp"
#include "attn/modules/cached_attention.hpp"
#include "attn/modules/head_projections.hpp"
#include "attn/modules/linear.hpp"
#include "attn/modules/mixed_storage.hpp"
#include "attn/modules/multi_head_attention_config.hpp"
#include "attn/modules/norm.hpp"

ATTN_NAMESPACE_BEGIN

/// Multi-head attention (Vaswani et al. 2017, section 3.2.2) with grouped key-value heads (Ainslie et al.
/// 2023):
///   concat_h(softmax(scale q_h k_h^T, mask) v_h) W_out + b_out, with q, k, v = projections of the inputs.
///
/// Inputs have rank 2 [len, dim] or 3 [batch, len, dim]; keys and values may have another length than the
/// queries. Inputs, output and scratch have one element type, which need not be T, that of the weights
/// (takes_activations says which). One object may serve any number of threads at once, each call with its own
/// workspace.
template <Element T>
class MultiHeadAttention {
 public:
  using Options = MultiHeadAttentionOptions;
  using CachedOptions = CachedAttentionOptions;
  /// Rows [batch, len, dim] that apply() reads.
  template <Element X>
  using Input = TensorView<const std::type_identity_t<X>, 3>;

  MultiHeadAttention() = default;
  /// @throws ShapeError if the numbers of heads or the dimensions do not fit.
  explicit MultiHeadAttention(const MultiHeadAttentionConfig& config);

  /// With every 0 and unset bias replaced by what it stands for.
  const MultiHeadAttentionConfig& config() const { return heads_.config; }
  Linear<T>& q_proj() { return heads_.q_proj; }
  const Linear<T>& q_proj() const { return heads_.q_proj; }
  Linear<T>& k_proj() { return heads_.k_proj; }
  const Linear<T>& k_proj() const { return heads_.k_proj; }
  Linear<T>& v_proj() { return heads_.v_proj; }
  const Linear<T>& v_proj() const { return heads_.v_proj; }
  Linear<T>& out_proj() { return out_proj_; }
  const Linear<T>& out_proj() const { return out_proj_; }
  // What the module has on request only; without parameters otherwise.
  Norm<T>& q_norm() { return heads_.q_norm; }
  const Norm<T>& q_norm() const { return heads_.q_norm; }
  Norm<T>& k_norm() { return heads_.k_norm; }
  const Norm<T>& k_norm() const { return heads_.k_norm; }
  /// The learnt key [num_kv_heads * head_dim].
  Parameter<T, 1>& bias_k() { return heads_.bias_k; }
  const Parameter<T, 1>& bias_k() const { return heads_.bias_k; }
  /// The learnt value [num_kv_heads * value_dim].
  Parameter<T, 1>& bias_v() { return heads_.bias_v; }
  const Parameter<T, 1>& bias_v() const { return heads_.bias_v; }
  /// [num_heads].
  Parameter<T, 1>& head_gates() { return head_gates_; }
  const Parameter<T, 1>& head_gates() const { return head_gates_; }
  /// The rotation by positions, if the layer has one.
  const std::optional<RotaryEmbedding>& rope() const { return heads_.rope; }
  /// [num_heads * value_dim, embed_dim].
  Linear<T>& gate_proj() { return gate_proj_; }
  const Linear<T>& gate_proj() const { return gate_proj_; }

  /// Cross-attention: query [.., q_len, embed_dim], key [.., kv_len, kdim], value [.., kv_len, vdim],
  /// out [.., q_len, embed_dim]. With a workspace that has served this shape once, nothing is allocated.
  /// @throws ShapeError if the extents or the mask do not fit; std::invalid_argument if out overlaps an
  /// input.
  template <TensorLike Q, TensorLike K, TensorLike V, WritableTensor Out, Mask M = NoMask>
  void forward_into(const Q& query, const K& key, const V& value, Out&& out, const M& mask = {},
                    const Options& options = {}) const {
    detail::check_distinct("MultiHeadAttention", "out", as_view(out));
    check_separate(out, "query", query);
    check_separate(out, "key", key);
    check_separate(out, "value", value);
    static_assert(std::same_as<ElementOf<const Q>, ElementOf<const K>> &&
                      std::same_as<ElementOf<const Q>, ElementOf<const V>> &&
                      std::same_as<ElementOf<const Q>, ElementOf<Out>>,
                  "attn: query, key, value and out differ in their element type");
    apply(batched(query), batched(key), batched(value), {}, with_rank<3>(as_view(out)), AttendBatch<M>{mask},
          options);
  }
  /// Self-attention.
  template <TensorLike X, WritableTensor Out, Mask M = NoMask>
  void forward_into(const X& x, Out&& out, const M& mask = {}, const Options& options = {}) const {
    forward_into(x, x, x, out, mask, options);
  }

  /// As forward_into; returns out: a Matrix for rank 2, else a Tensor.
  template <TensorLike Q, TensorLike K, TensorLike V, Mask M = NoMask>
  [[nodiscard]] auto forward(const Q& query, const K& key, const V& value, const M& mask = {},
                             const Options& options = {}) const {
    auto out = detail::make_result<ElementOf<const Q>>(detail::read_view(query).extents());
    forward_into(query, key, value, out, mask, options);
    return out;
  }
  template <TensorLike X, Mask M = NoMask>
  [[nodiscard]] auto forward(const X& x, const M& mask = {}, const Options& options = {}) const {
    return forward(x, x, x, mask, options);
  }

  /// As forward, with the attention weights of each head: out as there, with the same bits, and weights
  /// [.., num_heads, q_len, kv_len] (float for 16-bit elements), extra keys included. average_heads()
  /// averages them.
  template <TensorLike Q, TensorLike K, TensorLike V, Mask M = NoMask>
  [[nodiscard]] auto forward_with_weights(const Q& query, const K& key, const V& value, const M& mask = {},
                                          const Options& options = {}) const;
  template <TensorLike X, Mask M = NoMask>
  [[nodiscard]] auto forward_with_weights(const X& x, const M& mask = {}, const Options& options = {}) const {
    return forward_with_weights(x, x, x, mask, options);
  }

  /// Self-attention of x [.., n, embed_dim] to all that a cache holds, after appending the keys and values of
  /// x to it: a whole prompt, a part of one, and one token are the same call, and give what forward_into
  /// gives for the whole, up to rounding and the cache's storage. Rows stand behind what the cache holds,
  /// each sequence behind its own; the mask numbers keys as the cache does. A matrix wants a cache of one
  /// sequence. With a workspace that has served such a shape, and room in the cache, nothing is allocated.
  ///
  /// If an exception is thrown, the cache holds what it held before (rows that a rolling window has evicted
  /// to make room excepted).
  /// @throws ShapeError if extents, counts, the mask or the cache do not fit; std::invalid_argument if out
  /// overlaps x, the cache is one of cross-attention or the layer has add_bias_kv or add_zero_attn;
  /// std::length_error if there is no room in the cache.
  template <TensorLike X, Element C, StorageElement S, WritableTensor Out, Mask M = NoMask>
  void forward_into(const X& x, KVCache<C, S>& cache, Out&& out, const M& mask = {},
                    const CachedOptions& options = {}) const {
    check_call<C>(x, out);
    apply_cached(batched(x), cache, {}, with_rank<3>(as_view(out)), mask, options);
  }
  template <TensorLike X, Element C, StorageElement S, Mask M = NoMask>
  [[nodiscard]] auto forward(const X& x, KVCache<C, S>& cache, const M& mask = {},
                             const CachedOptions& options = {}) const {
    auto out = detail::make_result<C>(detail::read_view(x).extents());
    forward_into(x, cache, out, mask, options);
    return out;
  }

  /// Fills a cache of CacheKind::cross_attention with the keys of key [.., kv_len, kdim] and the values of
  /// value [.., kv_len, vdim], for forward_cross(); options.counts says how many rows of each batch entry are
  /// more than padding.
  /// @throws std::invalid_argument if it is filled already (reset() it for other rows) or of another kind.
  template <TensorLike K, TensorLike V, Element C, StorageElement S>
  void fill_cross_cache(const K& key, const V& value, KVCache<C, S>& cache,
                        const CachedOptions& options = {}) const;
  template <TensorLike Memory, Element C, StorageElement S>
  void fill_cross_cache(const Memory& memory, KVCache<C, S>& cache, const CachedOptions& options = {}) const {
    fill_cross_cache(memory, memory, cache, options);
  }
  /// forward_into(query, key, value, ...) with the key and value that the cache was filled with, which it
  /// leaves as it is. Padding is hidden.
  /// @throws std::invalid_argument if the cache is not filled or of another kind; else as forward_into.
  template <TensorLike Q, Element C, StorageElement S, WritableTensor Out, Mask M = NoMask>
  void forward_cross_into(const Q& query, const KVCache<C, S>& cache, Out&& out, const M& mask = {},
                          const Options& options = {}) const {
    check_call<C>(query, out);
    apply_cross(batched(query), cache, {}, with_rank<3>(as_view(out)), mask, options);
  }
  template <TensorLike Q, Element C, StorageElement S, Mask M = NoMask>
  [[nodiscard]] auto forward_cross(const Q& query, const KVCache<C, S>& cache, const M& mask = {},
                                   const Options& options = {}) const {
    auto out = detail::make_result<C>(detail::read_view(query).extents());
    forward_cross_into(query, cache, out, mask, options);
    return out;
  }

  /// The step that layers are made of: out = residual + attention, where `attend` (modules/attend.hpp) says
  /// how rows see each other. A residual without data stands for none. `out` may be the residual or an input,
  /// and says what the element type is.
  template <Element X, class Attend>
  void apply(const Input<X>& query, const Input<X>& key, const Input<X>& value, const Input<X>& residual,
             const TensorView<X, 3>& out, const Attend& attend, const Options& options) const;
  /// The same with a cache, as forward_into and forward_cross_into.
  template <Element X, StorageElement S, Mask M>
  void apply_cached(const Input<X>& x, KVCache<X, S>& cache, const Input<X>& residual,
                    const TensorView<X, 3>& out, const M& mask, const CachedOptions& options) const;
  template <Element X, StorageElement S, Mask M>
  void apply_cross(const Input<X>& query, const KVCache<X, S>& cache, const Input<X>& residual,
                   const TensorView<X, 3>& out, const M& mask, const Options& options) const;

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("q_proj", self.heads_.q_proj);
    f("k_proj", self.heads_.k_proj);
    f("v_proj", self.heads_.v_proj);
    f("out_proj", self.out_proj_);
    f("q_norm", self.heads_.q_norm);
    f("k_norm", self.heads_.k_norm);
    f("bias_k", self.heads_.bias_k);
    f("bias_v", self.heads_.bias_v);
    f("head_gates", self.head_gates_);
    f("gate_proj", self.gate_proj_);
  }

 private:
  template <class X>
  static TensorView<const ElementOf<const X>, 3> batched(const X& x) {
    static_assert(rank_of<X> == 2 || rank_of<X> == 3, "attn: inputs are [len, dim] or [batch, len, dim]");
    return with_rank<3>(detail::read_view(x));
  }
  template <class Out, class In>
  static void check_separate(Out& out, const char* name, const In& in) {
    const auto input = detail::read_view(in);
    check<std::invalid_argument>(is_disjoint(as_view(out), input), "MultiHeadAttention: out ", as_view(out),
                                 " overlaps ", name, " ", input);
  }
  /// The part of a call with a cache of C that concerns x and out.
  template <Element C, TensorLike X, class Out>
  static void check_call(const X& x, Out& out) {
    static_assert(std::same_as<ElementOf<const X>, C>,
                  "attn: x and what the cache is appended with differ in their element type");
    static_assert(std::same_as<ElementOf<Out>, C>, "attn: x and out differ in their element type");
    detail::check_distinct("MultiHeadAttention", "out", as_view(out));
    check_separate(out, "x", x);
  }
  template <class Cache>
  void check_cache(const Cache& cache, CacheKind kind, Index batch) const;
  template <Element X>
  void check_query(const Input<X>& query, const TensorView<X, 3>& out) const;
  template <Element X>
  void check_memory(const TensorView<const X, 3>& key, const TensorView<const X, 3>& value) const;
  template <Element X>
  void check_inputs(const Input<X>& query, const Input<X>& key, const Input<X>& value,
                    const TensorView<X, 3>& out) const;
  /// A rotation wants to know where queries stand.
  void check_position(Index q_len, Index kv_len, const Options& options) const;
  SdpaOptions sdpa_options(const Options& options, Workspace& workspace) const {
    SdpaOptions how;
    how.scale = config().scale;
    how.soft_cap = config().soft_cap;
    how.query_offset = options.query_offset;
    how.executor = options.executor;
    how.workspace = &workspace;
    return how;
  }
  /// Where the heads write what they attend to, [batch, q_len, num_heads * value_dim].
  template <Element X>
  TensorView<X, 3> take_context(const TensorView<const X, 3>& query, Workspace::Frame& frame) const {
    const Dims<3> extents{query.extent(0), query.extent(1), out_proj_.config().in_dim};
    return {frame.take<X>(product(extents)).data(), extents};
  }
  /// out = residual + context, gated and projected; run.workspace is set.
  template <Element X>
  void gate_and_project(const Input<X>& query, const TensorView<X, 3>& context, const Input<X>& residual,
                        const TensorView<X, 3>& out, const LinearOptions& run) const;
  template <Element X>
  void gate(const Input<X>& query, const TensorView<X, 3>& context, const LinearOptions& options) const;

  detail::HeadProjections<T> heads_;
  Linear<T> out_proj_, gate_proj_;
  Parameter<T, 1> head_gates_;
};

template <Element T>
MultiHeadAttention<T>::MultiHeadAttention(const MultiHeadAttentionConfig& given) : heads_(given) {
  const MultiHeadAttentionConfig& c = config();
  out_proj_ = Linear<T>({c.num_heads * c.value_dim, c.embed_dim, *c.out_bias});
  if (c.head_gates) {
    head_gates_ = Parameter<T, 1>("head_gates", {c.num_heads});
    head_gates_.edit([](const TensorView<T, 1>& gates) { std::fill_n(gates.data(), gates.size(), T(1)); });
  }
  if (c.output_gate) gate_proj_ = Linear<T>({c.embed_dim, c.num_heads * c.value_dim, c.bias});
}

template <Element T>
template <Element X>
void MultiHeadAttention<T>::check_query(const Input<X>& query, const TensorView<X, 3>& out) const {
  check(query.extent(2) == config().embed_dim, "MultiHeadAttention: query ", query,
        " does not have embed_dim ", config().embed_dim);
  check(out.extents() == query.extents(), "MultiHeadAttention: out ", out, " should be as query, ", query);
}

template <Element T>
template <Element X>
void MultiHeadAttention<T>::check_memory(const TensorView<const X, 3>& key,
                                         const TensorView<const X, 3>& value) const {
  const MultiHeadAttentionConfig& c = config();
  check(key.extent(2) == c.kdim, "MultiHeadAttention: key ", key, " does not have kdim ", c.kdim);
  check(value.extent(2) == c.vdim, "MultiHeadAttention: value ", value, " does not have vdim ", c.vdim);
  check(key.extent(1) == value.extent(1), "MultiHeadAttention: key ", key, " and value ", value,
        " differ in length");
}

template <Element T>
template <Element X>
void MultiHeadAttention<T>::check_inputs(const Input<X>& query, const Input<X>& key, const Input<X>& value,
                                         const TensorView<X, 3>& out) const {
  check_query(query, out);
  check_memory(key, value);
  check(key.extent(0) == query.extent(0) && value.extent(0) == query.extent(0), "MultiHeadAttention: query ",
        query, ", key ", key, " and value ", value, " differ in batch");
}

template <Element T>
void MultiHeadAttention<T>::check_position(Index q_len, Index kv_len, const Options& options) const {
  check(!heads_.rope || options.query_offset || q_len == kv_len, "MultiHeadAttention: ", q_len,
        " queries and ", kv_len,
        " keys differ in number and the layer has a rope: set options.query_offset, the key position "
        "of query 0");
}

template <Element T>
template <Element X, class Attend>
void MultiHeadAttention<T>::apply(const Input<X>& query, const Input<X>& key, const Input<X>& value,
                                  const Input<X>& residual, const TensorView<X, 3>& out, const Attend& attend,
                                  const Options& options) const {
  detail::require_activations<X, T>();
  check_inputs(query, key, value, out);
  check_position(query.extent(1), key.extent(1), options);
  Workspace local;
  Workspace& workspace = options.workspace ? *options.workspace : local;
  Workspace::Frame frame(workspace);
  const LinearOptions run{options.executor, &workspace};
  const TensorView<X, 3> q = heads_.queries(query, options.query_offset, frame, run);
  const TensorView<X, 3> k =
      heads_.keys(key, keys_follow_queries<Attend> ? options.query_offset : std::nullopt, frame, run);
  const TensorView<X, 3> v = heads_.values(value, frame, run);
  const TensorView<X, 3> context = take_context(query, frame);
  SdpaOptions how = sdpa_options(options, workspace);
  if (heads_.extra_keys() > 0 && query.extent(1) == key.extent(1) && !options.query_offset)
    how.query_offset = 0;
  attend(AttendArguments<X>{q, k, v, context, config().num_heads, config().num_kv_heads, heads_.extra_keys()},
         how);
  gate_and_project(query, context, residual, out, run);
}

template <Element T>
template <Element X>
void MultiHeadAttention<T>::gate_and_project(const Input<X>& query, const TensorView<X, 3>& context,
                                             const Input<X>& residual, const TensorView<X, 3>& out,
                                             const LinearOptions& run) const {
  gate(query, context, run);
  if (residual.data() != nullptr)
    out_proj_.add_into(context, residual, out, run);
  else
    out_proj_.forward_into(context, out, run);
}

template <Element T>
template <Element X>
void MultiHeadAttention<T>::gate(const Input<X>& query, const TensorView<X, 3>& context,
                                 const LinearOptions& options) const {
  if (config().head_gates) {
    const TensorView<X, 4> heads = split_heads(context, config().num_heads);
    multiply_into(TensorView<const T, 4>(head_gates_.data(), heads.extents(), {0, 1, 0, 0}), heads,
                  {options.executor, options.workspace});
  }
  if (config().output_gate) {
    Workspace::Frame frame(*options.workspace);
    LinearOptions activated = options;
    activated.activation = Activation::sigmoid;
    const TensorView<X, 3> gates = detail::project(gate_proj_, query, frame, activated);
    multiply_into(gates, context, {options.executor, options.workspace});
  }
}

template <Element T>
template <TensorLike Q, TensorLike K, TensorLike V, Mask M>
auto MultiHeadAttention<T>::forward_with_weights(const Q& query, const K& key, const V& value, const M& mask,
                                                 const Options& options) const {
  using X = ElementOf<const Q>;
  using A = Accumulator<X>;
  constexpr int rank = rank_of<Q>;
  const TensorView<const X, 3> q = batched(query), k = batched(key);
  auto out = detail::make_result<X>(detail::read_view(query).extents());
  Dims<rank + 1> extents{};
  if constexpr (rank == 3) extents[0] = q.extent(0);
  extents[rank - 2] = config().num_heads;
  extents[rank - 1] = q.extent(1);
  extents[rank] = k.extent(1) + heads_.extra_keys();
  Tensor<A, rank + 1> weights(extents);
  apply(q, k, batched(value), {}, with_rank<3>(as_view(out)),
        AttendWithWeights<X, M>{mask, with_rank<4>(weights.view())}, options);
  return AttentionWithWeights<decltype(out), decltype(weights)>{std::move(out), std::move(weights)};
}

template <Element T>
template <class Cache>
void MultiHeadAttention<T>::check_cache(const Cache& cache, CacheKind kind, Index batch) const {
  const KVCacheConfig& c = cache.config();
  check<std::invalid_argument>(heads_.extra_keys() == 0,
                               "MultiHeadAttention: a layer with add_bias_kv or add_zero_attn cannot use a "
                               "cache: its extra keys stand behind the last");
  check<std::invalid_argument>(c.kind == kind, "MultiHeadAttention: the cache is one of ",
                               c.kind == CacheKind::cross_attention ? "cross" : "self", "-attention, ",
                               kind == CacheKind::cross_attention
                                   ? "which fill_cross_cache() and forward_cross() do not take"
                                   : "which is filled by fill_cross_cache() and read by forward_cross()");
  const Dims<4> has{c.batch, c.num_kv_heads, c.head_dim, c.value_dim};
  const Dims<4> wanted{batch, config().num_kv_heads, config().head_dim, config().value_dim};
  check(has == wanted, "MultiHeadAttention: a cache of batch, num_kv_heads, head_dim and value_dim ", has,
        " does not fit the layer and its input, ", wanted);
}

template <Element T>
template <Element X, StorageElement S, Mask M>
void MultiHeadAttention<T>::apply_cached(const Input<X>& x, KVCache<X, S>& cache, const Input<X>& residual,
                                         const TensorView<X, 3>& out, const M& mask,
                                         const CachedOptions& options) const {
  check_cache(cache, CacheKind::self_attention, x.extent(0));
  const detail::NewRows rows(options, x.extent(0), x.extent(1));
  Workspace local;
  Workspace& workspace = options.workspace ? *options.workspace : local;
  Workspace::Frame frame(workspace);
  const auto numbers = [&] { return frame.take<Index>(cache.batch()); };
  detail::Rollback rollback(cache, numbers());
  apply(x, x, x, residual, out, AppendAndAttend<KVCache<X, S>, M>{cache, mask, rows, rollback, numbers()},
        {rows.offset(cache.positions(), numbers()), options.executor, &workspace});
  rollback.keep_changes();
}

template <Element T>
template <TensorLike K, TensorLike V, Element C, StorageElement S>
void MultiHeadAttention<T>::fill_cross_cache(const K& key, const V& value, KVCache<C, S>& cache,
                                             const CachedOptions& options) const {
  static_assert(std::same_as<ElementOf<const K>, C> && std::same_as<ElementOf<const V>, C>,
                "attn: key, value and what the cache is appended with differ in their element type");
  detail::require_activations<C, T>();
  const TensorView<const C, 3> keys = batched(key), values = batched(value);
  check_cache(cache, CacheKind::cross_attention, keys.extent(0));
  check_memory(keys, values);
  check(keys.extent(0) == values.extent(0), "MultiHeadAttention: key ", keys, " and value ", values,
        " differ in batch");
  const detail::NewRows rows(options, keys.extent(0), keys.extent(1));
  Workspace local;
  Workspace& workspace = options.workspace ? *options.workspace : local;
  Workspace::Frame frame(workspace);
  const LinearOptions run{options.executor, &workspace};
  const QueryOffset offset = rows.offset(cache.positions(), frame.take<Index>(cache.batch()));
  const TensorView<C, 3> k = heads_.keys(keys, offset, frame, run);
  const TensorView<C, 3> v = heads_.values(values, frame, run);
  rows.append_to(cache, TensorView<const C, 3>(k), TensorView<const C, 3>(v), workspace);
}

template <Element T>
template <Element X, StorageElement S, Mask M>
void MultiHeadAttention<T>::apply_cross(const Input<X>& query, const KVCache<X, S>& cache,
                                        const Input<X>& residual, const TensorView<X, 3>& out, const M& mask,
                                        const Options& options) const {
  detail::require_activations<X, T>();
  check_cache(cache, CacheKind::cross_attention, query.extent(0));
  check_query(query, out);
  check<std::invalid_argument>(cache.longest() > 0,
                               "MultiHeadAttention: the cross-attention cache is empty: fill_cross_cache()");
  check_position(query.extent(1), cache.longest(), options);
  Workspace local;
  Workspace& workspace = options.workspace ? *options.workspace : local;
  Workspace::Frame frame(workspace);
  const LinearOptions run{options.executor, &workspace};
  const TensorView<X, 3> q = heads_.queries(query, options.query_offset, frame, run);
  const TensorView<X, 3> context = take_context(query, frame);
  AttendCache<KVCache<X, S>, M>{cache, mask}(
      AttendArguments<X>{q, {}, {}, context, config().num_heads, config().num_kv_heads},
      sdpa_options(options, workspace));
  gate_and_project(query, context, residual, out, run);
}

ATTN_NAMESPACE_END
