// attn/kernels/lane_group.hpp - LaneGroup: a few query rows that attend to one key tile at a time.
//
// Scores and weights lie as [key][lane], a lane a query row. Everything between the two products - masks,
// running maximum and sum, exponentials - is here; the products themselves are LaneProducts or RowProducts.
#pragma once
#include <cmath>
#include <span>

#include "attn/kernels/lane_products.hpp"
#include "attn/kernels/mask_hooks.hpp"
#include "attn/kernels/row_products.hpp"
#include "attn/kernels/softmax_state.hpp"
#include "attn/kernels/warm_up.hpp"

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
      Packet<A> s = load(scores + m * width);
      if constexpr (Units == ScoreUnits::natural) s = mul(sub(s, top[m]), broadcast(static_cast<A>(log2_e)));
      const Packet<A> weight = exp2(s);
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

/// Up to `lanes` query rows with their softmax state and the products over them.
template <class Products>
class LaneGroup {
  using A = typename Products::A;
  using Shape = ForwardShape<A>;
  static constexpr int width = Shape::width;
  static constexpr int lanes = Shape::lanes;
  static constexpr int max_packets = Shape::packets;

 public:
  using Hooks = MaskHooks<A, lanes>;
  /// Keys that a step of the warm-up serves, or fewer.
  static constexpr Index keys_per_step =
      Products::takes_any_count ? Shape::chunk_keys : Index{Shape::broadcasts};

  /// How one task treats scores.
  struct Mode {
    ScoreUnits units = ScoreUnits::log2_relative;
    A soft_cap = 0;
    bool skip_zeros = false;  ///< a masked key or value may hold NaN or Inf: see ForwardPass::run
  };

  /// Elements of scratch that place() needs.
  static Index scratch_size(Index head_dim, Index value_dim) {
    return lanes * SoftmaxState<A, lanes>::arrays + Products::scratch_size(head_dim, value_dim);
  }
  void place(A* scratch, Index head_dim, Index value_dim) {
    state_ = SoftmaxState<A, lanes>(scratch);
    products_.place(scratch + lanes * SoftmaxState<A, lanes>::arrays, head_dim, value_dim);
  }

  /// Starts on new rows. queries[i] points to the contiguous query of lane i (any query where lane i has no
  /// row); it is multiplied by `factor`.
  void begin(const LaneRows& rows, const Hooks& hooks, A factor, const A* const* queries) {
    rows_ = rows;
    packets_ = static_cast<int>((rows.count + width - 1) / width);
    products_.begin(queries, rows.count, packets_, factor);
    state_.reset();
    has_output_ = false;
    find_visible_keys(hooks);
  }

  const LaneRows& rows() const { return rows_; }
  /// Keys that some lane may see.
  Range visible() const { return visible_; }

  /// Adds the keys of `tile` to the softmax and the output. `scores` is scratch of tile_keys x lanes; what
  /// `warm_up` holds is asked for by a step at each block of keys.
  void attend(Range tile, const typename Products::Keys& keys, const typename Products::Values& values,
              const Hooks& hooks, const Mode& mode, A* scores, WarmUp& warm_up) {
    const Range seen = intersect(visible_, tile);
    if (seen.empty()) return;
    const Coverage coverage = coverage_of(hooks, 0, rows_.count, seen);
    if (coverage == Coverage::none) return;

    first_key_ = seen.begin;
    scores_ = scores;
    warm_up_ = &warm_up;
    const typename Products::Keys known = keys.from(seen.begin - tile.begin);
    for (Index key = seen.begin; key < seen.end;) {
      const Index end = std::min((key / Shape::chunk_keys + 1) * Shape::chunk_keys, seen.end);
      score_chunk({key - seen.begin, end - seen.begin}, known.from(key - seen.begin),
                  coverage == Coverage::partial, hooks, mode);
      key = end;
    }
    has_output_ = true;
    const Range all{0, seen.size()};
    for_equal_packets(
        all, [&](Range run, int first, auto count) { exponentiate_run<count>(run, first, mode.units); });
    if (hooks.weights) edit(all, hooks.weights, hooks);
    for_equal_packets(all, [&](Range run, int first, auto count) {
      products_.template add_values<count>(first, row(run.begin), values, seen.begin - tile.begin + run.begin,
                                           run.size(), mode.skip_zeros);
    });
  }

