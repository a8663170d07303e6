// attn/ops/sdpa.hpp - scaled dot-product attention on the caller's tensors.
#pragma once
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "attn/core/error.hpp"
#include "attn/core/executor.hpp"
#include "attn/core/overlap.hpp"
#include "attn/core/stored_rows.hpp"
#include "attn/core/tensor.hpp"
#include "attn/core/tensor_traits.hpp"
#include "attn/core/workspace.hpp"
#include "attn/kernels/passes.hpp"
#include "attn/masks/mask.hpp"

ATTN_NAMESPACE_BEGIN

/// How attention is computed; the mask, which says what is computed, is an argument of its own.
struct SdpaOptions {
  std::optional<double> scale{};  ///< multiplies q.k, finite; default 1 / sqrt(head_dim)
  double soft_cap = 0;            ///< scores become soft_cap * tanh(score / soft_cap); 0: none
  /// One score per query head that takes part in the softmax's denominator only (Xiao et al. 2023, "Efficient
  /// streaming language models with attention sinks", section 3.2, in the form without value); -inf takes no
  /// part; empty: none. Borrowed.
  std::span<const double> sinks{};
  /// Key position of query 0, one for all or one per batch entry. Default 0 if q_len == kv_len; must be given
  /// if the lengths differ and the mask uses positions: kv_len - q_len for decoding, 0 to align top-left.
  std::optional<QueryOffset> query_offset{};
  ExecutorRef executor{};          ///< default: the calling thread
  Workspace* workspace = nullptr;  ///< default: scratch is allocated in the call
};

/// out [..., q_len, value_dim] and logsumexp [..., q_len], the natural logarithm of the sum over exp(score)
/// of each row, -inf where a query sees no key. Leading axes as in q.
template <class Out, class LogSumExp>
struct AttentionWithLogSumExp {
  Out out;
  LogSumExp logsumexp;
};
/// out [..., q_len, value_dim] and weights [..., q_len, kv_len]. Leading axes as in q.
template <class Out, class Weights>
struct AttentionWithWeights {
  Out out;
  Weights weights;
};

namespace detail {
template <class X>
inline constexpr bool is_stored_rows = false;
template <class S>
inline constexpr bool is_stored_rows<StoredRows<S>> = true;

/// What the keys or values are stored as.
template <class X>
struct StorageOf {
  using type = ElementOf<X>;
};
template <class S>
struct StorageOf<StoredRows<S>> {
  using type = S;
};

/// Double queries accumulate in double, and want keys and values that are worth it.
template <class Q, class S>
inline constexpr bool is_readable_as = std::same_as<Q, double> == std::same_as<S, double>;

template <class Q, class X>
concept KeyRowsFor = (is_stored_rows<X> ||
                      (TensorLike<X> && 2 <= rank_of<X> && rank_of<X> <= 4 && Element<ElementOf<X>>)) &&
                     is_readable_as<Q, typename StorageOf<X>::type>;
}  // namespace detail

/// q, k and v may be attended: q a tensor of rank 2 to 4; k and v tensors of any of these ranks, or the rows
/// of a cache (StoredRows). Element types may differ, but double goes with double only.
template <class Q, class K, class V>
concept AttentionInputs = TensorLike<Q> && Element<ElementOf<Q>> &&(2 <= rank_of<Q> && rank_of<Q> <= 4) &&
                          detail::KeyRowsFor<ElementOf<Q>, K>&& detail::KeyRowsFor<ElementOf<Q>, V>;

