// attn/kernels/lane_scores.hpp - LaneScores: the scores of a few query rows against one key tile at a time,
// from where a product left them to the weights that the next one takes.
//
// Scores and weights lie as [key][lane], a lane a query row. Masks, running maximum and sum and exponentials
// are here, whatever computes the products.
#pragma once
#include <cmath>
#include <span>

#include "attn/kernels/forward_shape.hpp"
#include "attn/kernels/mask_hooks.hpp"
#include "attn/kernels/softmax_state.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Turns `count` rows of scores into weights 2^(score - maximum), in place, and adds them to the sums.
template <class A, int Packets, int Lanes, ScoreUnits Units>
ATTN_NOINLINE void exponentiate(Index count, A* ATTN_RESTRICT scores, const A* ATTN_RESTRICT maximum,
                                A* ATTN_RESTRICT sum) {
  constexpr int width = packet_width<A>;
  Packet<A> top[as_size(Packets)], total[as_size(Packets)];
  unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
    top[m] = load(maximum + m * width);
    total[m] = load(sum + m * width);
  });
  for (Index k = 0; k < count; ++k) {
    unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
      const Packet<A> weight = weight_of<Units>(load(scores + m * width), top[m]);
      total[m] = add(total[m], weight);
      store(scores + m * width, weight);
    });
    scores += Lanes;
  }
  unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE { store(sum + m * width, total[m]); });
}

/// The queries that one lane group works on: folded rows of a task (head-major), and which keys they may see.
struct LaneRows {
  Index batch = 0;
  Index first_head = 0;  ///< head of folded row 0 of the task
  Index q_len = 0;       ///< rows of one head
  Index first_row = 0;   ///< folded row of lane 0
  Index count = 0;       ///< lanes that have a row

  Index head(Index row) const { return first_head + row / q_len; }
  Index query(Index row) const { return row % q_len; }

  /// f(lane, n, head, query) for each run of lanes [lane, lane + n) that are consecutive queries of one head.
  template <class F>
  void for_runs(Index begin, Index end, F f) const {
    for (Index lane = begin; lane < end;) {
      const Index row = first_row + lane, n = std::min(end - lane, q_len - query(row));
      f(lane, n, head(row), query(row));
      lane += n;
    }
  }
};

/// Up to `lanes` query rows with their masks and softmax state.
template <class A>
class LaneScores {
 protected:
  using Shape = ForwardShape<A>;
  static constexpr int width = Shape::width;
  static constexpr int lanes = Shape::lanes;
  static constexpr int max_packets = Shape::packets;

 public:
  using Hooks = MaskHooks<A, lanes>;

  /// How one task treats scores.
  struct Mode {
    ScoreUnits units = ScoreUnits::log2_relative;
    A soft_cap = 0;
    bool skip_zeros = false;  ///< a masked key or value may hold NaN or Inf: see ForwardPass::run
  };

  /// keys_together: keys that the products score at once, which packets are told apart by.
  explicit LaneScores(Index keys_together) : keys_together_(keys_together) {}

  const LaneRows& rows() const { return rows_; }
  /// Keys that some lane may see.
  Range visible() const { return visible_; }

  /// The maximum and sum of each lane.
  const SoftmaxState<A, lanes>& softmax() const { return state_; }
  /// factors[i] = what lane i's output is to be multiplied by; logsumexps[i] is its result, if that is not
  /// null.
  ATTN_NOINLINE void finish(const Mode& mode, std::span<const double> sinks, A* factors,
                            A* logsumexps) const {
    for (int i = 0; i < lanes; ++i) factors[i] = state_.sum[i] == A(0) ? A(0) : A(1) / state_.sum[i];
    if (logsumexps == nullptr && sinks.empty()) return;
    for (int i = 0; i < lanes; ++i) {
      A result = state_.logsumexp(i, mode.units);
      if (!sinks.empty() && i < rows_.count) {
        const A sink = static_cast<A>(sinks[static_cast<std::size_t>(rows_.head(rows_.first_row + i))]);
        const A with_sink = log_add(result, sink);
        if (with_sink != masked_score<A>)  // the sink is in the denominator only
          factors[i] *= std::exp(result - with_sink);
        result = with_sink;
      }
      if (logsumexps != nullptr) logsumexps[i] = result;
    }
  }

