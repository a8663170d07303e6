// attn/kernels/flash_forward.hpp - fused attention: tiled online softmax, no q_len x kv_len matrix.
//
// FlashAttention-2 (Dao 2023, algorithm 1) for vector registers. How the work is cut:
//
//   task      a few lane groups of one head (or of the heads that share keys)          ForwardPass::run
//   key tile  scores, softmax and P V of each lane group against up to tile_keys keys  LaneGroup::attend
//   chunk     where masks act and where a lane may take a new maximum                  LaneGroup::score_chunk
//   block     a few keys x a few packets of lanes: one pass of the register block      score_block, dot_block
#pragma once
#include "attn/kernels/lane_group.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Everything a forward pass reads and writes, checked by the caller.
template <class A>
struct ForwardArguments {
  RowStore<A> q, k, v;         ///< [batch, heads, len, dim]
  RowSink<A> out;              ///< [batch, num_heads, q_len, value_dim]
  TensorView<A, 3> logsumexp;  ///< [batch, num_heads, q_len]; no data: not wanted
  /// [batch, num_heads, q_len]; with data, the pass sees some of the keys only and leaves its outputs as
  /// sums, not divided, with the maximum (in the units of the pass) and the sum of each row.
  TensorView<A, 3> maximum{}, sum{};
  double scale = 1;
  double soft_cap = 0;              ///< 0: none
  std::span<const double> sinks{};  ///< a score per query head in the denominator; empty: none
};

/// One call: the tasks it is cut into, by shape alone, and the scratch of one task. Group: a LaneGroup, or
/// RowGroup for a handful of rows.
template <class A, class Group = LaneGroup<LaneProducts<A>>>
class ForwardPass {
  using Products = typename Group::Products;
  using Shape = ForwardShape<A>;
  static constexpr int width = Shape::width;
  static constexpr int lanes = Shape::lanes;

 public:
  using Hooks = typename Group::Hooks;

  ForwardPass(const ForwardArguments<A>& arguments, const Hooks& hooks)
      : x_(arguments), hooks_(hooks), p_(*hooks.problem) {
    share_out(Products::max_groups);
    if (task_count() < enough_tasks || p_.head_dim + p_.value_dim > widest_heads)
      share_out(std::max(1, Products::max_groups / 2));
    mode_.soft_cap = static_cast<A>(x_.soft_cap);
    mode_.units = x_.soft_cap > 0 || hooks.scores ? ScoreUnits::natural : ScoreUnits::log2_relative;
  }

  Index task_count() const { return p_.batch * (p_.num_heads / heads_per_unit_) * blocks_; }

  /// Elements of A that one running task needs.
  Index scratch_size() const {
    return groups_ * group_size() + rounded(Shape::tile_keys * lanes) +
           rounded(3 * Shape::tile_keys * widest()) + rounded((lanes + 1) * widest());
  }

  /// The units of the maximum that a pass over some keys leaves.
  ScoreUnits units() const { return mode_.units; }

  /// Computes the rows of one task. `scratch` is aligned to 64 bytes.
  void run(Index task, A* scratch) const { run(task, scratch, {0, p_.kv_len}); }
  /// As if there were no keys but these.
  void run(Index task, A* scratch, Range keys) const {
    const Index units = p_.num_heads / heads_per_unit_;
    const Index block = task % blocks_, unit = task / blocks_ % units, batch = task / blocks_ / units;
    const Index first_row = block * task_rows_;
    const LaneRows rows{batch, unit * heads_per_unit_, p_.q_len, first_row,
                        std::min(task_rows_, unit_rows_ - first_row)};
    if (attend({rows, keys, scratch, mode_})) return;
    // 0 * NaN has reached an output: a key or value that some query does not see holds NaN or Inf.
    attend({rows, keys, scratch, {mode_.units, mode_.soft_cap, true}});
  }

 private:
  // Half as many lane groups per task where tasks would be too few to share out among threads, or where the
  // groups would not stay in the second-level cache.
  static constexpr Index enough_tasks = 64, widest_heads = 256;
  using Mode = typename Group::Mode;
  struct Task {
    LaneRows rows;
    Range keys;
    A* scratch;
    Mode mode;
  };

