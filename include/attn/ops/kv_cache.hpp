// attn/ops/kv_cache.hpp - KVCache: the keys and values of one layer, kept for the queries to come.
#pragma once
#include <algorithm>
#include <concepts>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "attn/core/tensor_traits.hpp"
#include "attn/ops/page_table.hpp"
#include "attn/ops/store_rows.hpp"

ATTN_NAMESPACE_BEGIN

/// What moves rotated keys to other positions: f(keys [kv_heads, rows, head_dim], by).
template <class F, class Storage>
concept KeyRotation = std::invocable < F&,
        const TensorView<Storage, 3>
&, Index > ;

/// Keys [batch, num_kv_heads, length, head_dim] and values [..., value_dim] of sequences of their own
/// lengths, appended in elements of type T and kept as Storage: float, double, half, bfloat16, or std::int8_t
/// with a float scale per row and head (an element is then off by at most scale / 2, scale = largest
/// magnitude of the row / 127).
///
/// Rows lie in the order in which they came; row r of a sequence is what masks call key r. The number of a
/// row is its position in the text as long as nothing was evicted (KVCacheConfig::window); after that rows
/// have smaller numbers than positions, and positions() says which position is next. Masks, which compare
/// numbers of rows, take as query_offset length(b) after the append less the rows appended; distances are
/// right for all rows but the sinks, which seem nearer. Keys that are rotated by position (RoPE) keep the
/// rotation they came with, so rotate by positions(); or let make_room() rotate them again to the number of
/// their row, as streaming with sinks wants.
///
/// Once there is room, nothing that appends, truncates, evicts or reorders allocates. An error leaves
/// contents and lengths as they were; only where forks share pages and memory runs out, rows that a rolling
/// window evicted for the new ones stay gone. Any number of threads may use const members at a time; a member
/// that changes the cache needs it, its views and all its forks alone. Views end with the next change.
template <Element T, StorageElement Storage = T>
class KVCache {
 public:
  using value_type = T;
  using storage_type = Storage;

  /// @throws ShapeError if an extent is negative or missing; std::invalid_argument if policies exclude each
  /// other; std::length_error if the memory is not to be had.
  explicit KVCache(const KVCacheConfig& config)
      : config_(detail::checked_config(config)),
        table_(config_),
        lengths_(as_size(config_.batch)),
        positions_(as_size(config_.batch)),
        scratch_(as_size(config_.batch)) {}

  /// Appends k [batch, kv_heads, n, head_dim] and v [batch, kv_heads, n, value_dim] of rank 2 to 4 (without
  /// batch: 1; without heads: 1) and any strides: n rows to each sequence.
  /// @throws ShapeError if the extents do not fit.
  /// @throws std::length_error if there is no room and the cache may not grow.
  /// @throws std::invalid_argument if a cross-attention cache is filled already.
  template <TensorLike K, TensorLike V>
    requires std::same_as<ElementOf<const K>, T> && std::same_as<ElementOf<const V>, T>
  void append(const K& k, const V& v) {
    const TensorView<const T, 4> keys = as_bhld(as_view(k));
    append_rows(keys, as_bhld(as_view(v)), {.all = keys.extent(2)});
  }
  /// As above; of sequence b only the first counts[b] rows, in [0, n], count.
  template <TensorLike K, TensorLike V>
    requires std::same_as<ElementOf<const K>, T> && std::same_as<ElementOf<const V>, T>
  void append(const K& k, const V& v, std::span<const Index> counts) {
    const TensorView<const T, 4> keys = as_bhld(as_view(k));
    check_each("append: counts", counts, "the rows of k", [&](Index) { return keys.extent(2); });
    append_rows(keys, as_bhld(as_view(v)), {.each = counts});
  }

