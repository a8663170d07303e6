// attn/masks/window.hpp - SlidingWindow: a query sees the keys near its own position.
#pragma once
#include "attn/masks/score_block.hpp"

ATTN_NAMESPACE_BEGIN

/// Key k is seen by the query at position x = q + query_offset iff x - left <= k <= x + right.
///
/// Both are distances, not counts, and the key at x itself is always inside: the usual causal window of W
/// tokens is Causal{} & SlidingWindow{.left = W - 1}, or SlidingWindow{.left = W - 1, .right = 0}.
/// -1: unlimited to that side. Source: Beltagy et al. 2020, "Longformer", section 3.1.
struct SlidingWindow {
  static constexpr bool uses_positions = true;

  Index left = -1;   ///< how many keys before its own position a query sees; -1: all
  Index right = -1;  ///< how many keys after its own position a query sees; -1: all

  bool allows(const Site& s, const Problem& p) const {
    const Index after = s.k - s.q - p.query_offset(s.batch);
    return -reach(left) <= after && after <= reach(right);
  }
  Range key_range(const Tile& t, const Problem& p) const {
    const Index offset = p.query_offset(t.batch);
    return {t.q.begin + offset - reach(left), t.q.end + offset + reach(right)};
  }
  Coverage coverage(const Tile& t, const Problem& p) const {
    const Range seen_by_some = key_range(t, p);
    if (t.k.end <= seen_by_some.begin || seen_by_some.end <= t.k.begin) return Coverage::none;
    const Index offset = p.query_offset(t.batch);
    const Range seen_by_all{t.q.end - 1 + offset - reach(left), t.q.begin + 1 + offset + reach(right)};
    return seen_by_all.begin <= t.k.begin && t.k.end <= seen_by_all.end ? Coverage::full : Coverage::partial;
  }
  /// @throws ShapeError if a distance is below -1.
  void validate(const Problem&) const {
    check(left >= -1 && right >= -1, "SlidingWindow: left ", left, " and right ", right,
          " must be distances, or -1 for unlimited");
  }

  /// The queries that see a key are a run of lanes: two fills instead of a test per pair.
  template <class Block>
  void filter(const Block& block, const Problem& p) const {
    using T = typename Block::Scalar;
    const Index first = block.k - block.q - p.query_offset(block.batch);
    for (Position j = 0; j < block.keys; ++j) {
      T* const scores = block.row(j);
      const Index begin = std::clamp<Index>(first + j - reach(right), 0, block.lanes);
      const Index end = std::clamp<Index>(first + j + reach(left) + 1, begin, block.lanes);
      std::fill(scores, scores + begin, masked_score<T>);
      std::fill(scores + end, scores + block.lanes, masked_score<T>);
    }
  }

 private:
  /// Farther than any two positions are apart, and far from overflow.
  static constexpr Index unlimited = Index{1} << 40;
  static constexpr Index reach(Index distance) {
    return distance < 0 || distance > unlimited ? unlimited : distance;
  }
};

ATTN_NAMESPACE_END
