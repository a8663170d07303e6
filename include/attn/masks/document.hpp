// attn/masks/document.hpp - Documents: several sequences packed into one, each seeing only itself.
#pragma once
#include <vector>

#include "attn/core/tensor_view.hpp"
#include "attn/masks/score_block.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// The document of each position, [rows, len] with one row per batch entry, or one for all.
class DocumentIds {
 public:
  explicit DocumentIds(const TensorView<const Index, 2>& ids) : rows_(ids.extent(0)), len_(ids.extent(1)) {
    ids_.reserve(as_size(ids.size()));
    for (Index row = 0; row < rows_; ++row)
      for (Index i = 0; i < len_; ++i) ids_.push_back(ids(row, i));
    run_end_.resize(ids_.size());
    for (Index row = 0; row < rows_; ++row)
      for (Index i = len_; i-- > 0;) {
        const bool ends_run = i + 1 == len_ || ids_[at(row, i)] != ids_[at(row, i + 1)];
        run_end_[at(row, i)] = ends_run ? i + 1 : run_end_[at(row, i + 1)];
      }
  }

  Index rows() const { return rows_; }
  Index len() const { return len_; }
  const Index* of(Index batch, Index position) const { return &ids_[at(batch, position)]; }
  /// Where the run of equal ids at a position ends.
  Index run_end(Index batch, Index position) const { return run_end_[at(batch, position)]; }
  bool is_one_run(Index batch, Range part) const { return run_end(batch, part.begin) >= part.end; }

 private:
  std::size_t at(Index batch, Index position) const {
    return as_size((rows_ == 1 ? 0 : batch) * len_ + position);
  }

  Index rows_, len_;
  std::vector<Index> ids_, run_end_;
};

}  // namespace detail

/// A query sees the keys of its own document: those with the same id. Keys of other documents are skipped by
/// the tile. Any numbers serve as ids, in any order; documents in one piece are the fast case. Combine with
/// Causal{} where queries and keys are the same packed sequence. Copies the ids.
class Documents {
 public:
  /// Queries and keys are the same sequence: ids [len], the same for every batch entry.
  explicit Documents(std::span<const Index> ids) : Documents(ids, ids) {}
  /// Queries and keys have ids of their own: [q_len] and [kv_len].
  Documents(std::span<const Index> query_ids, std::span<const Index> key_ids)
      : Documents(as_row(query_ids), as_row(key_ids)) {}
  /// Ids [batch, q_len] and [batch, kv_len]; a batch of 1 stands for every batch entry.
  Documents(const TensorView<const Index, 2>& query_ids, const TensorView<const Index, 2>& key_ids)
      : queries_(query_ids), keys_(key_ids) {
    find_keys();
  }
  /// From cumulative lengths: starts = {0, 3, 7} are documents of 3 and 4 tokens.
  /// @throws ShapeError if the starts do not begin with 0 or decrease.
  static Documents packed(std::span<const Index> starts) { return packed(starts, starts); }
  /// As above; document i of the queries sees document i of the keys.
  static Documents packed(std::span<const Index> query_starts, std::span<const Index> key_starts) {
    check(query_starts.size() == key_starts.size(), "Documents::packed: ", query_starts.size(),
          " starts of queries, but ", key_starts.size(), " of keys");
    return {ids_of(query_starts), ids_of(key_starts)};
  }

  bool allows(const Site& s, const Problem&) const {
    return *queries_.of(s.batch, s.q) == *keys_.of(s.batch, s.k);
  }
  Range key_range(const Tile& t, const Problem& p) const {
    Range seen{p.kv_len, 0};
    for (Index q = t.q.begin; q < t.q.end; q = queries_.run_end(t.batch, q)) {
      const Range keys = keys_of_query(t.batch, q);
      seen = {std::min(seen.begin, keys.begin), std::max(seen.end, keys.end)};
    }
    return seen;
  }
  Coverage coverage(const Tile& t, const Problem& p) const {
    if (t.q.empty() || t.k.empty()) return Coverage::none;
    if (queries_.is_one_run(t.batch, t.q) && keys_.is_one_run(t.batch, t.k))
      return *queries_.of(t.batch, t.q.begin) == *keys_.of(t.batch, t.k.begin) ? Coverage::full
                                                                               : Coverage::none;
    return intersect(key_range(t, p), t.k).empty() ? Coverage::none : Coverage::partial;
  }
  /// @throws ShapeError if there is not one id per position.
  void validate(const Problem& p) const {
    check(queries_.len() == p.q_len && keys_.len() == p.kv_len, "Documents: ids of ", queries_.len(),
          " queries and ", keys_.len(), " keys for q_len ", p.q_len, " and kv_len ", p.kv_len);
    for (const Index rows : {queries_.rows(), keys_.rows()})
      check(rows == p.batch || rows == 1, "Documents: ids of ", rows, " batch entries for a batch of ",
            p.batch);
  }

