// attn/ops/page_table.hpp - where the rows of each sequence of a cache lie: which pages it holds, shares and
// copies on write.
#pragma once
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "attn/ops/kv_cache_config.hpp"
#include "attn/ops/row_pages.hpp"

ATTN_NAMESPACE_BEGIN
namespace detail {

/// How many rows each sequence gets: the same for all, or one number each.
struct RowCounts {
  Index all = 0;
  std::span<const Index> each{};

  Index operator()(Index entry) const { return each.data() != nullptr ? each[as_size(entry)] : all; }
};

/// A sequence without pages holds one page of all its rows, whose number is the sequence's own. With pages it
/// holds as many as its rows need; those at the same rows of several sequences may be one page.
template <StorageElement S>
class PageTable {
 public:
  /// With the config's defaults filled in.
  explicit PageTable(const KVCacheConfig& c)
      : paged_(c.page_rows > 0),
        page_rows_(paged_ ? c.page_rows : c.max_len),
        pages_per_entry_(paged_ ? pages_for(c.max_len) : 1),
        pool_(std::in_place, c.batch * pages_per_entry_, c.num_kv_heads, page_rows_, c.head_dim, c.value_dim),
        pages_(as_size(c.batch * pages_per_entry_)),
        held_(as_size(c.batch)),
        scratch_(pages_.size() + held_.size()) {
    if (!paged_)
      for (Index entry = 0; entry < c.batch; ++entry) take(entry);
  }
  PageTable(PageTable&&) noexcept = default;
  PageTable& operator=(PageTable&& other) noexcept {
    release_all();
    paged_ = other.paged_;
    page_rows_ = other.page_rows_;
    pages_per_entry_ = other.pages_per_entry_;
    pool_ = std::move(other.pool_);
    pages_ = std::move(other.pages_);
    held_ = std::exchange(other.held_, {});
    scratch_ = std::move(other.scratch_);
    return *this;
  }
  ~PageTable() { release_all(); }

  bool is_paged() const { return paged_; }
  PagePool<S>& pool() { return *pool_; }
  const PagePool<S>& pool() const { return *pool_; }
  std::size_t bytes() const {
    return pool_->bytes() + (pages_.capacity() + held_.capacity() + scratch_.capacity()) * sizeof(Index);
  }
  StoredRows<S> view(const RowPages<S>& rows, Index len) const {
    return rows.view(batch(), len, paged_ ? pages_.data() : nullptr, paged_ ? pages_per_entry_ : 0);
  }

  /// f(page, row of the page, row of the range, count) for the runs of rows that lie in one page.
  template <class F>
  void for_each_run(Index entry, Range rows, F f) const {
    for (Index row = rows.begin; row < rows.end;) {
      const Index first = row % page_rows_, count = std::min(page_rows_ - first, rows.end - row);
      f(slot(entry, row / page_rows_), first, row - rows.begin, count);
      row += count;
    }
  }

  /// Gives every sequence room for `counts` rows after its length, in pages of its own. Contents stay.
  void make_room(std::span<const Index> lengths, const RowCounts& counts) {
    if (!paged_) return;
    Index missing = 0;
    for (Index entry = 0; entry < batch(); ++entry) {
      const Index len = lengths[as_size(entry)], count = counts(entry);
      if (count > 0 && len % page_rows_ != 0) unshare(entry, len / page_rows_);
      missing += pages_for(len + count) - held(entry);  // exact: an append leaves no page unused
    }
    pool_->reserve(missing);
    for (Index entry = 0; entry < batch(); ++entry)
      while (held(entry) < pages_for(lengths[as_size(entry)] + counts(entry))) take(entry);
  }
  /// Gives back the pages after the first `len` rows.
  void truncate(Index entry, Index len) {
    if (paged_) drop_pages(entry, {pages_for(len), held(entry)});
  }
  /// Removes rows of a sequence of `len` rows; those after them move down. With pages: whole ones.
  void remove(Index entry, Range rows, Index len) {
    if (paged_) return drop_pages(entry, {rows.begin / page_rows_, rows.end / page_rows_});
    const Index page = slot(entry, 0);
    pool_->keys.copy_rows(pool_->keys, page, rows.end, page, rows.begin, len - rows.end);
    pool_->values.copy_rows(pool_->values, page, rows.end, page, rows.begin, len - rows.end);
  }
  /// Makes the pages of these rows the sequence's own. Contents stay.
  void unshare_rows(Index entry, Range rows) {
    if (!paged_ || rows.empty()) return;
    for (Index i = rows.begin / page_rows_; i < pages_for(rows.end); ++i) unshare(entry, i);
  }

