// attn/masks/mask.hpp - the Mask concept: which query-key pairs are seen, and how scores and weights
// are changed.
//
// A mask is a value with one or more of these members, each about one pair:
//
//   bool allows(const Site&, const Problem&) const       filter: does the query see the key?
//   A score(A s, const Site&, const Problem&) const      score change of s = scale * q.k, after the soft cap;
//                                                        any floating-point type A
//   A weight(A w, const Site&, const Problem&) const     weight change after softmax, linear in w (dropout)
//
// and any of these:
//
//   Range key_range(const Tile&, const Problem&) const   no query of the tile sees a key outside
//   Coverage coverage(const Tile&, const Problem&) const what the filter does to the tile
//   void validate(const Problem&) const                  throws ShapeError if the mask does not fit
//   static constexpr bool uses_positions = true          the mask reads Problem::query_offset()
//   void change_scores(const Block&, const Problem&) const    block form of score (masks/score_block.hpp)
//   void filter(const Block&, const Problem&) const           block form of allows
//
// Every path of the library - fused kernels, reference, returned weights, gradients - reads a mask through
// the functions of this header and of score_block.hpp, in one fixed order: scale, soft cap, score changes
// from left to right, filters, softmax, weight changes.
#pragma once
#include <algorithm>
#include <concepts>
#include <span>
#include <tuple>
#include <utility>

#include "attn/core/error.hpp"
#include "attn/core/types.hpp"

ATTN_NAMESPACE_BEGIN

/// Positions lie between -2^52 and 2^52, where double counts and sums of them do not overflow.
inline constexpr Index farthest_position = Index{1} << 52;

/// Key position of query 0: one for all, or one per batch entry (rows of unequal length). Negative values are
/// legal: the first queries then stand before key 0. Borrows the per-batch values: of a vector or an array
/// that has a name, or of a span.
class QueryOffset {
 public:
  QueryOffset(Index offset = 0) : single_(offset) {}  // NOLINT(google-explicit-constructor)
  QueryOffset(std::span<const Index> per_batch)       // NOLINT(google-explicit-constructor)
      : is_per_batch_(true), per_batch_(per_batch) {}
  template <class Offsets>
    requires(std::convertible_to<Offsets&, std::span<const Index>>)
  QueryOffset(Offsets& per_batch)  // NOLINT(google-explicit-constructor)
      : QueryOffset(std::span<const Index>(per_batch)) {}

  Index operator()(Index batch) const { return is_per_batch_ ? per_batch_[as_size(batch)] : single_; }
  /// One offset per batch entry, even if there are none.
  bool is_per_batch() const { return is_per_batch_; }
  /// The per-batch values; empty if one offset holds for all.
  std::span<const Index> per_batch() const { return per_batch_; }

 private:
  Index single_ = 0;
  bool is_per_batch_ = false;
  std::span<const Index> per_batch_{};
};

/// The extents of one attention call, and where its queries stand among the keys.
struct Problem {
  Index batch = 1;
  Index num_heads = 1;     ///< of the queries
  Index num_kv_heads = 1;  ///< num_heads is a multiple
  Index q_len = 0;
  Index kv_len = 0;
  Index head_dim = 0;
  Index value_dim = 0;
  QueryOffset offset{};

  /// Key position of query 0 of a batch entry; the one place where alignment is stated.
  Index query_offset(Index batch_entry) const { return offset(batch_entry); }
  /// Query heads that share a key-value head.
  Index group_size() const { return num_heads / num_kv_heads; }
  /// The key-value head that a query head reads.
  Index kv_head(Index head) const { return head / group_size(); }
};

/// One entry of the score matrix.
struct Site {
  Index batch = 0;
  Index head = 0;
  Position q = 0;
  Position k = 0;
};

/// A block of the score matrix of one batch entry and head.
struct Tile {
  Index batch = 0;
  Index head = 0;
  Range q{};
  Range k{};
};

/// Points of the fixed order at which the scores of all pairs can be asked for.
enum class ScoreStage {
  scaled,   ///< scale * q.k, of every pair
  capped,   ///< after the soft cap
  biased,   ///< after the score changes and filters: -inf where the pair is not seen
  weights,  ///< after the softmax, before weight changes: 0 where the pair is not seen
};

/// How many pairs of a tile a filter lets pass; ordered, so that the coverage of a composition is the
/// minimum.
enum class Coverage { none, partial, full };

template <class M>
concept FiltersPairs = requires(const M& m, Site s, const Problem& p) {
  { m.allows(s, p) } -> std::convertible_to<bool>;
};
template <class M>
concept ChangesScores = requires(const M& m, float score, Site s, const Problem& p) {
  { m.score(score, s, p) } -> std::convertible_to<float>;
};
template <class M>
concept ChangesWeights = requires(const M& m, float weight, Site s, const Problem& p) {
  { m.weight(weight, s, p) } -> std::convertible_to<float>;
};