  /// Scores of all keys of `tile` at a stage, to scores[key][lane]; for weights, `logsumexps` are the lanes'
  /// results of a finished pass, and the weights are added to `sums`. Mode: natural units.
  void score_tile(Range tile, const TileRows<A>& keys, const Hooks& hooks, A soft_cap, ScoreStage stage,
                  const A* logsumexps, A* sums, A* scores) {
    first_key_ = tile.begin;
    scores_ = scores;
    alignas(64) A ignored[as_size(lanes)];
    std::fill(ignored, ignored + lanes, A(0));
    with_constant<max_packets>(packets_, [&](auto count) ATTN_LAMBDA_INLINE {
      products_.template score<count>(0, keys, tile.size(), state_.start, row(0), ignored, [] {});
    });
    if (stage >= ScoreStage::capped && soft_cap > 0) cap_scores(scores, tile.size() * lanes, soft_cap);
    if (stage < ScoreStage::biased) return;
    const Range all{0, tile.size()};
    for (Index k = 0; hooks.scores && k < tile.size(); k += Shape::chunk_keys)
      change_poisoned_scores({k, std::min(k + Shape::chunk_keys, tile.size())}, hooks);
    if (hooks.filter) edit(all, hooks.filter, hooks);
    if (stage != ScoreStage::weights) return;
    alignas(64) A base[as_size(lanes)];
    for (int i = 0; i < lanes; ++i)
      base[i] = i < rows_.count && logsumexps[i] != masked_score<A> ? logsumexps[i] : A(0);
    exponentiate<A, max_packets, lanes, ScoreUnits::natural>(tile.size(), scores, base, sums);
  }

  /// Every output is a finite number (and so no NaN of a masked key has come in).
  bool is_finite() const { return products_.is_finite(); }