  /// Cuts the rows into tasks of so many lane groups.
  void share_out(int groups) {
    groups_ = groups;
    task_rows_ = Products::max_rows / Products::max_groups * groups;
    heads_per_unit_ = p_.q_len < task_rows_ ? p_.group_size() : 1;
    unit_rows_ = heads_per_unit_ * p_.q_len;
    blocks_ = (unit_rows_ + task_rows_ - 1) / task_rows_;
  }
  /// To whole cache lines.
  static constexpr Index rounded(Index elements) {
    return attn::detail::round_up(elements, 64 / static_cast<Index>(sizeof(A)));
  }
  Index widest() const { return std::max({p_.head_dim, p_.value_dim, Products::least_row}); }
  Index group_size() const { return rounded(Group::scratch_size(p_.head_dim, p_.value_dim)); }

  /// Runs all keys past the rows of a task and writes the results; false, with nothing written, if they need
  /// the careful mode and this was not it.
  bool attend(const Task& task) const {
    [[maybe_unused]] const typename Products::Unit unit;
    Group groups[as_size(Products::max_groups)];
    A* scores = task.scratch + groups_ * group_size();
    A* tile = scores + rounded(Shape::tile_keys * lanes);
    A* rows = tile + rounded(3 * Shape::tile_keys * widest());

    const int count = begin(task, groups, rows);
    const Index kv_head = p_.kv_head(task.rows.first_head);
    const RowSource<A> keys = x_.k.rows_of(task.rows.batch, kv_head);
    const RowSource<A> values = x_.v.rows_of(task.rows.batch, kv_head);
    Range visible{p_.kv_len, 0};
    for (int g = 0; g < count; ++g)
      visible = {std::min(visible.begin, groups[g].visible().begin),
                 std::max(visible.end, groups[g].visible().end)};
    visible = intersect(visible, task.keys);
    WarmUp warm_up = coming_rows(task.rows);
    Index steps = 0;
    for (int g = 0; g < count; ++g)
      steps += intersect(groups[g].visible(), visible).size() / Products::keys_together;
    warm_up.share_out(steps);
    // Tiles and chunks end at fixed keys, whoever shares the task: what others see changes no bit of a row.
    for (Index k = visible.begin; k < visible.end;) {
      const Range range{k, std::min((k / Shape::tile_keys + 1) * Shape::tile_keys, visible.end)};
      k = range.end;
      A* const value_tile = tile + Shape::tile_keys * widest();
      const auto key_rows = Products::keys(keys, range, tile);
      const auto value_rows = Products::values(values, range, task.mode.skip_zeros, value_tile,
                                               value_tile + Shape::tile_keys * widest());
      for (int g = 0; g < count; ++g)
        groups[g].attend(range, key_rows, value_rows, hooks_, task.mode, scores, warm_up);
    }

    const bool may_hide_keys = hooks_.key_range_of != nullptr;
    if (may_hide_keys && !task.mode.skip_zeros)
      for (int g = 0; g < count; ++g)
        if (!groups[g].is_finite()) return false;
    for (int g = 0; g < count; ++g) finish(groups[g], task.mode, rows);
    return true;
  }

  /// The output rows of this task, and what the next one (of the same head, or the next head) reads first.
  WarmUp coming_rows(const LaneRows& rows) const {
    WarmUp coming;
    if (heads_per_unit_ > 1) return coming;
    const Index head = rows.first_head, batch = rows.batch, next = rows.first_row + task_rows_;
    coming.add(x_.out.address(batch, head, rows.first_row), rows.count, x_.out.row_bytes(),
               x_.out.row_step());
    const auto add = [&](const RowStore<A>& x, Index of_head, Index first, Index count) {
      const RowSource<A> source = x.rows_of(batch, of_head);
      coming.add(source.address(first), std::min(count, x.len() - first), source.row_bytes(),
                 source.row_step());
    };
    if (next < p_.q_len) {
      add(x_.q, head, next, task_rows_);
    } else if (head + 1 < p_.num_heads) {
      const Index kv_head = p_.kv_head(head + 1);
      add(x_.q, head + 1, 0, task_rows_);
      if (kv_head != p_.kv_head(head)) {
        add(x_.k, kv_head, 0, Products::keys_to_warm_up);
        add(x_.v, kv_head, 0, Products::keys_to_warm_up);
      }
    }
    return coming;
  }