  /// What an append of n rows to each sequence does first: evicts or grows where they do not fit. Call it
  /// before reading lengths() and positions() for the rows to come.
  /// @throws as append.
  void make_room(Index n) { find_room({.all = n}, KeepRotation{}); }
  /// As above, for an append of counts[b] rows to sequence b.
  void make_room(std::span<const Index> counts) {
    check_each("make_room: counts", counts, "the rows that can be counted",
               [](Index) { return std::numeric_limits<Index>::max(); });
    find_room({.each = counts}, KeepRotation{});
  }
  /// As above; key rows that an eviction gives another number go through rotate(keys, by): a writable
  /// TensorView<Storage, 3> [kv_heads, rows, head_dim], and by how many positions they moved (negative). With
  /// the rotation of RoPE positions() are then numbers of rows. If rotate throws, all rows are still there,
  /// and so is what it has written.
  /// @throws std::invalid_argument also if the storage is 8-bit integers: rotating mixes elements that share
  /// a scale, so these keys would have to be kept unrotated and rotated when read.
  template <KeyRotation<Storage> Rotate>
  void make_room(Index n, Rotate&& rotate) {
    check<std::invalid_argument>(!std::is_same_v<Storage, std::int8_t>,
                                 "KVCache::make_room: keys kept as int8 cannot be rotated again, their rows "
                                 "share one scale; use a 16-bit or float cache");
    find_room({.all = n}, rotate);
  }