namespace detail {

template <class X>
auto read_only(const X& x) {
  return TensorView<const ElementOf<X>, rank_of<X>>(as_view(x));
}
/// [batch, heads, len, dim] of keys or values.
template <class X>
auto key_rows(const X& x) {
  if constexpr (is_stored_rows<X>)
    return x;
  else
    return as_bhld(read_only(x));
}

template <class Q, class K, class V>
void check_sdpa_extents(const Q& q, const K& k, const V& v) {
  check(k.extent(3) == q.extent(3), "sdpa: q ", q, " and k ", k, " differ in head_dim (last extent)");
  check(q.extent(3) > 0, "sdpa: q ", q, " has head_dim 0");
  check(k.extent(0) == q.extent(0) && v.extent(0) == q.extent(0), "sdpa: q ", q, ", k ", k, " and v ", v,
        " differ in batch (first extent)");
  check(v.extent(1) == k.extent(1) && v.extent(2) == k.extent(2), "sdpa: k ", k, " and v ", v,
        " differ in heads or length (second and third extent)");
  check(k.extent(1) > 0 ? q.extent(1) % k.extent(1) == 0 : q.extent(1) == 0, "sdpa: q ", q, " has ",
        q.extent(1), " heads, which is no multiple of the ", k.extent(1), " key-value heads of k ", k);
  constexpr Index limit = Index{1} << 30;
  check<std::length_error>(q.extent(2) < limit && k.extent(2) < limit, "sdpa: q ", q, " or k ", k,
                           " is longer than 2^30 positions");
}

template <class Q, class K, class V>
Problem sdpa_problem(const Q& q, const K& k, const V& v, bool mask_uses_positions,
                     const SdpaOptions& options) {
  check_sdpa_extents(q, k, v);
  const Problem p{.batch = q.extent(0),
                  .num_heads = q.extent(1),
                  .num_kv_heads = std::max<Index>(k.extent(1), 1),
                  .q_len = q.extent(2),
                  .kv_len = k.extent(2),
                  .head_dim = q.extent(3),
                  .value_dim = v.extent(3),
                  .offset = options.query_offset.value_or(QueryOffset(0))};
  check(
      options.query_offset || p.q_len == p.kv_len || !mask_uses_positions, "sdpa: q ", q, " and k ", k,
      " differ in length and the mask uses positions: set options.query_offset, the key position of query 0 "
      "(kv_len - q_len = ",
      p.kv_len - p.q_len, " for decoding, 0 to align top-left)");
  const auto offsets = static_cast<Index>(p.offset.per_batch().size());
  check(!p.offset.is_per_batch() || offsets == p.batch, "sdpa: options.query_offset has ", offsets,
        " values for a batch of ", p.batch);
  for (Index b = 0; b < (p.offset.is_per_batch() ? offsets : 1); ++b)
    check<std::length_error>(-farthest_position < p.offset(b) && p.offset(b) < farthest_position,
                             "sdpa: options.query_offset ", p.offset(b), " is not between -2^52 and 2^52");
  check(options.sinks.empty() || static_cast<Index>(options.sinks.size()) == p.num_heads,
        "sdpa: options.sinks has ", options.sinks.size(), " values for ", p.num_heads, " query heads");
  for (const double sink : options.sinks)
    check<std::invalid_argument>(sink <= static_cast<double>(std::numeric_limits<float>::max()),
                                 "sdpa: options.sinks holds ", sink, ", which is no number below 3.4e38");
  check<std::invalid_argument>(std::isfinite(options.scale.value_or(1)), "sdpa: options.scale ",
                               options.scale.value_or(1), " must be a finite number");
  check<std::invalid_argument>(options.soft_cap >= 0 && std::isfinite(options.soft_cap),
                               "sdpa: options.soft_cap ", options.soft_cap,
                               " must be a finite number and not negative");
  return p;
}

/// `result` is written while `other` is still read, or is itself a result. (Nobody but a cache can write its
/// rows.)
template <class R, int RankR, class Other>
void check_no_overlap(const char* name, const TensorView<R, RankR>& result, const char* other_name,
                      const Other& other) {
  if constexpr (!is_stored_rows<Other>)
    check<std::invalid_argument>(is_disjoint(result, other), "sdpa: ", name, " overlaps ", other_name, " ",
                                 other);
}

/// A finished check of everything: what the kernels need. K and V as key_rows() gives them. Knows the mask by
/// its hooks alone, so that a mask adds little to compile. Borrows the mask and the options.
template <class T, class K, class V>
class SdpaCall {
 public:
  using A = Accumulator<T>;