  /// The maximum and sum of each lane.
  const SoftmaxState<A, lanes>& softmax() const { return state_; }
  /// factors[i] = what lane i's output is to be multiplied by; logsumexps[i] is its result, if that is not
  /// null.
  void finish(const Mode& mode, std::span<const double> sinks, A* factors, A* logsumexps) const {
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
  /// rows[i] = factors[first + i] * output of lane first + i, for one packet of lanes.
  void write(Index first, const A* factors, A* const* rows) const {
    products_.write(first, factors + first, rows);
  }

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

  Coverage coverage_of(const Hooks& hooks, Index begin, Index end, Range keys) const {
    bool none = true, full = true;
    rows_.for_runs(begin, end, [&](Index, Index n, Index head, Index query) {
      const Coverage c = hooks.coverage({rows_.batch, head, {query, query + n}, keys});
      none = none && c == Coverage::none;
      full = full && c == Coverage::full;
    });
    return full ? Coverage::full : none ? Coverage::none : Coverage::partial;
  }

  Coverage chunk_coverage(const Hooks& hooks, Range chunk) const {
    return coverage_of(hooks, 0, rows_.count, {first_key_ + chunk.begin, first_key_ + chunk.end});
  }

  /// Packets [first, first + count) that may see a key of [k, k + n), numbered from the first key of the
  /// tile.
  struct Packets {
    int first, count;
    friend bool operator==(const Packets&, const Packets&) = default;
  };
  Packets packets_that_see(Index k, Index n) const {
    if (intersect(common_, {first_key_ + k, first_key_ + k + n}).size() == n) return {0, packets_};
    int first = packets_, last = -1;
    for (int m = 0; m < packets_; ++m) {
      if (intersect(packet_keys_[m], {first_key_ + k, first_key_ + k + n}).empty()) continue;
      first = std::min(first, m);
      last = m;
    }
    return {first, std::max(0, last - first + 1)};
  }

  /// f(run, first, std::integral_constant<int, count>) for each longest run of keys that the same packets
  /// see.
  template <class F>
  void for_equal_packets(Range keys, F f) const {
    if (intersect(common_, {first_key_ + keys.begin, first_key_ + keys.end}).size() == keys.size())
      return with_constant<max_packets>(packets_, [&](auto count) ATTN_LAMBDA_INLINE { f(keys, 0, count); });
    Range run{keys.begin, keys.begin};
    Packets current{0, 0};
    const auto flush = [&] {
      if (!run.empty() && current.count > 0)
        with_constant<max_packets>(current.count,
                                   [&](auto count) ATTN_LAMBDA_INLINE { f(run, current.first, count); });
    };
    const Index step = Products::takes_any_count ? keys.size() : Shape::broadcasts;
    for (Index k = keys.begin; k < keys.end; k = run.end) {
      const Index n = std::min(step, keys.end - k);
      if (const Packets active = packets_that_see(k, n); !(active == current)) {
        flush();
        run.begin = k;
        current = active;
      }
      run.end = k + n;
    }
    flush();
  }

  void score_chunk(Range chunk, const typename Products::Keys& keys, bool partial, const Hooks& hooks,
                   const Mode& mode) {
    alignas(64) A highest[as_size(lanes)];
    std::fill(highest, highest + lanes, masked_score<A>);
    for_equal_packets(chunk, [&](Range run, int first, auto count) {
      products_.template score<count>(first, keys.from(run.begin - chunk.begin), run.size(), state_.start,
                                      row(run.begin), highest, [this] { warm_up_->step(); });
    });
    const bool filters = partial && hooks.filter && chunk_coverage(hooks, chunk) != Coverage::full;
    if (mode.units == ScoreUnits::natural || filters) {
      apply_mask(chunk, filters, hooks, mode);
      find_highest(chunk, highest);
    }
    if (state_.exceeded_by(highest)) raise(highest, chunk.end, mode.units);
  }

  void apply_mask(Range chunk, bool filters, const Hooks& hooks, const Mode& mode) {
    if (mode.soft_cap > 0) cap_scores(row(chunk.begin), chunk.size() * lanes, mode.soft_cap);
    if (hooks.scores) {
      if (mode.skip_zeros)
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
    for_equal_packets(chunk, [&](Range run, int first, auto count) {
      unroll<count>([&](auto m) ATTN_LAMBDA_INLINE {
        const int lane = (first + m) * width;
        Packet<A> top = load(highest + lane);
        for (Index k = run.begin; k < run.end; ++k) top = max(top, load(row(k) + lane));
        store(highest + lane, top);
      });
    });
  }

  /// Gives lanes whose scores exceed their ceiling a new maximum: what was gathered under the old one is
  /// rescaled.
  ATTN_NOINLINE void raise(const A* highest, Index scored, ScoreUnits units) {
    alignas(64) A factor[as_size(lanes)], rise[as_size(lanes)];
    state_.raise(highest, units, factor, rise);
    if (has_output_) products_.rescale(factor, packets_);
    if (units == ScoreUnits::natural) return;
    for (int m = 0; m < packets_; ++m) {
      const Packet<A> down = load(rise + m * width);
      for (Index k = 0; k < scored; ++k) {
        A* const s = row(k) + m * width;
        store(s, sub(load(s), down));
      }
    }
  }

  template <int Count>
  void exponentiate_run(Range run, int first, ScoreUnits units) {
    const int lane = first * width;
    const auto to_weights = units == ScoreUnits::natural
                                ? exponentiate<A, Count, lanes, ScoreUnits::natural>
                                : exponentiate<A, Count, lanes, ScoreUnits::log2_relative>;
    to_weights(run.size(), row(run.begin) + lane, state_.maximum + lane, state_.sum + lane);
  }

  A* row(Index key) const { return scores_ + key * lanes; }

  Products products_;
  SoftmaxState<A, lanes> state_;
  LaneRows rows_;
  int packets_ = 0;
  bool has_output_ = false;  // or all of it is 0
  Range visible_{};          // keys that some lane may see
  Range common_{};           // keys that a lane of every packet may see
  Range packet_keys_[as_size(max_packets)]{};
  Index first_key_ = 0;
  A* scores_ = nullptr;
  WarmUp* warm_up_ = nullptr;
};

}  // namespace kernels
ATTN_NAMESPACE_END
