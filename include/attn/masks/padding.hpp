// attn/masks/padding.hpp - KeyPadding: every batch entry has its own number of keys.
#pragma once
#include "attn/masks/mask.hpp"

ATTN_NAMESPACE_BEGIN

/// Keys at and after lengths[batch] are padding: never read, whatever stands there. Borrows the lengths.
struct KeyPadding {
  std::span<const Index> lengths;  ///< one per batch entry, each in [0, kv_len]

  Index length(Index batch) const { return lengths[static_cast<std::size_t>(batch)]; }
  bool allows(const Site& s, const Problem&) const { return s.k < length(s.batch); }
  Range key_range(const Tile& t, const Problem&) const { return {0, length(t.batch)}; }
  Coverage coverage(const Tile& t, const Problem&) const {
    if (t.k.end <= length(t.batch)) return Coverage::full;
    return t.k.begin < length(t.batch) ? Coverage::partial : Coverage::none;
  }
  void validate(const Problem& p) const {
    check(static_cast<Index>(lengths.size()) == p.batch, "KeyPadding: ", lengths.size(),
          " lengths for a batch of ", p.batch);
    for (const Index length : lengths)
      check(0 <= length && length <= p.kv_len, "KeyPadding: length ", length, " is not within [0, kv_len ",
            p.kv_len, "]");
  }
};

ATTN_NAMESPACE_END
