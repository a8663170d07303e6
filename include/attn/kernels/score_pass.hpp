// attn/kernels/score_pass.hpp - the scores or weights of all pairs, as a
// matrix, from the fused kernel's own pieces.
#pragma once
#include "attn/kernels/flash_forward.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Writes scores [batch, num_heads, q_len, kv_len] at a stage. arguments.logsumexp holds the results of a
/// finished pass (read for ScoreStage::weights only); arguments.v and arguments.out are not touched.
template <class A>
class ScorePass {
  using Shape = ForwardShape<A>;
  static constexpr Index lanes = Shape::lanes;
  static constexpr Index width = Shape::width;

 public:
  using Hooks = typename LaneGroup<LaneProducts<A>>::Hooks;

  ScorePass(const ForwardArguments<A>& arguments, const Hooks& hooks, ScoreStage stage,
            const TensorView<A, 4>& scores)
      : x_(arguments), hooks_(hooks), p_(*hooks.problem), stage_(stage), scores_(scores) {}

  Index task_count() const { return p_.batch * p_.num_heads * groups(); }
  /// Elements of A that one running task needs.
  Index scratch_size() const {
    return LaneGroup<LaneProducts<A>>::scratch_size(p_.head_dim, 0) + lanes * p_.head_dim +
           (2 * lanes + p_.head_dim) * Shape::tile_keys + 64;
  }

  void run(Index task, A* scratch) const {
    const Index first = task % groups() * lanes, head = task / groups() % p_.num_heads;
    const LaneRows rows{task / groups() / p_.num_heads, head, p_.q_len, first,
                        std::min(lanes, p_.q_len - first)};
    A* const gathered = scratch + LaneGroup<LaneProducts<A>>::scratch_size(p_.head_dim, 0);
    A* const scores = gathered + lanes * p_.head_dim;
    A* const transposed = scores + lanes * Shape::tile_keys;
    A* const key_rows = transposed + lanes * Shape::tile_keys;

    LaneGroup<LaneProducts<A>> group;
    group.place(scratch, p_.head_dim, 0);
    const RowSource<A> queries = x_.q.rows_of(rows.batch, head);
    const RowSource<A> keys = x_.k.rows_of(rows.batch, p_.kv_head(head));
    const A* query_rows[as_size(lanes)];
    alignas(64) A logsumexps[as_size(lanes)] = {}, sums[as_size(lanes)] = {};
    for (Index i = 0; i < lanes; ++i) {
      query_rows[i] =
          i < rows.count ? queries.tile(first + i, 1, gathered + i * p_.head_dim).data : query_rows[0];
      if (i < rows.count && stage_ == ScoreStage::weights)
        logsumexps[i] = x_.logsumexp(rows.batch, head, first + i);
    }
    group.begin(rows, hooks_, static_cast<A>(x_.scale), query_rows);
    for (Index k = 0; k < p_.kv_len; k += Shape::tile_keys) {
      const Range tile{k, std::min(k + Shape::tile_keys, p_.kv_len)};
      group.score_tile(tile, keys.tile(k, tile.size(), key_rows), hooks_, static_cast<A>(x_.soft_cap), stage_,
                       logsumexps, sums, scores);
      write(rows, tile, scores, transposed);
    }
    if (stage_ == ScoreStage::weights) normalize(rows, logsumexps, sums);
  }

 private:
  Index groups() const { return (p_.q_len + lanes - 1) / lanes; }

  void write(const LaneRows& rows, Range tile, const A* scores, A* transposed) const {
    alignas(64) A ones[as_size(lanes)];
    std::fill(ones, ones + lanes, A(1));
    for (Index first = 0; first < rows.count; first += width) {
      A* targets[as_size(width)];
      for (Index i = 0; i < width; ++i) targets[i] = transposed + i * Shape::tile_keys;
      lanes_to_rows(scores + first, lanes, ones, tile.size(), targets);
      for (Index i = 0; i < std::min(width, rows.count - first); ++i)
        copy_row(targets[i], 1, tile.size(),
                 &scores_(rows.batch, rows.first_head, rows.first_row + first + i, tile.begin),
                 scores_.stride(3));
    }
  }

  /// Divides each row by its sum, the sink included. A logsumexp is rounded in proportion to its size, which
  /// gives all weights of a row one wrong factor: up to the number of keys, if each has a bias of -1e9.
  void normalize(const LaneRows& rows, const A* logsumexps, const A* sums) const {
    const Index head = rows.first_head;
    for (Index i = 0; i < rows.count; ++i) {
      const A sink = x_.sinks.empty() ? masked_score<A> : static_cast<A>(x_.sinks[as_size(head)]);
      const A total = sums[i] + (sink == masked_score<A> ? A(0) : std::exp(sink - logsumexps[i]));
      if (total == A(0)) continue;  // it sees no key
      A* const row = &scores_(rows.batch, head, rows.first_row + i, 0);
      for (Index k = 0; k < p_.kv_len; ++k) row[k * scores_.stride(3)] /= total;
    }
  }

  ForwardArguments<A> x_;
  Hooks hooks_;
  Problem p_;
  ScoreStage stage_;
  TensorView<A, 4> scores_;
};

}  // namespace kernels
ATTN_NAMESPACE_END
