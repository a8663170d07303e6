// attn/masks/causal.hpp - Causal: a query sees the keys up to its own position.
#pragma once
#include "attn/masks/mask.hpp"

ATTN_NAMESPACE_BEGIN

/// Key k is seen by query q iff k <= q + query_offset.
struct Causal {
  static constexpr bool uses_positions = true;

  static bool allows(const Site& s, const Problem& p) { return s.k <= s.q + p.query_offset(s.batch); }
  static Range key_range(const Tile& t, const Problem& p) { return {0, t.q.end + p.query_offset(t.batch)}; }
  static Coverage coverage(const Tile& t, const Problem& p) {
    const Index offset = p.query_offset(t.batch);
    if (t.k.end <= t.q.begin + offset + 1) return Coverage::full;
    return t.k.begin < t.q.end + offset ? Coverage::partial : Coverage::none;
  }
};

ATTN_NAMESPACE_END