  /// The ids of the lanes lie side by side.
  template <class Block>
  void filter(const Block& block, const Problem&) const {
    using T = typename Block::Scalar;
    const Index* const ids = queries_.of(block.batch, block.q);
    for (Position j = 0; j < block.keys; ++j) {
      const Index key_id = *keys_.of(block.batch, block.k + j);
      T* const scores = block.row(j);
      ATTN_LANES
      for (Position i = 0; i < block.lanes; ++i) scores[i] = ids[i] == key_id ? scores[i] : masked_score<T>;
    }
  }

 private:
  static TensorView<const Index, 2> as_row(std::span<const Index> ids) {
    return {ids, {1, static_cast<Index>(ids.size())}};
  }
  static std::vector<Index> ids_of(std::span<const Index> starts) {
    check(!starts.empty(), "Documents::packed: there are no starts; they begin with 0");
    check(starts.front() == 0, "Documents::packed: starts must begin with 0, not ", starts.front());
    std::vector<Index> ids;
    for (std::size_t i = 1; i < starts.size(); ++i) {
      check(starts[i - 1] <= starts[i], "Documents::packed: start ", starts[i], " comes after start ",
            starts[i - 1]);
      ids.insert(ids.end(), as_size(starts[i] - starts[i - 1]), static_cast<Index>(i));
    }
    return ids;
  }

  /// First and one past the last key that each query sees.
  void find_keys() {
    const Index rows = std::max(queries_.rows(), keys_.rows());
    check(queries_.rows() == keys_.rows() || std::min(queries_.rows(), keys_.rows()) == 1,
          "Documents: ids of ", queries_.rows(), " batch entries of queries, but ", keys_.rows(), " of keys");
    seen_.reserve(as_size(rows * queries_.len()));
    struct Run {
      Index id;
      Range keys;
    };
    // A heap, since std::sort and std::stable_sort cost a user's file more to compile than all else here.
    const auto before = [](const Run& a, const Run& b) {
      return a.id != b.id ? a.id < b.id : a.keys.begin < b.keys.begin;
    };
    std::vector<Run> runs;
    for (Index row = 0; row < rows; ++row) {
      runs.clear();
      for (Index k = 0; k < keys_.len(); k = keys_.run_end(row, k))
        runs.push_back({*keys_.of(row, k), {k, keys_.run_end(row, k)}});
      std::make_heap(runs.begin(), runs.end(), before);
      std::sort_heap(runs.begin(), runs.end(), before);
      std::size_t count = 0;  // runs of one document become one
      for (const Run& run : runs) {
        if (count > 0 && runs[count - 1].id == run.id)
          runs[count - 1].keys.end = run.keys.end;
        else
          runs[count++] = run;
      }
      runs.resize(count);
      for (Index q = 0; q < queries_.len(); ++q) {
        const Index id = *queries_.of(row, q);
        const auto found = std::lower_bound(runs.begin(), runs.end(), Run{id, {-1, 0}}, before);
        seen_.push_back(found != runs.end() && found->id == id ? found->keys : Range{});
      }
    }
  }
  const Range& keys_of_query(Index batch, Index q) const {
    const bool is_shared = queries_.rows() == 1 && keys_.rows() == 1;
    return seen_[as_size((is_shared ? 0 : batch) * queries_.len() + q)];
  }

  detail::DocumentIds queries_, keys_;
  std::vector<Range> seen_;
};

ATTN_NAMESPACE_END
