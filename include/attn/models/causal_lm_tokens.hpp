// attn/models/causal_lm_tokens.hpp - the tokens of one call of a CausalLM: checked, with padding at the end.
#pragma once
#include <concepts>
#include <span>
#include <utility>

#include "attn/modules/cached_attention.hpp"

ATTN_NAMESPACE_BEGIN

/// How one call of a CausalLM runs.
struct CausalLMOptions {
  /// Tokens of each sequence that count, each in [0, n]; the ids beside them are padding and never looked at.
  /// Empty: all. With 0 a sequence of the cache stays as it is.
  std::span<const Index> lengths{};
  PaddingSide padding = PaddingSide::right;
  ExecutorRef executor{};          ///< default: the calling thread; results do not depend on it
  Workspace* workspace = nullptr;  ///< default: scratch is allocated in the call
};

/// Ids [batch, len] with the tokens of each sequence at the beginning of its row. Borrows them.
struct TokenBatch {
  Index batch = 0;
  Index len = 0;
  std::span<const Index> ids;                ///< row-major; 0 at padding
  std::span<const Index> counts;             ///< tokens of each row
  PaddingSide padding = PaddingSide::right;  ///< of the caller's rows

  Index id(Index entry, Index i) const { return ids[as_size(entry * len + i)]; }
  Index count(Index entry) const { return counts[as_size(entry)]; }
  /// Where the caller's row of this entry has its first token.
  Index first(Index entry) const { return padding == PaddingSide::left ? len - count(entry) : 0; }
};

namespace detail {

inline TensorView<const Index, 2> as_one_row(std::span<const Index> ids) {
  return {ids.data(), {1, static_cast<Index>(ids.size())}};
}

/// The tokens of ids [batch, n], in memory of the frame.
/// @throws ShapeError if the lengths do not fit; std::invalid_argument if there is no token at all, or naming
/// an id that is out of range.
template <std::integral Id>
TokenBatch make_tokens(const TensorView<const Id, 2>& ids, Index vocab_size, const CausalLMOptions& options,
                       Workspace::Frame& frame) {
  const Index batch = ids.extent(0), len = ids.extent(1);
  check(options.lengths.empty() || static_cast<Index>(options.lengths.size()) == batch,
        "CausalLM: ", options.lengths.size(), " lengths for ids ", ids);
  const std::span<Index> rows = frame.take<Index>(batch * len), counts = frame.take<Index>(batch);
  const TokenBatch tokens{batch, len, rows, counts, options.padding};
  Index total = 0;
  for (Index b = 0; b < batch; ++b) {
    const Index count = options.lengths.empty() ? len : options.lengths[as_size(b)];
    check(0 <= count && count <= len, "CausalLM: lengths[", b, "] is ", count, ", not within ids ", ids);
    counts[as_size(b)] = count;
    total += count;
    for (Index i = 0; i < len; ++i) {
      Index& row = rows[as_size(b * len + i)];
      if (row = 0; i >= count) continue;
      const Id id = ids(b, tokens.first(b) + i);
      check<std::invalid_argument>(
          std::in_range<Index>(id) && 0 <= static_cast<Index>(id) && static_cast<Index>(id) < vocab_size,
          "CausalLM: ids(", b, ", ", tokens.first(b) + i, ") is ", id, ", not within [0, ", vocab_size, ")");
      row = static_cast<Index>(id);
    }
  }
  check<std::invalid_argument>(total > 0, "CausalLM: the prompt is empty: there is no token in ids ", ids);
  return tokens;
}

}  // namespace detail

ATTN_NAMESPACE_END