  /// Rows of sequence b.
  Index length(Index b) const { return lengths_[as_size(b)]; }
  /// Rows of each sequence; for KeyPadding and query offsets.
  std::span<const Index> lengths() const { return lengths_; }
  /// The largest length; 0 for a batch of 0.
  Index longest() const { return lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end()); }
  /// True if all lengths are equal.
  bool uniform() const {
    return std::all_of(lengths_.begin(), lengths_.end(), [&](Index len) { return len == lengths_.front(); });
  }
  /// Position in the text of the row that comes next, for each sequence: length(b) and what was evicted.
  std::span<const Index> positions() const { return positions_; }
  /// Rows per sequence there is room for.
  Index capacity() const { return config_.max_len; }
  Index batch() const { return config_.batch; }
  /// With its defaults filled in; max_len is the capacity.
  const KVCacheConfig& config() const { return config_; }
  /// Bytes held, used or not; forks share their pages, and each counts all of them.
  std::size_t bytes() const { return table_.bytes() + 3 * lengths_.capacity() * sizeof(Index); }
  /// Bytes of the key and value rows of one position of one sequence.
  std::size_t bytes_per_token() const {
    const std::size_t elements = as_size(config_.head_dim + config_.value_dim) * sizeof(Storage);
    return as_size(config_.num_kv_heads) * (elements + (is_quantized ? 2 * sizeof(float) : 0));
  }
  /// Pages that hold rows, of this cache and of its forks together; without pages: one per sequence.
  Index pages_in_use() const { return table_.pool().pages_in_use(); }

  /// The keys [batch, kv_heads, longest(), head_dim] and values [..., value_dim], as sdpa takes them: with
  /// KeyPadding{lengths()} where the lengths differ. No allocation.
  StoredRows<Storage> keys() const { return table_.view(table_.pool().keys, longest()); }
  StoredRows<Storage> values() const { return table_.view(table_.pool().values, longest()); }

  /// Keeps the first `len` rows of each sequence that has more.
  /// @throws ShapeError if len is negative.
  void truncate(Index len) {
    check(len >= 0, "KVCache::truncate: length ", len, " must not be negative");
    for (Index b = 0; b < batch(); ++b) cut(b, std::min(len, length(b)));
  }
  /// Keeps the first lens[b] rows of sequence b.
  /// @throws ShapeError if there is not one per sequence, each within [0, length(b)].
  void truncate(std::span<const Index> lens) {
    check_each("truncate", lens, "its length", [&](Index b) { return length(b); });
    for (Index b = 0; b < batch(); ++b) cut(b, lens[as_size(b)]);
  }
  /// Empties all sequences; the memory stays.
  void reset() {
    truncate(0);
    std::fill(positions_.begin(), positions_.end(), Index{0});
  }
  /// Sequence b becomes what sequence entries[b] was: the step of a beam search. With pages no row is moved.
  /// @throws ShapeError if there is not one entry per sequence, each within [0, batch).
  void reorder(std::span<const Index> entries);

  /// A cache of its own with the same rows, or one whose sequence b is sequence entries[b] of this one; there
  /// may be more or fewer.
  /// @throws ShapeError if an entry is not within [0, batch).
  KVCache copy() const { return copy(all_entries()); }
  KVCache copy(std::span<const Index> entries) const;
  /// As copy(), without copying: both caches go on from the same pages, and the first to write to one makes a
  /// copy of it. Where the pages run out, more are allocated, twice as many as before.
  /// @throws std::invalid_argument if the cache has no pages: copy() it.
  KVCache fork() const { return fork(all_entries()); }
  KVCache fork(std::span<const Index> entries) const;

  /// Replaces everything by stored rows, of any layout (another cache's, or a file's): the first lengths[b]
  /// of sequence b, at these positions() (default: lengths). Not shared with forks any more.
  /// @throws ShapeError if they do not fit; std::length_error if there is no room and the cache may not grow.
  void assign(const StoredRows<Storage>& keys, const StoredRows<Storage>& values,
              std::span<const Index> lengths, std::span<const Index> positions = {});

 private:
  struct KeepRotation {};
  static constexpr bool is_quantized = std::is_same_v<Storage, std::int8_t>;

  KVCache(const KVCacheConfig& config, detail::PageTable<Storage>&& table)
      : config_(config),
        table_(std::move(table)),
        lengths_(as_size(config.batch)),
        positions_(as_size(config.batch)),
        scratch_(as_size(config.batch)) {}

  std::vector<Index> all_entries() const {
    std::vector<Index> entries(lengths_.size());
    for (std::size_t i = 0; i < entries.size(); ++i) entries[i] = static_cast<Index>(i);
    return entries;
  }
  /// One value per sequence, each within [0, limit(b)].
  template <class Limit>
  void check_each(const char* what, std::span<const Index> values, const char* limit_name,
                  Limit limit) const {
    check(static_cast<Index>(values.size()) == batch(), "KVCache::", what, ": ", values.size(),
          " values for a batch of ", batch());
    for (Index b = 0; b < batch(); ++b)
      check(0 <= values[as_size(b)] && values[as_size(b)] <= limit(b), "KVCache::", what, ": ",
            values[as_size(b)], " for sequence ", b, " is not within [0, ", limit(b), "], ", limit_name);
  }
  void check_entries(const char* name, std::span<const Index> entries) const {
    for (const Index from : entries)
      check(0 <= from && from < batch(), "KVCache::", name, ": there is no sequence ", from,
            " in a batch of ", batch());
  }
  template <class Rows>
  void check_rows(const char* name, const Rows& rows, Index len, Index dim) const {
    const Dims<4> wanted{batch(), config_.num_kv_heads, len, dim};
    for (int axis = 0; axis < 4; ++axis)
      check(rows.extent(axis) == wanted[axis], "KVCache::", name, " ", rows, " should be ", wanted);
  }

  void append_rows(const TensorView<const T, 4>& k, const TensorView<const T, 4>& v,
                   const detail::RowCounts& counts);
  /// Fills this cache, which has lengths and no rows yet: sequence b with rows of entries[b].
  void copy_rows(const StoredRows<Storage>& keys, const StoredRows<Storage>& values,
                 std::span<const Index> entries);
  void take_lengths(const KVCache& from, std::span<const Index> entries);

  /// Rows of sequence b that a rolling window can do without.
  Range evictable(Index b) const;
  template <class Rotate>
  void find_room(const detail::RowCounts& counts, Rotate&& rotate);
  template <class Rotate>
  void rotate_moved_keys(Index b, Rotate&& rotate);
  void cut(Index b, Index len) {
    table_.truncate(b, len);
    positions_[as_size(b)] -= length(b) - len;
    lengths_[as_size(b)] = len;
  }

  KVCacheConfig config_;
  detail::PageTable<Storage> table_;
  std::vector<Index> lengths_, positions_, scratch_;
};