  /// Sequence b becomes what sequence entries[b] is. No allocation.
  void reorder(std::span<const Index> entries, std::span<const Index> lengths);
  /// A table of the same pages: sequence b of it is sequence entries[b] of this one.
  PageTable fork(std::span<const Index> entries) const;
  /// Room for `capacity` rows per sequence.
  void grow(Index capacity, std::span<const Index> lengths);

 private:
  PageTable(const PageTable& other, Index batch)
      : paged_(other.paged_),
        page_rows_(other.page_rows_),
        pages_per_entry_(other.pages_per_entry_),
        pool_(other.pool_),
        pages_(as_size(batch * pages_per_entry_)),
        held_(as_size(batch)),
        scratch_(pages_.size() + held_.size()) {}

  Index batch() const { return static_cast<Index>(held_.size()); }
  Index held(Index entry) const { return held_[as_size(entry)]; }
  Index pages_for(Index rows) const { return round_up(rows, page_rows_) / page_rows_; }
  Index& slot(Index entry, Index i) { return pages_[as_size(entry * pages_per_entry_ + i)]; }
  Index slot(Index entry, Index i) const { return pages_[as_size(entry * pages_per_entry_ + i)]; }

  void take(Index entry) { slot(entry, held_[as_size(entry)]++) = pool_->take(); }
  void unshare(Index entry, Index i) {
    const Index shared = slot(entry, i);
    if (!pool_->is_shared(shared)) return;
    const Index own = pool_->take();
    pool_->keys.copy_rows(pool_->keys, shared, 0, own, 0, page_rows_);
    pool_->values.copy_rows(pool_->values, shared, 0, own, 0, page_rows_);
    pool_->release(shared);
    slot(entry, i) = own;
  }
  /// Pages after those dropped move down; what is no page any more is 0, a page that may be read.
  void drop_pages(Index entry, Range pages) {
    if (pages.empty()) return;
    for (Index i = pages.begin; i < pages.end; ++i) pool_->release(slot(entry, i));
    Index* const first = &slot(entry, 0);
    std::copy(first + pages.end, first + held(entry), first + pages.begin);
    std::fill(first + held(entry) - pages.size(), first + held(entry), Index{0});
    held_[as_size(entry)] -= pages.size();
  }
  void release_all() {
    for (Index entry = 0; entry < batch(); ++entry)
      for (Index i = 0; i < held(entry); ++i) pool_->release(slot(entry, i));
  }
  void copy_entry(Index from, Index to, Index len) {
    pool_->keys.copy_rows(pool_->keys, slot(from, 0), 0, slot(to, 0), 0, len);
    pool_->values.copy_rows(pool_->values, slot(from, 0), 0, slot(to, 0), 0, len);
  }
  void reorder_rows(std::span<const Index> entries, std::span<const Index> lengths);
  void reorder_pages(std::span<const Index> entries);