  template <Mask M>
  SdpaCall(const TensorView<const T, 4>& queries, const K& keys, const V& values,
           const TensorView<T, 4>& result, const M& mask, const SdpaOptions& options)
      : q_(queries), k_(keys), v_(values), out_(result), options_(options), hooks_(mask, problem_) {
    prepare(uses_positions<M>);
    mask_validate(mask, problem_);
  }
  SdpaCall(const SdpaCall&) = delete;  // the hooks point to the problem
  SdpaCall& operator=(const SdpaCall&) = delete;

  const Problem& problem() const { return problem_; }
  /// A result beside out must not touch an input, nor out.
  template <class R, int Rank>
  void check_separate(const char* name, const TensorView<R, Rank>& result) const {
    check_separate_from_inputs(name, result);
    check_no_overlap(name, result, "out", out_);
  }
  /// Runs the fused kernel.
  void run(const TensorView<A, 3>& logsumexp);
  /// Writes the scores at a stage, after run().
  void write_scores(const TensorView<A, 4>& scores, ScoreStage stage);

 private:
  void prepare(bool mask_uses_positions);
  template <class R, int Rank>
  void check_separate_from_inputs(const char* name, const TensorView<R, Rank>& result) const {
    check_distinct("sdpa", name, result);
    check_no_overlap(name, result, "q", q_);
    check_no_overlap(name, result, "k", k_);
    check_no_overlap(name, result, "v", v_);
  }

  TensorView<const T, 4> q_;
  K k_;
  V v_;
  TensorView<T, 4> out_;
  const SdpaOptions& options_;
  Problem problem_;
  kernels::ForwardArguments<A> arguments_;
  kernels::ForwardHooks<A> hooks_;
};

template <class T, class K, class V>
void SdpaCall<T, K, V>::prepare(bool mask_uses_positions) {
  problem_ = sdpa_problem(q_, k_, v_, mask_uses_positions, options_);
  arguments_ = {
      .q = StoredRows<T>(q_), .k = StoredRows(k_), .v = StoredRows(v_), .out = out_, .logsumexp = {}};
  arguments_.scale = options_.scale.value_or(1 / std::sqrt(static_cast<double>(problem_.head_dim)));
  arguments_.soft_cap = options_.soft_cap;
  arguments_.sinks = options_.sinks;
  const Dims<4> wanted{problem_.batch, problem_.num_heads, problem_.q_len, problem_.value_dim};
  check(out_.extents() == wanted, "sdpa: out ", out_, " should be ", wanted, " for q ", q_, " and v ", v_);
  check_separate_from_inputs("out", out_);
}

template <class T, class K, class V>
void SdpaCall<T, K, V>::run(const TensorView<A, 3>& logsumexp) {
  if (problem_.batch * problem_.num_heads * problem_.q_len == 0) return;
  Workspace local;
  arguments_.logsumexp = logsumexp;
  kernels::run_forward(arguments_, hooks_, options_.executor,
                       options_.workspace != nullptr ? *options_.workspace : local);
}

template <class T, class K, class V>
void SdpaCall<T, K, V>::write_scores(const TensorView<A, 4>& scores, ScoreStage stage) {
  if (scores.size() == 0) return;
  Workspace local;
  kernels::run_scores(arguments_, hooks_, stage, scores, options_.executor,
                      options_.workspace != nullptr ? *options_.workspace : local);
}

#ifdef ATTN_INSTANTIATE
ATTN_INSTANTIATE class SdpaCall<float, TensorView<const float, 4>, TensorView<const float, 4>>;
ATTN_INSTANTIATE class SdpaCall<double, TensorView<const double, 4>, TensorView<const double, 4>>;
#endif

/// The tensor that sdpa returns for q: a Matrix for rank 2, else a Tensor.
template <class T, int Rank>
auto attention_result(const TensorView<const T, Rank>& q, Index columns) {
  if constexpr (Rank == 2) {
    return Matrix<T>(q.extent(0), columns);
  } else {
    Dims<Rank> extents = q.extents();
    extents[Rank - 1] = columns;
    return Tensor<T, Rank>(extents);
  }
}
/// [batch, heads, len] of a logsumexp with the leading axes of q.
template <class A, int Rank>
TensorView<A, 3> as_bhl(const TensorView<A, Rank>& x) {
  return with_rank<3>(x);
}

template <class Q, class K, class V, class O, class M>
auto sdpa_call(const Q& q, const K& k, const V& v, const O& out, const M& mask, const SdpaOptions& options) {
  const auto keys = key_rows(k);
  const auto values = key_rows(v);
  return SdpaCall<ElementOf<Q>, std::remove_const_t<decltype(keys)>, std::remove_const_t<decltype(values)>>(
      as_bhld(read_only(q)), keys, values, as_bhld(as_view(out)), mask, options);
}

}  // namespace detail

