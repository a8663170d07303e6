// attn/kernels/lane_group.hpp - LaneGroup: a few query rows, one per vector lane, that attend to one key tile
// at a time.
//
// What happens to scores between the two products is LaneScores; the products themselves are LaneProducts,
// PairProducts or MatrixProducts.
#pragma once
#include "attn/kernels/lane_products.hpp"
#include "attn/kernels/query_group.hpp"
#include "attn/kernels/warm_up.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Up to `lanes` query rows with their softmax state and the products over them.
template <class Products>
class LaneGroup : public QueryGroup<Products> {
  using Base = QueryGroup<Products>;
  using Base::has_output_;
  using Base::lanes;
  using Base::products_;
  using typename Base::A;
  using typename Base::Shape;

 public:
  using typename Base::Hooks;
  using typename Base::Mode;

  /// Adds the keys of `tile` to the softmax and the output. `scores` is scratch of tile_keys x lanes; what
  /// `warm_up` holds is asked for by a step at each block of keys.
  void attend(Range tile, const typename Products::Keys& keys, const typename Products::Values& values,
              const Hooks& hooks, const Mode& mode, A* scores, WarmUp& warm_up) {
    const Range seen = intersect(this->visible(), tile);
    const Coverage coverage = this->coverage_of(hooks, seen);
    if (coverage == Coverage::none) return;

    this->begin_tile(seen.begin, scores);
    const typename Products::Keys known = keys.from(seen.begin - tile.begin);
    for (Index key = seen.begin; key < seen.end;) {
      const Index end = std::min((key / Shape::chunk_keys + 1) * Shape::chunk_keys, seen.end);
      score_chunk({key - seen.begin, end - seen.begin}, known.from(key - seen.begin),
                  coverage == Coverage::partial, hooks, mode, warm_up);
      key = end;
    }
    has_output_ = true;
    const Range all{0, seen.size()};
    this->exponentiate_all(all, mode.units);
    if (hooks.weights) this->edit(all, hooks.weights, hooks);
    this->template for_equal_packets<Products::max_packets>(all, [&](Range run, int first, auto count) {
      products_.template add_values<count>(first, this->row(run.begin), values,
                                           seen.begin - tile.begin + run.begin, run.size(), mode.skip_zeros);
    });
  }

  /// Scores of all keys of `tile` at a stage, to scores[key][lane]; for weights, `logsumexps` are the lanes'
  /// results of a finished pass, and the weights are added to `sums`. Mode: natural units.
  void score_tile(Range tile, const TileRows<A>& keys, const Hooks& hooks, A soft_cap, ScoreStage stage,
                  const A* logsumexps, A* sums, A* scores) {
    this->begin_tile(tile.begin, scores);
    alignas(64) A ignored[as_size(lanes)];
    std::fill(ignored, ignored + lanes, A(0));
    with_constant<Products::max_packets>(this->packets_, [&](auto count) ATTN_LAMBDA_INLINE {
      products_.template score<count>(0, keys, tile.size(), this->state_.start, this->row(0), ignored, [] {});
    });
    if (stage >= ScoreStage::capped && soft_cap > 0) this->cap_scores(scores, tile.size() * lanes, soft_cap);
    if (stage < ScoreStage::biased) return;
    const Range all{0, tile.size()};
    for (Index k = 0; hooks.scores && k < tile.size(); k += Shape::chunk_keys)
      this->change_poisoned_scores({k, std::min(k + Shape::chunk_keys, tile.size())}, hooks);
    if (hooks.filter) this->edit(all, hooks.filter, hooks);
    if (stage != ScoreStage::weights) return;
    alignas(64) A base[as_size(lanes)];
    for (int i = 0; i < lanes; ++i)
      base[i] = i < this->rows_.count && logsumexps[i] != masked_score<A> ? logsumexps[i] : A(0);
    exponentiate<A, Shape::packets, lanes, ScoreUnits::natural>(tile.size(), scores, base, sums);
  }

 private:
  void score_chunk(Range chunk, const typename Products::Keys& keys, bool partial, const Hooks& hooks,
                   const Mode& mode, WarmUp& warm_up) {
    alignas(64) A highest[as_size(lanes)], factor[as_size(lanes)];
    std::fill(highest, highest + lanes, masked_score<A>);
    this->template for_equal_packets<Products::max_packets>(chunk, [&](Range run, int first, auto count) {
      products_.template score<count>(first, keys.from(run.begin - chunk.begin), run.size(),
                                      this->state_.start, this->row(run.begin), highest,
                                      [&] { warm_up.step(); });
    });
    const bool filters = partial && hooks.filter && this->chunk_coverage(hooks, chunk) != Coverage::full;
    if (mode.units == ScoreUnits::natural || filters) {
      this->apply_mask(chunk, filters, hooks, mode);
      this->find_highest(chunk, highest);
    }
    if (!this->state_.exceeded_by(highest)) return;
    this->raise(highest, chunk.end, mode.units, factor);
    if (has_output_) products_.rescale(factor, this->packets_);
  }
};

}  // namespace kernels
ATTN_NAMESPACE_END
