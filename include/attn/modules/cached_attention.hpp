// attn/modules/cached_attention.hpp - what attention with a KVCache is made of: options, masks for sequences
// of unequal length, and the way back if something throws.
#pragma once
#include <algorithm>
#include <span>

#include "attn/masks/padding.hpp"
#include "attn/modules/attend.hpp"
#include "attn/ops/kv_cache.hpp"

ATTN_NAMESPACE_BEGIN

/// At which end of its rows a batch entry is filled up to the length of the others.
enum class PaddingSide { right, left };

/// How one call with a cache runs. Where its queries stand the cache says.
struct CachedAttentionOptions {
  /// How many rows of x count in each batch entry, the others being padding, which is neither appended nor
  /// seen; empty: all. Output rows of padding mean nothing. Borrowed.
  std::span<const Index> counts{};
  PaddingSide padding = PaddingSide::right;
  ExecutorRef executor{};          ///< default: the calling thread; results do not depend on it
  Workspace* workspace = nullptr;  ///< default: scratch is allocated in the call
};

namespace detail {

/// Brings a cache back to the lengths that it had, unless the rest went well.
template <class Cache>
class Rollback {
 public:
  /// `lengths`: memory for one number per batch entry.
  Rollback(Cache& cache, std::span<Index> lengths) : cache_(cache), lengths_(lengths) {}
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;
  ~Rollback() {
    if (is_armed_) cache_.truncate(std::span<const Index>(lengths_));
  }
  /// From here on the cache changes.
  void arm() {
    std::copy_n(cache_.lengths().begin(), lengths_.size(), lengths_.begin());
    is_armed_ = true;
  }
  void keep_changes() { is_armed_ = false; }
  /// The lengths before the changes.
  std::span<const Index> lengths() const { return lengths_; }

 private:
  Cache& cache_;
  std::span<Index> lengths_;
  bool is_armed_ = false;
};

/// The rows of a call that count, and where they stand behind what a cache holds.
class NewRows {
 public:
  /// @throws ShapeError unless there is no count, or one per batch entry, each in [0, n].
  NewRows(const CachedAttentionOptions& options, Index batch, Index n)
      : counts_(options.counts), is_left_(options.padding == PaddingSide::left && !counts_.empty()), n_(n) {
    check(counts_.empty() || static_cast<Index>(counts_.size()) == batch,
          "MultiHeadAttention: options.counts has ", counts_.size(), " values for a batch of ", batch);
    for (const Index count : counts_)
      check(0 <= count && count <= n, "MultiHeadAttention: count ", count, " is not within [0, ", n,
            "], the rows of x");
  }

  /// Position of row 0 of each entry, if the next row that counts has position next[b]. `scratch`: memory for
  /// one number per batch entry, used if rows before the first that counts are padding.
  QueryOffset offset(std::span<const Index> next, std::span<Index> scratch) const {
    if (!is_left_) {
      const bool is_one = std::all_of(next.begin(), next.end(), [&](Index p) { return p == next.front(); });
      return is_one && !next.empty() ? QueryOffset(next.front()) : QueryOffset(next);
    }
    for (std::size_t b = 0; b < next.size(); ++b) scratch[b] = next[b] - (n_ - counts_[b]);
    return std::span<const Index>(scratch);
  }

  /// Evicts what a rolling window must before the rows that count find room.
  template <class Cache>
  void make_room_in(Cache& cache) const {
    if (cache.config().window == 0) return;
    if (counts_.empty())
      cache.make_room(n_);
    else
      cache.make_room(counts_);
  }

  /// Appends the rows that count of keys and values [batch, n, heads * dim].
  template <class Cache, Element X>
  void append_to(Cache& cache, const TensorView<const X, 3>& k, const TensorView<const X, 3>& v,
                 Workspace& workspace) const {
    const Index heads = cache.config().num_kv_heads;
    if (counts_.empty()) return cache.append(split_heads(k, heads), split_heads(v, heads));
    Workspace::Frame frame(workspace);
    const auto rows = [&](const TensorView<const X, 3>& x) {
      return split_heads(is_left_ ? moved_to_front(x, frame) : x, heads);
    };
    cache.append(rows(k), rows(v), counts_);
  }

 private:
  template <Element X>
  TensorView<const X, 3> moved_to_front(const TensorView<const X, 3>& x, Workspace::Frame& frame) const {
    const TensorView<X, 3> front(frame.take<X>(x.size()).data(), x.extents());
    for (Index b = 0; b < x.extent(0); ++b) {
      const Index count = counts_[as_size(b)];
      copy(x[b].slice(0, {n_ - count, n_}), front[b].slice(0, {0, count}));
    }
    return front;
  }

  std::span<const Index> counts_;
  bool is_left_;
  Index n_;
};

}  // namespace detail

/// To the rows of a cache, under one mask, which numbers keys as the cache numbers rows. What lies behind the
/// end of a shorter sequence is hidden.
template <class Cache, Mask M>
struct AttendCache {
  const Cache& cache;
  const M& mask;

  template <Element X>
  void operator()(const AttendArguments<X>& a, const SdpaOptions& options) const {
    const auto attend = [&](const auto& seen) {
      sdpa_into(split_heads(a.q, a.num_heads), cache.keys(), cache.values(), split_heads(a.out, a.num_heads),
                seen, options);
    };
    if (cache.uniform())
      attend(mask);
    else  // the first borrows the mask: a copy could allocate
      attend(all_of(WithExtraKeys<M>(mask, 0), KeyPadding{cache.lengths()}));
  }
};

/// Appends the keys and values of the call to a cache, and attends to all that it then holds. The offset in
/// the options is the position in the text, for rotations; masks get the number of the row.
template <class Cache, Mask M>
struct AppendAndAttend {
  static constexpr bool keys_follow_queries = true;
  Cache& cache;
  const M& mask;
  const detail::NewRows& rows;
  detail::Rollback<Cache>& rollback;
  std::span<Index> scratch;  ///< one number per batch entry

  template <Element X>
  void operator()(const AttendArguments<X>& a, SdpaOptions options) const {
    rows.make_room_in(cache);
    rollback.arm();
    rows.append_to(cache, a.k, a.v, *options.workspace);
    options.query_offset = rows.offset(rollback.lengths(), scratch);
    AttendCache<Cache, M>{cache, mask}(a, options);
  }
};

ATTN_NAMESPACE_END