/// out = softmax(scale * q.k^T, changed by the mask) . v for every batch entry and head, fused: no score
/// matrix.
///
/// q [..., q_len, head_dim], k [..., kv_len, head_dim], v [..., kv_len, value_dim], out [..., q_len,
/// value_dim]; the leading axes are [batch, heads], [heads] or none; k and v may be the rows of a cache.
/// Fewer key-value heads than query heads means grouped-query attention: query head h reads key-value head h
/// / (heads / kv_heads). Any strides. A query that sees no key gives 0. With a workspace that has served this
/// shape once, nothing is allocated. Source: Vaswani et al. 2017, "Attention is all you need", equation 1;
/// Dao 2023, "FlashAttention-2".
/// @throws ShapeError if the extents, the mask or the options do not fit together, or elements of out
/// coincide.
/// @throws std::invalid_argument if out overlaps an input (other columns of one matrix do not), scale or
/// soft_cap is not finite, soft_cap is negative, or a sink is no number below 3.4e38.
/// @throws std::length_error if a length reaches 2^30, or an offset 2^52 in size.
template <class Q, class K, class V, WritableTensor O, Mask M = NoMask>
  requires AttentionInputs<Q, K, V> && std::same_as<ElementOf<Q>, ElementOf<O>>
void sdpa_into(const Q& q, const K& k, const V& v, O&& out, const M& mask = {},
               const SdpaOptions& options = {}) {
  detail::sdpa_call(q, k, v, as_view(out), mask, options).run({});
}

/// As sdpa_into, and the logsumexp [..., q_len] of each row (float for 16-bit inputs).
template <class Q, class K, class V, WritableTensor O, WritableTensor L, Mask M = NoMask>
  requires AttentionInputs<Q, K, V> && std::same_as<ElementOf<Q>, ElementOf<O>> &&
      std::same_as<Accumulator<ElementOf<Q>>, ElementOf<L>>
void sdpa_with_logsumexp_into(const Q& q, const K& k, const V& v, O&& out, L&& logsumexp, const M& mask = {},
                              const SdpaOptions& options = {}) {
  auto call = detail::sdpa_call(q, k, v, as_view(out), mask, options);
  const auto rows = detail::as_bhl(as_view(logsumexp));
  const Dims<3> wanted{call.problem().batch, call.problem().num_heads, call.problem().q_len};
  check(rows.extents() == wanted, "sdpa_with_logsumexp_into: logsumexp ", rows, " should be ", wanted);
  call.check_separate("logsumexp", rows);
  call.run(rows);
}

/// As sdpa_into; returns out: a Matrix for rank 2, else a Tensor of the rank of q.
template <class Q, class K, class V, Mask M = NoMask>
  requires AttentionInputs<Q, K, V>