  /// Hands the rows of a task to lane groups, in equal numbers of packets; returns how many groups have rows.
  int begin(const Task& task, Group* groups, A* gathered) const {
    const Index packets = (task.rows.count + width - 1) / width;
    const auto count = static_cast<int>((packets + Shape::packets - 1) / Shape::packets);
    const bool natural = task.mode.units == ScoreUnits::natural;
    const A factor = static_cast<A>(natural ? x_.scale : x_.scale * log2_e);
    for (int g = 0; g < count; ++g) {
      const Index first = packets * g / count * width, last = packets * (g + 1) / count * width;
      LaneRows rows = task.rows;
      rows.first_row += first;
      rows.count = std::min(last, task.rows.count) - first;
      const A* queries[as_size(lanes)];
      for (Index i = 0; i < lanes; ++i)
        queries[i] = i < rows.count ? query_row(rows, i, gathered + i * widest()) : queries[0];
      groups[g].place(task.scratch + g * group_size(), p_.head_dim, p_.value_dim);
      groups[g].begin(rows, hooks_, factor, queries);
    }
    return count;
  }

  const A* query_row(const LaneRows& rows, Index lane, A* gathered) const {
    const Index row = rows.first_row + lane;
    return x_.q.rows_of(rows.batch, rows.head(row)).tile(rows.query(row), 1, gathered).data;
  }

  /// Normalises the outputs of a group and writes them to the caller's tensors.
  void finish(const Group& group, const Mode& mode, A* gathered) const {
    alignas(64) A factors[as_size(lanes)], logsumexps[as_size(lanes)];
    group.finish(mode, x_.sinks, factors, x_.logsumexp.data() == nullptr ? nullptr : logsumexps);
    const LaneRows& rows = group.rows();
    if (x_.maximum.data() != nullptr) {
      std::fill(factors, factors + lanes, A(1));
      keep_softmax(group);
    }
    A* const unused = gathered + lanes * widest();
    for (Index first = 0; first < rows.count; first += width) {
      A* targets[as_size(width)];
      for (Index i = 0; i < width; ++i)
        targets[i] = first + i < rows.count ? output_row(rows, first + i, gathered + i * widest()) : unused;
      group.write(first, factors, targets);
      for (Index i = first; i < std::min(first + width, rows.count); ++i)
        deliver(rows, i, targets[i - first], logsumexps + i);
    }
  }

  void keep_softmax(const Group& group) const {
    const LaneRows& rows = group.rows();
    for (Index i = 0; i < rows.count; ++i) {
      const Index row = rows.first_row + i, head = rows.head(row), query = rows.query(row);
      x_.maximum(rows.batch, head, query) = group.softmax().maximum[i];
      x_.sum(rows.batch, head, query) = group.softmax().sum[i];
    }
  }
  /// Where lanes_to_rows may write the row: the caller's memory if that can be, else `gathered`.
  A* output_row(const LaneRows& rows, Index lane, A* gathered) const {
    if (!x_.out.is_direct()) return gathered;
    const Index row = rows.first_row + lane;
    return reinterpret_cast<A*>(x_.out.address(rows.batch, rows.head(row), rows.query(row)));
  }
  void deliver(const LaneRows& rows, Index lane, const A* result, const A* logsumexp) const {
    if (x_.out.is_direct() && x_.logsumexp.data() == nullptr) return;
    const Index row = rows.first_row + lane, head = rows.head(row), query = rows.query(row);
    if (!x_.out.is_direct()) x_.out.write(result, rows.batch, head, query);
    if (x_.logsumexp.data() != nullptr) x_.logsumexp(rows.batch, head, query) = *logsumexp;
  }

  ForwardArguments<A> x_;
  Hooks hooks_;
  Problem p_;
  Mode mode_;
  int groups_ = 1;            // lane groups that share a task's key tiles
  Index task_rows_ = 0;       // at most
  Index heads_per_unit_ = 1;  // query heads that share a task because they share keys
  Index unit_rows_ = 0;       // queries of all of them
  Index blocks_ = 0;          // tasks of one unit
};

}  // namespace kernels
ATTN_NAMESPACE_END