/// What sdpa takes as a mask: a value that states at least one stage. Bare tensors are not masks: say
/// KeepMask, DropMask or AdditiveBias.
template <class M>
concept Mask = std::copy_constructible<M> &&(FiltersPairs<M> || ChangesScores<M> || ChangesWeights<M>);

/// True if the mask compares query and key positions, so that q_len != kv_len needs a stated query_offset.
template <class M>
inline constexpr bool uses_positions = [] {
  if constexpr (requires { M::uses_positions; })
    return static_cast<bool>(M::uses_positions);
  else
    return false;
}();

// How the library asks a mask; each has the neutral answer where the mask has no such member.
template <Mask M>
bool mask_allows(const M& m, const Site& s, const Problem& p) {
  if constexpr (FiltersPairs<M>)
    return m.allows(s, p);
  else
    return true;
}
template <std::floating_point A, Mask M>
A mask_score(const M& m, A score, const Site& s, const Problem& p) {
  if constexpr (ChangesScores<M>)
    return static_cast<A>(m.score(score, s, p));
  else
    return score;
}
template <std::floating_point A, Mask M>
A mask_weight(const M& m, A weight, const Site& s, const Problem& p) {
  if constexpr (ChangesWeights<M>)
    return static_cast<A>(m.weight(weight, s, p));
  else
    return weight;
}
/// Keys of [0, kv_len) that some query of the tile may see; t.k is not read.
template <Mask M>
Range mask_key_range(const M& m, const Tile& t, const Problem& p) {
  if constexpr (requires {
                  { m.key_range(t, p) } -> std::same_as<Range>;
                })
    return intersect(m.key_range(t, p), {0, p.kv_len});
  else
    return {0, p.kv_len};
}
template <Mask M>
Coverage mask_coverage(const M& m, const Tile& t, const Problem& p) {
  if constexpr (!FiltersPairs<M>)
    return Coverage::full;
  else if constexpr (requires {
                       { m.coverage(t, p) } -> std::same_as<Coverage>;
                     })
    return m.coverage(t, p);
  else
    return Coverage::partial;
}
template <Mask M>
void mask_validate(const M& m, const Problem& p) {
  if constexpr (requires { m.validate(p); }) m.validate(p);
}

/// Every query sees every key.
struct NoMask {
  static bool allows(const Site&, const Problem&) { return true; }
  static Coverage coverage(const Tile&, const Problem&) { return Coverage::full; }
};

/// All of the masks: scores are changed from left to right, a pair is seen if every filter allows it, weights
/// are changed from left to right.
template <Mask... Ms>
class AllOf {
 public:
  static constexpr bool uses_positions = (attn::uses_positions<Ms> || ...);

  explicit AllOf(Ms... masks) : masks_(std::move(masks)...) {}

  bool allows(const Site& s, const Problem& p) const requires(FiltersPairs<Ms> || ...) {
    return std::apply([&](const Ms&... m) { return (mask_allows(m, s, p) && ...); }, masks_);
  }
  template <std::floating_point A>
  A score(A value, const Site& s, const Problem& p) const requires(ChangesScores<Ms> || ...) {
    std::apply([&](const Ms&... m) { ((value = mask_score(m, value, s, p)), ...); }, masks_);
    return value;
  }
  template <std::floating_point A>
  A weight(A value, const Site& s, const Problem& p) const requires(ChangesWeights<Ms> || ...) {
    std::apply([&](const Ms&... m) { ((value = mask_weight(m, value, s, p)), ...); }, masks_);
    return value;
  }
  Range key_range(const Tile& t, const Problem& p) const {
    Range all{0, p.kv_len};
    std::apply([&](const Ms&... m) { ((all = intersect(all, mask_key_range(m, t, p))), ...); }, masks_);
    return all;
  }
  Coverage coverage(const Tile& t, const Problem& p) const {
    return std::apply([&](const Ms&... m) { return std::min({mask_coverage(m, t, p)...}); }, masks_);
  }
  void validate(const Problem& p) const {
    std::apply([&](const Ms&... m) { (mask_validate(m, p), ...); }, masks_);
  }

  /// The composed masks, in order.
  const std::tuple<Ms...>& parts() const { return masks_; }

 private:
  std::tuple<Ms...> masks_;
};

/// Composition by name, for any number of masks of any namespace.
template <Mask... Ms>
auto all_of(Ms... masks) {
  return AllOf<Ms...>(std::move(masks)...);
}
/// Composition by operator; found when one side is a mask of this library.
template <Mask A, Mask B>
auto operator&(A a, B b) {
  return AllOf<A, B>(std::move(a), std::move(b));
}

ATTN_NAMESPACE_END