[[nodiscard]] auto sdpa(const Q& q, const K& k, const V& v, const M& mask = {},
                        const SdpaOptions& options = {}) {
  auto out = detail::attention_result(detail::read_only(q), detail::key_rows(v).extent(3));
  sdpa_into(q, k, v, out, mask, options);
  return out;
}

/// As sdpa, with the logsumexp of each row: a Tensor with the leading axes of q. The bits of out are those of
/// sdpa.
template <class Q, class K, class V, Mask M = NoMask>
  requires AttentionInputs<Q, K, V>
[[nodiscard]] auto sdpa_with_logsumexp(const Q& q, const K& k, const V& v, const M& mask = {},
                                       const SdpaOptions& options = {}) {
  constexpr int rank = rank_of<Q>;
  const auto queries = detail::read_only(q);
  Dims<rank - 1> rows{};
  for (int axis = 0; axis < rank - 1; ++axis) rows[axis] = queries.extent(axis);
  auto out = detail::attention_result(queries, detail::key_rows(v).extent(3));
  Tensor<Accumulator<ElementOf<Q>>, rank - 1> logsumexp(rows);
  sdpa_with_logsumexp_into(q, k, v, out, logsumexp, mask, options);
  return AttentionWithLogSumExp<decltype(out), decltype(logsumexp)>{std::move(out), std::move(logsumexp)};
}

/// As sdpa_into, and the scores [..., q_len, kv_len] of all pairs at a stage, by default the weights of the
/// softmax (before weight changes such as dropout). Costs O(q_len * kv_len) memory; the bits of out are those
/// of sdpa_into.
template <class Q, class K, class V, WritableTensor O, WritableTensor W, Mask M = NoMask>
  requires AttentionInputs<Q, K, V> && std::same_as<ElementOf<Q>, ElementOf<O>> &&
      std::same_as<Accumulator<ElementOf<Q>>, ElementOf<W>>
void sdpa_with_weights_into(const Q& q, const K& k, const V& v, O&& out, W&& weights, const M& mask = {},
                            const SdpaOptions& options = {}, ScoreStage stage = ScoreStage::weights) {
  using A = Accumulator<ElementOf<Q>>;
  auto call = detail::sdpa_call(q, k, v, as_view(out), mask, options);
  const auto scores = as_bhld(as_view(weights));
  const Problem& p = call.problem();
  const Dims<4> wanted{p.batch, p.num_heads, p.q_len, p.kv_len};
  check(scores.extents() == wanted, "sdpa_with_weights_into: weights ", scores, " should be ", wanted);
  call.check_separate("weights", scores);
  Workspace local;
  Workspace::Frame frame(options.workspace != nullptr ? *options.workspace : local);
  const std::span<A> logsumexp = frame.template take<A>(p.batch * p.num_heads * p.q_len);
  call.run({logsumexp.data(), {p.batch, p.num_heads, p.q_len}});
  call.write_scores(scores, stage);
}

/// As sdpa, with the scores of all pairs at a stage: weights [..., q_len, kv_len], a Matrix for rank 2, else
/// a Tensor.
template <class Q, class K, class V, Mask M = NoMask>
  requires AttentionInputs<Q, K, V>
[[nodiscard]] auto sdpa_with_weights(const Q& q, const K& k, const V& v, const M& mask = {},
                                     const SdpaOptions& options = {},
                                     ScoreStage stage = ScoreStage::weights) {
  using A = Accumulator<ElementOf<Q>>;
  const auto queries = detail::read_only(q);
  auto out = detail::attention_result(queries, detail::key_rows(v).extent(3));
  const TensorView<const A, rank_of<Q>> shape(nullptr, queries.extents());
  auto weights = detail::attention_result(shape, detail::key_rows(k).extent(2));
  sdpa_with_weights_into(q, k, v, out, weights, mask, options, stage);
  return AttentionWithWeights<decltype(out), decltype(weights)>{std::move(out), std::move(weights)};
}

ATTN_NAMESPACE_END
