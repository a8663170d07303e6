// attn/ops/kv_cache_config.hpp - KVCacheConfig: shape, room and policy of a cache of keys and values.
#pragma once
#include <algorithm>

#include "attn/core/tensor_view.hpp"

ATTN_NAMESPACE_BEGIN

/// What happens when a row does not fit into max_len rows.
enum class Growth {
  fixed,     ///< an error; contents and lengths stay as they are
  doubling,  ///< the cache at least doubles its capacity, so that an append costs amortised constant time
};

/// Whose keys a cache holds.
enum class CacheKind {
  self_attention,   ///< of the rows generated so far: appended step by step
  cross_attention,  ///< of another sequence (an encoder's output): filled by one append, then only read
};

/// All members have defaults, but num_kv_heads, head_dim and max_len must be given.
struct KVCacheConfig {
  Index batch = 1;         ///< sequences; each has its own length
  Index num_kv_heads = 0;  ///< fewer than query heads in grouped-query attention
  Index head_dim = 0;      ///< width of a key
  Index value_dim = 0;     ///< width of a value; 0: head_dim
  Index max_len = 0;       ///< rows per sequence there is room for (with Growth::doubling: at first)
  Growth growth = Growth::fixed;
  CacheKind kind = CacheKind::self_attention;
  /// 0: the rows of a head lie in one run per sequence. Else memory is handed out in pages of as many rows,
  /// which forks and reordered sequences share until one of them writes (copy on write).
  Index page_rows = 0;
  /// 0: nothing is evicted. Else a rolling window: when an append does not fit, the oldest rows after the
  /// sinks go, and at least the `window - 1` newest stay, so that the first new row finds a window of as many
  /// rows including itself. Several go at once, as room allows: with max_len >= sinks + 2 * window each row
  /// is moved at most once on average. Between evictions more rows than the window are there; a mask
  /// (SlidingWindow) makes the window exact.
  Index window = 0;
  /// Rows at the beginning of each sequence that a rolling window never evicts (Xiao et al. 2023, "Efficient
  /// streaming language models with attention sinks").
  Index sinks = 0;

  friend bool operator==(const KVCacheConfig&, const KVCacheConfig&) = default;
};

namespace detail {

/// Rows are evicted by as many: whole pages go, so that none is moved.
inline Index eviction_unit(const KVCacheConfig& c) { return std::max<Index>(c.page_rows, 1); }

/// @throws std::length_error unless the rows of all sequences can be numbered.
inline void check_countable_rows(const KVCacheConfig& c) {
  constexpr Index limit = Index{1} << 48;
  for (const Index rows : {c.max_len, c.page_rows, c.window, c.sinks})
    check<std::length_error>(rows <= limit, "KVCache: ", rows, " rows of a sequence are more than 2^48");
  check<std::length_error>(
      static_cast<double>(c.batch) * static_cast<double>(c.max_len + c.page_rows) < 0x1p60, "KVCache: batch ",
      c.batch, " times max_len ", c.max_len, " rows exceed the address space");
}

/// The config with its defaults filled in.
/// @throws ShapeError if an extent is negative or missing; std::invalid_argument if policies exclude each
/// other; std::length_error if there are more rows than can be numbered.
inline KVCacheConfig checked_config(KVCacheConfig c) {
  check(c.batch >= 0, "KVCache: batch ", c.batch, " must not be negative");
  check(c.num_kv_heads > 0, "KVCache: num_kv_heads ", c.num_kv_heads, " must be positive");
  check(c.head_dim > 0, "KVCache: head_dim ", c.head_dim, " must be positive");
  check(c.value_dim >= 0, "KVCache: value_dim ", c.value_dim, " must not be negative");
  check(c.max_len >= 0, "KVCache: max_len ", c.max_len, " must not be negative");
  check(c.page_rows >= 0, "KVCache: page_rows ", c.page_rows, " must not be negative");
  check(c.window >= 0 && c.sinks >= 0, "KVCache: window ", c.window, " and sinks ", c.sinks,
        " must not be negative");
  check<std::invalid_argument>(c.window > 0 || c.sinks == 0, "KVCache: ", c.sinks,
                               " sinks without a window: nothing is evicted");
  check_countable_rows(c);
  if (c.value_dim == 0) c.value_dim = c.head_dim;
  if (c.window == 0) return c;
  check<std::invalid_argument>(c.growth == Growth::fixed && c.kind == CacheKind::self_attention,
                               "KVCache: a rolling window evicts rows: it excludes growth and "
                               "cross-attention");
  const Index unit = eviction_unit(c);
  const Index needed = round_up(c.sinks, unit) + c.window + unit - 1;
  check(c.max_len >= needed, "KVCache: max_len ", c.max_len, " is too small for ", c.sinks,
        " sinks and a window of ", c.window, unit > 1 ? " evicted in whole pages" : "", ": at least ",
        needed);
  return c;
}

}  // namespace detail
ATTN_NAMESPACE_END