template <Element T, StorageElement Storage>
void KVCache<T, Storage>::append_rows(const TensorView<const T, 4>& k, const TensorView<const T, 4>& v,
                                      const detail::RowCounts& counts) {
  check_rows("append: k", k, k.extent(2), config_.head_dim);
  check_rows("append: v", v, k.extent(2), config_.value_dim);
  check<std::invalid_argument>(longest() == 0 || config_.kind == CacheKind::self_attention,
                               "KVCache::append: a cross-attention cache is filled once; reset() it before "
                               "the keys of another input");
  find_room(counts, KeepRotation{});
  table_.make_room(lengths_, counts);
  for (Index b = 0; b < batch(); ++b) {
    const Range rows{length(b), length(b) + counts(b)};
    table_.for_each_run(b, rows, [&](Index page, Index first, Index row, Index count) {
      detail::store_rows(k[b], row, count, table_.pool().keys, page, first);
      detail::store_rows(v[b], row, count, table_.pool().values, page, first);
    });
    lengths_[as_size(b)] += rows.size();
    positions_[as_size(b)] += rows.size();
  }
}

template <Element T, StorageElement Storage>
Range KVCache<T, Storage>::evictable(Index b) const {
  if (config_.window == 0) return {};
  const Index unit = detail::eviction_unit(config_), first = detail::round_up(config_.sinks, unit);
  const Index count = std::max<Index>(length(b) - first - (config_.window - 1), 0);
  return {first, first + count / unit * unit};
}

template <Element T, StorageElement Storage>
template <class Rotate>
void KVCache<T, Storage>::find_room(const detail::RowCounts& counts, Rotate&& rotate) {
  Index needed = 0;
  for (Index b = 0; b < batch(); ++b) {
    const Index count = counts(b), stays = length(b) - evictable(b).size();
    check(count >= 0, "KVCache: ", count, " rows to come must not be negative");
    const bool fits = config_.growth == Growth::doubling ? count < std::numeric_limits<Index>::max() / 4
                                                         : count <= capacity() - stays;
    check<std::length_error>(fits, "KVCache: sequence ", b, " has ", length(b), " rows and gets ", count,
                             ", but there is room for ", capacity(), " (max_len)",
                             config_.window > 0 ? ", and sinks and window stay: append fewer at a time" : "");
    needed = std::max(needed, length(b) + count);
  }
  if (needed <= capacity()) return;
  if (config_.growth == Growth::doubling) {
    KVCacheConfig grown = config_;
    grown.max_len = std::max(needed, 2 * capacity());
    detail::check_countable_rows(grown);
    table_.grow(grown.max_len, lengths_);
    config_ = grown;
    return;
  }
  const auto is_full = [&](Index b) { return length(b) + counts(b) > capacity(); };
  // All that can fail comes first.
  if constexpr (!std::is_same_v<std::remove_cvref_t<Rotate>, KeepRotation>) {
    for (Index b = 0; b < batch(); ++b)
      if (is_full(b)) table_.unshare_rows(b, {evictable(b).end, length(b)});
    for (Index b = 0; b < batch(); ++b)
      if (is_full(b)) rotate_moved_keys(b, rotate);
  }
  for (Index b = 0; b < batch(); ++b) {
    if (!is_full(b)) continue;
    const Range rows = evictable(b);
    table_.remove(b, rows, length(b));
    lengths_[as_size(b)] -= rows.size();
    if constexpr (!std::is_same_v<std::remove_cvref_t<Rotate>, KeepRotation>)
      positions_[as_size(b)] -= rows.size();
  }
}

template <Element T, StorageElement Storage>
template <class Rotate>
void KVCache<T, Storage>::rotate_moved_keys(Index b, Rotate&& rotate) {
  const Range rows = evictable(b);
  const detail::RowPages<Storage>& keys = table_.pool().keys;
  table_.for_each_run(b, {rows.end, length(b)}, [&](Index page, Index first, Index, Index count) {
    rotate(keys.rows(page, first, count), -rows.size());
  });
}