  bool paged_;
  Index page_rows_, pages_per_entry_;
  SharedObject<PagePool<S>> pool_;
  std::vector<Index> pages_;    // [batch, pages_per_entry]
  std::vector<Index> held_;     // [batch]: pages of each sequence
  std::vector<Index> scratch_;  // of reorder
};

template <StorageElement S>
void PageTable<S>::reorder(std::span<const Index> entries, std::span<const Index> lengths) {
  if (paged_)
    reorder_pages(entries);
  else
    reorder_rows(entries, lengths);
}

template <StorageElement S>
void PageTable<S>::reorder_pages(std::span<const Index> entries) {
  for (const Index from : entries)
    for (Index i = 0; i < held(from); ++i) pool_->share(slot(from, i));
  std::copy(pages_.begin(), pages_.end(), scratch_.begin());
  const std::span<const Index> pages(scratch_.data(), pages_.size());
  const std::span<Index> counts(scratch_.data() + pages_.size(), held_.size());
  std::copy(held_.begin(), held_.end(), counts.begin());
  release_all();
  for (Index entry = 0; entry < batch(); ++entry) {
    const Index from = entries[as_size(entry)];
    const auto first = pages.begin() + from * pages_per_entry_;
    std::copy(first, first + pages_per_entry_, pages_.begin() + entry * pages_per_entry_);
    held_[as_size(entry)] = counts[as_size(from)];
  }
}

/// Rows that nobody else becomes are overwritten first; then only cycles are left, which are exchanged.
template <StorageElement S>
void PageTable<S>::reorder_rows(std::span<const Index> entries, std::span<const Index> lengths) {
  constexpr Index done = -1;
  const std::span<Index> readers(scratch_.data(), held_.size());  // of the old rows of each sequence, or done
  std::fill(readers.begin(), readers.end(), Index{0});
  for (Index entry = 0; entry < batch(); ++entry)
    if (entries[as_size(entry)] != entry) ++readers[as_size(entries[as_size(entry)])];
  for (Index entry = 0; entry < batch(); ++entry)
    for (Index to = entry; readers[as_size(to)] == 0;) {
      const Index from = entries[as_size(to)];
      readers[as_size(to)] = done;
      if (from == to) break;
      copy_entry(from, to, lengths[as_size(from)]);
      --readers[as_size(from)];
      to = from;
    }
  const Index longest = batch() > 0 ? *std::max_element(lengths.begin(), lengths.end()) : 0;
  for (Index entry = 0; entry < batch(); ++entry)
    for (Index to = entry; readers[as_size(to)] != done;) {
      const Index from = entries[as_size(to)];
      readers[as_size(to)] = done;
      if (readers[as_size(from)] == done) break;  // the cycle is closed
      pool_->keys.swap_rows(slot(to, 0), slot(from, 0), longest);
      pool_->values.swap_rows(slot(to, 0), slot(from, 0), longest);
      to = from;
    }
}

template <StorageElement S>
PageTable<S> PageTable<S>::fork(std::span<const Index> entries) const {
  PageTable other(*this, static_cast<Index>(entries.size()));
  for (Index entry = 0; entry < other.batch(); ++entry) {
    const Index from = entries[as_size(entry)];
    for (Index i = 0; i < held(from); ++i) {
      pool_->share(slot(from, i));
      other.slot(entry, i) = slot(from, i);
    }
    other.held_[as_size(entry)] = held(from);
  }
  return other;
}

template <StorageElement S>
void PageTable<S>::grow(Index capacity, std::span<const Index> lengths) {
  const RowPages<S>&keys = pool_->keys, &values = pool_->values;
  if (!paged_) {
    KVCacheConfig larger{.batch = batch(), .num_kv_heads = keys.heads(), .max_len = capacity};
    larger.head_dim = keys.dim();
    larger.value_dim = values.dim();
    PageTable other(larger);
    for (Index entry = 0; entry < batch(); ++entry) {
      const Index len = lengths[as_size(entry)];
      other.pool_->keys.copy_rows(keys, slot(entry, 0), 0, other.slot(entry, 0), 0, len);
      other.pool_->values.copy_rows(values, slot(entry, 0), 0, other.slot(entry, 0), 0, len);
    }
    *this = std::move(other);
    return;
  }
  Index taken = 0;
  for (const Index held : held_) taken += held;
  const Index per_entry = pages_for(capacity);
  std::vector<Index> pages(as_size(batch() * per_entry)), scratch(pages.size() + held_.size());
  pool_->reserve(batch() * per_entry - taken);
  for (Index entry = 0; entry < batch(); ++entry)
    std::copy_n(pages_.data() + entry * pages_per_entry_, held(entry), pages.data() + entry * per_entry);
  pages_ = std::move(pages);
  scratch_ = std::move(scratch);
  pages_per_entry_ = per_entry;
}

}  // namespace detail
ATTN_NAMESPACE_END