 protected:
  void begin(const LaneRows& rows, const Hooks& hooks) {
    rows_ = rows;
    packets_ = static_cast<int>((rows.count + width - 1) / width);
    state_.reset();
    find_visible_keys(hooks);
  }

  /// The keys at `scores`, numbered from 0, are those from `first_key` on.
  void begin_tile(Index first_key, A* scores) {
    first_key_ = first_key;
    scores_ = scores;
  }

  ATTN_NOINLINE Coverage coverage_of(const Hooks& hooks, Range keys) const {
    if (keys.empty()) return Coverage::none;
    bool none = true, full = true;
    rows_.for_runs(0, rows_.count, [&](Index, Index n, Index head, Index query) {
      const Coverage c = hooks.coverage({rows_.batch, head, {query, query + n}, keys});
      none = none && c == Coverage::none;
      full = full && c == Coverage::full;
    });
    return full ? Coverage::full : none ? Coverage::none : Coverage::partial;
  }

  Coverage chunk_coverage(const Hooks& hooks, Range chunk) const {
    return coverage_of(hooks, {first_key_ + chunk.begin, first_key_ + chunk.end});
  }

  /// f(run, first, std::integral_constant<int, count>) for each longest run of keys that the same packets,
  /// [first, first + count), see.
  template <int MaxPackets, class F>
  void for_equal_packets(Range keys, F f) const {
    for_runs(keys, [&](Range run, int first, int packets) ATTN_LAMBDA_INLINE {
      with_constant<MaxPackets>(packets, [&](auto count) ATTN_LAMBDA_INLINE { f(run, first, count); });
    });
  }

  void apply_mask(Range chunk, bool filters, const Hooks& hooks, const Mode& mode) {
    if (mode.soft_cap > 0) cap_scores(row(chunk.begin), chunk.size() * lanes, mode.soft_cap);
    edit_scores(chunk, filters, hooks, mode.skip_zeros);
  }

  /// The stages of the mask that act on scores.
  void edit_scores(Range chunk, bool filters, const Hooks& hooks, bool careful) {
    if (hooks.scores) {
      if (careful)
        change_poisoned_scores(chunk, hooks);
      else
        edit(chunk, hooks.scores, hooks);
    }
    if (filters) edit(chunk, hooks.filter, hooks);
  }

  static void cap_scores(A* scores, Index size, A cap) {
    const Packet<A> up = broadcast(cap), down = broadcast(1 / cap);
    for (Index i = 0; i < size; i += width) store(scores + i, mul(up, tanh(mul(load(scores + i), down))));
  }

  /// A score change may mask a pair, by -inf. If it does so whatever the score, a NaN from the key is masked
  /// as well.
  void change_poisoned_scores(Range chunk, const Hooks& hooks) {
    A* const s = row(chunk.begin);
    const Index size = chunk.size() * lanes;
    alignas(64) A raw[as_size(Shape::chunk_keys * lanes)];
    std::copy(s, s + size, raw);
    for (Index i = 0; i < size; ++i) s[i] = std::isfinite(raw[i]) ? raw[i] : A(0);
    edit(chunk, hooks.scores, hooks);
    for (Index i = 0; i < size; ++i)
      if (!std::isfinite(raw[i]) && s[i] != masked_score<A>) s[i] = raw[i];
  }

  /// Calls one stage of the mask for each run of lanes that are queries of one head.
  using Stage = void (*)(const void*, const typename Hooks::Block&, const Problem&);
  void edit(Range keys, Stage stage, const Hooks& hooks) const {
    rows_.for_runs(0, rows_.count, [&](Index lane, Index n, Index head, Index query) {
      stage(hooks.mask,
            {row(keys.begin) + lane, static_cast<Position>(n), static_cast<Position>(keys.size()),
             rows_.batch, head, static_cast<Position>(query), static_cast<Position>(first_key_ + keys.begin)},
            *hooks.problem);
    });
  }

  void find_highest(Range chunk, A* highest) const {
    std::fill(highest, highest + lanes, masked_score<A>);
    for_runs(chunk, [&](Range run, int first, int packets) {
      for (int lane = first * width; lane < (first + packets) * width; lane += width) {
        Packet<A> top = load(highest + lane);
        for (Index k = run.begin; k < run.end; ++k) top = max(top, load(row(k) + lane));
        store(highest + lane, top);
      }
    });
  }