template <Element T, StorageElement Storage>
void KVCache<T, Storage>::reorder(std::span<const Index> entries) {
  check(static_cast<Index>(entries.size()) == batch(), "KVCache::reorder: ", entries.size(),
        " entries for a batch of ", batch());
  check_entries("reorder", entries);
  table_.reorder(entries, lengths_);
  for (std::vector<Index>* values : {&lengths_, &positions_}) {
    std::copy(values->begin(), values->end(), scratch_.begin());
    for (Index b = 0; b < batch(); ++b) (*values)[as_size(b)] = scratch_[as_size(entries[as_size(b)])];
  }
}

template <Element T, StorageElement Storage>
KVCache<T, Storage> KVCache<T, Storage>::copy(std::span<const Index> entries) const {
  check_entries("copy", entries);
  KVCacheConfig config = config_;
  config.batch = static_cast<Index>(entries.size());
  KVCache other(config);
  other.take_lengths(*this, entries);
  other.copy_rows(keys(), values(), entries);
  return other;
}

template <Element T, StorageElement Storage>
KVCache<T, Storage> KVCache<T, Storage>::fork(std::span<const Index> entries) const {
  check<std::invalid_argument>(table_.is_paged(),
                               "KVCache::fork: without pages (page_rows) there is nothing to share: copy()");
  check_entries("fork", entries);
  KVCacheConfig config = config_;
  config.batch = static_cast<Index>(entries.size());
  KVCache other(config, table_.fork(entries));
  other.take_lengths(*this, entries);
  return other;
}

template <Element T, StorageElement Storage>
void KVCache<T, Storage>::assign(const StoredRows<Storage>& keys, const StoredRows<Storage>& values,
                                 std::span<const Index> lengths, std::span<const Index> positions) {
  const Index len = keys.extent(2);
  check_rows("assign: keys", keys, len, config_.head_dim);
  check_rows("assign: values", values, len, config_.value_dim);
  const bool has_scales = keys.scales != nullptr && values.scales != nullptr;
  check<std::invalid_argument>(!is_quantized || has_scales || batch() * len == 0,
                               "KVCache::assign: rows of 8-bit integers need scales");
  check_each("assign: lengths", lengths, "the rows of keys", [&](Index) { return len; });
  check(positions.empty() || positions.size() == lengths.size(), "KVCache::assign: ", positions.size(),
        " positions for a batch of ", batch());
  for (std::size_t b = 0; b < positions.size(); ++b)
    check(positions[b] >= lengths[b], "KVCache::assign: position ", positions[b], " of sequence ", b,
          " comes before its ", lengths[b], " rows");
  KVCache other(config_);
  other.find_room({.each = lengths}, KeepRotation{});
  std::copy(lengths.begin(), lengths.end(), other.lengths_.begin());
  const std::span<const Index> from = positions.empty() ? lengths : positions;
  std::copy(from.begin(), from.end(), other.positions_.begin());
  other.copy_rows(keys, values, all_entries());
  *this = std::move(other);
}

template <Element T, StorageElement Storage>
void KVCache<T, Storage>::take_lengths(const KVCache& from, std::span<const Index> entries) {
  for (std::size_t b = 0; b < entries.size(); ++b) {
    lengths_[b] = from.lengths_[as_size(entries[b])];
    positions_[b] = from.positions_[as_size(entries[b])];
  }
}

template <Element T, StorageElement Storage>
void KVCache<T, Storage>::copy_rows(const StoredRows<Storage>& keys, const StoredRows<Storage>& values,
                                    std::span<const Index> entries) {
  const std::vector<Index> none(lengths_.size());
  table_.make_room(none, {.each = lengths_});
  for (Index b = 0; b < batch(); ++b)
    table_.for_each_run(b, {0, length(b)}, [&](Index page, Index first, Index row, Index count) {
      const Index from = entries[as_size(b)];
      table_.pool().keys.copy_stored(keys, from, row, page, first, count);
      table_.pool().values.copy_stored(values, from, row, page, first, count);
    });
}

ATTN_NAMESPACE_END
