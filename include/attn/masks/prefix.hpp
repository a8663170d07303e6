// attn/masks/prefix.hpp - PrefixLm: a prefix that every query sees, and causal attention behind it.
#pragma once
#include "attn/masks/mask.hpp"

ATTN_NAMESPACE_BEGIN

/// Key k is seen by query q iff k < prefix_lengths[batch] or k <= q + query_offset: the prefix is
/// bidirectional, the rest causal. Source: Raffel et al. 2020, "Exploring the limits of transfer learning",
/// figure 4. Borrows the lengths.
struct PrefixLm {
  static constexpr bool uses_positions = true;

  std::span<const Index> prefix_lengths;  ///< one per batch entry, each in [0, kv_len]

  bool allows(const Site& s, const Problem& p) const { return s.k < seen_end(s.batch, s.q, p); }
  Range key_range(const Tile& t, const Problem& p) const { return {0, seen_end(t.batch, t.q.end - 1, p)}; }
  Coverage coverage(const Tile& t, const Problem& p) const {
    if (t.k.end <= seen_end(t.batch, t.q.begin, p)) return Coverage::full;
    return t.k.begin < seen_end(t.batch, t.q.end - 1, p) ? Coverage::partial : Coverage::none;
  }
  /// @throws ShapeError if the lengths do not fit.
  void validate(const Problem& p) const {
    check(static_cast<Index>(prefix_lengths.size()) == p.batch, "PrefixLm: ", prefix_lengths.size(),
          " prefix lengths for a batch of ", p.batch);
    for (const Index length : prefix_lengths)
      check(0 <= length && length <= p.kv_len, "PrefixLm: prefix length ", length,
            " is not within [0, kv_len ", p.kv_len, "]");
  }

 private:
  /// One past the last key that a query sees.
  Index seen_end(Index batch, Index q, const Problem& p) const {
    return std::max(prefix_lengths[as_size(batch)], q + p.query_offset(batch) + 1);
  }
};

ATTN_NAMESPACE_END