  /// Gives lanes whose scores exceed their ceiling a new maximum; what was gathered under the old one is to
  /// be multiplied by `factor`.
  ATTN_NOINLINE void raise(const A* highest, Index scored, ScoreUnits units, A* factor) {
    alignas(64) A rise[as_size(lanes)];
    state_.raise(highest, units, factor, rise);
    if (units == ScoreUnits::natural) return;
    for (int m = 0; m < packets_; ++m) {
      const Packet<A> down = load(rise + m * width);
      for (Index k = 0; k < scored; ++k) {
        A* const s = row(k) + m * width;
        store(s, sub(load(s), down));
      }
    }
  }

  /// Scores become weights.
  void exponentiate_all(Range keys, ScoreUnits units) {
    for_equal_packets<max_packets>(keys, [&](Range run, int first, auto count) {
      const int lane = first * width;
      const auto to_weights = units == ScoreUnits::natural
                                  ? exponentiate<A, count, lanes, ScoreUnits::natural>
                                  : exponentiate<A, count, lanes, ScoreUnits::log2_relative>;
      to_weights(run.size(), row(run.begin) + lane, state_.maximum + lane, state_.sum + lane);
    });
  }

  A* row(Index key) const { return scores_ + key * lanes; }

  SoftmaxState<A, lanes> state_;
  LaneRows rows_;
  int packets_ = 0;

 private:
  void find_visible_keys(const Hooks& hooks) {
    visible_ = {hooks.problem->kv_len, 0};
    for (int m = 0; m < packets_; ++m) {
      Range& keys = packet_keys_[m];
      keys = {hooks.problem->kv_len, 0};
      rows_.for_runs(m * width, std::min<Index>((m + 1) * width, rows_.count),
                     [&](Index, Index n, Index head, Index query) {
                       const Range r = hooks.key_range({rows_.batch, head, {query, query + n}, {0, 0}});
                       if (r.empty()) return;
                       keys = {std::min(keys.begin, r.begin), std::max(keys.end, r.end)};
                     });
      visible_ = {std::min(visible_.begin, keys.begin), std::max(visible_.end, keys.end)};
    }
    common_ = visible_;
    for (int m = 0; m < packets_; ++m) common_ = intersect(common_, packet_keys_[m]);
  }

  /// Packets [first, first + count) that may see keys, numbered from the first key of the tile.
  struct Packets {
    int first, count;
    friend bool operator==(const Packets&, const Packets&) = default;
  };
  Packets packets_that_see(Range keys) const {
    const Range tile{first_key_ + keys.begin, first_key_ + keys.end};
    if (intersect(common_, tile).size() == keys.size()) return {0, packets_};
    int first = packets_, last = -1;
    for (int m = 0; m < packets_; ++m) {
      if (intersect(packet_keys_[m], tile).empty()) continue;
      first = std::min(first, m);
      last = m;
    }
    return {first, std::max(0, last - first + 1)};
  }

  /// The longest run from keys.begin on that the same packets see.
  struct Run {
    Range keys;
    Packets packets;
  };
  ATTN_NOINLINE Run first_run(Range keys) const {
    if (intersect(common_, {first_key_ + keys.begin, first_key_ + keys.end}).size() == keys.size())
      return {keys, {0, packets_}};
    const auto step = [&](Index k) { return Range{k, std::min(k + keys_together_, keys.end)}; };
    Range next = step(keys.begin);
    Run run{{keys.begin, keys.begin}, packets_that_see(next)};
    do {
      run.keys.end = next.end;
      next = step(next.end);
    } while (!next.empty() && packets_that_see(next) == run.packets);
    return run;
  }
  /// f(run, first, count) for each run that some packets see.
  template <class F>
  ATTN_ALWAYS_INLINE void for_runs(Range keys, F f) const {
    while (!keys.empty()) {
      const Run run = first_run(keys);
      if (run.packets.count > 0) f(run.keys, run.packets.first, run.packets.count);
      keys.begin = run.keys.end;
    }
  }

  Index keys_together_;
  Range visible_{};  // keys that some lane may see
  Range common_{};   // keys that a lane of every packet may see
  Range packet_keys_[as_size(max_packets)]{};
  Index first_key_ = 0;
  A* scores_ = nullptr;
};

}  // namespace kernels
ATTN_NAMESPACE_END
