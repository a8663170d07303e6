// attn/kernels/row_group.hpp - RowGroup: a handful of query rows, as in decoding, that attend to one key tile
// at a time.
//
// Scores and weights lie as [row][key], so that a packet of exponentials is of several keys. A mask is shown
// the lanes that it knows, of a copy: chunks that it does not touch are not copied.
#pragma once
#include <array>

#include "attn/kernels/query_group.hpp"
#include "attn/kernels/row_products.hpp"
#include "attn/kernels/warm_up.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Turns `count` scores of each row, whole packets, into weights 2^(score - maximum), in place, and adds them
/// to the sums.
template <class A, ScoreUnits Units>
ATTN_NOINLINE void exponentiate_rows(Index rows, Index count, A* scores, Index row_stride, const A* maximum,
                                     A* sum) {
  constexpr int width = packet_width<A>;
  for (Index r = 0; r < rows; ++r, scores += row_stride) {
    Packet<A> total = broadcast(A(0));
    for (Index k = 0; k < count; k += width) {
      const Packet<A> weight = weight_of<Units>(load(scores + k), broadcast(maximum[r]));
      total = add(total, weight);
      store(scores + k, weight);
    }
    sum[r] += sum_of_lanes(total);
  }
}

/// Up to RowProducts::max_rows query rows with their softmax state and the products over them.
template <class A>
class RowGroup : public QueryGroup<RowProducts<A>> {
  using Base = QueryGroup<RowProducts<A>>;
  using Base::has_output_;
  using Base::lanes;
  using Base::products_;
  using Base::rows_;
  using Base::state_;
  using Base::width;
  using typename Base::Shape;
  static constexpr Index row_stride = RowProducts<A>::row_stride;

 public:
  using typename Base::Hooks;
  using typename Base::Mode;
  using typename Base::Products;

  /// As LaneGroup::attend.
  void attend(Range tile, const typename Products::Keys& keys, const typename Products::Values& values,
              const Hooks& hooks, const Mode& mode, A* scores, WarmUp& warm_up) {
    const Range seen = intersect(this->visible(), tile);
    const Coverage coverage = this->coverage_of(hooks, seen);
    if (coverage == Coverage::none) return;

    // A key has its fixed place in a row, whatever is seen before it, and so in the order of the sums.
    scores_ = scores;
    tile_begin_ = seen.begin / Shape::tile_keys * Shape::tile_keys;
    const Range keys_seen{seen.begin - tile_begin_, seen.end - tile_begin_};
    packets_seen_ = {keys_seen.begin / width * width, attn::detail::round_up(keys_seen.end, Index{width})};

    alignas(64) A highest[as_size(lanes)];
    std::fill(highest, highest + lanes, masked_score<A>);
    warm_up.step();
    products_.score(keys.from(seen.begin - tile.begin), seen.size(), state_.start, row(0) + keys_seen.begin,
                    highest);
    for (Index r = 0; mode.soft_cap > 0 && r < rows_.count; ++r)
      this->cap_scores(row(r) + packets_seen_.begin, packets_seen_.size(), mode.soft_cap);
    mask_around(keys_seen);
    const bool filters = coverage == Coverage::partial && hooks.filter;
    if (mode.units == ScoreUnits::natural || filters) {
      apply_mask(keys_seen, filters, hooks, mode);
      find_highest(highest);
    }
    if (state_.exceeded_by(highest)) raise(highest, mode.units);
    exponentiate(mode.units);
    if (hooks.weights)
      for_chunks(
          keys_seen, [&](Range) { return true; },
          [&](Range chunk) { this->edit(chunk, hooks.weights, hooks); });
    products_.add_values(row(0) + keys_seen.begin, values, seen.begin - tile.begin, seen.size(),
                         mode.skip_zeros);
    has_output_ = true;
  }

 private:
  A* row(Index r) const { return scores_ + r * row_stride; }

  /// What stands before and behind `keys` in their packets is no score.
  void mask_around(Range keys) {
    constexpr auto numbers = [] {
      std::array<A, as_size(width)> places{};
      for (int i = 0; i < width; ++i) places[as_size(i)] = static_cast<A>(i);
      return places;
    }();
    const Packet<A> place = load(numbers.data()), masked = broadcast(masked_score<A>);
    const Index last = packets_seen_.end - width;
    const Packet<A> is_before = less(place, broadcast(static_cast<A>(keys.begin - packets_seen_.begin)));
    const Packet<A> is_seen = less(place, broadcast(static_cast<A>(keys.end - last)));
    for (Index r = 0; r < rows_.count; ++r) {
      A *const first_packet = row(r) + packets_seen_.begin, *const last_packet = row(r) + last;
      store(first_packet, select(is_before, masked, load(first_packet)));
      store(last_packet, select(is_seen, load(last_packet), masked));
    }
  }

  void apply_mask(Range keys, bool filters, const Hooks& hooks, const Mode& mode) {
    bool filters_chunk = false;
    for_chunks(
        keys,
        [&](Range chunk) {
          filters_chunk = filters && this->coverage_of(hooks, chunk) != Coverage::full;
          return filters_chunk || hooks.scores;
        },
        [&](Range chunk) { this->edit_scores(chunk, filters_chunk, hooks, mode.skip_zeros); });
  }

  /// edit(chunk) for each chunk of the tile with wanted(keys): it finds them as [key][lane], numbered from 0.
  template <class Wanted, class Edit>
  void for_chunks(Range keys, Wanted wanted, Edit edit) {
    alignas(64) A block[as_size(Shape::chunk_keys * lanes)] = {};
    for (Index k = keys.begin, end; k < keys.end; k = end) {
      end = std::min((k / Shape::chunk_keys + 1) * Shape::chunk_keys, keys.end);
      if (!wanted(Range{tile_begin_ + k, tile_begin_ + end})) continue;
      for (Index r = 0; r < rows_.count; ++r)
        for (Index i = k; i < end; ++i) block[(i - k) * lanes + r] = row(r)[i];
      this->begin_tile(tile_begin_ + k, block);
      edit(Range{0, end - k});
      for (Index r = 0; r < rows_.count; ++r)
        for (Index i = k; i < end; ++i) row(r)[i] = block[(i - k) * lanes + r];
    }
  }

  void find_highest(A* highest) const {
    for (Index r = 0; r < rows_.count; ++r) {
      Packet<A> top = broadcast(masked_score<A>);
      for (Index k = packets_seen_.begin; k < packets_seen_.end; k += width) top = max(top, load(row(r) + k));
      highest[r] = max_of_lanes(top);
    }
  }

  /// Rows whose scores exceed their ceiling take a new maximum.
  ATTN_NOINLINE void raise(const A* highest, ScoreUnits units) {
    alignas(64) A factor[as_size(lanes)], rise[as_size(lanes)];
    state_.raise(highest, units, factor, rise);
    for (Index r = 0; units == ScoreUnits::log2_relative && r < rows_.count; ++r)
      for (Index k = packets_seen_.begin; k < packets_seen_.end; k += width)
        store(row(r) + k, sub(load(row(r) + k), broadcast(rise[r])));
    if (has_output_) products_.rescale(factor, this->packets_);
  }

  void exponentiate(ScoreUnits units) {
    const auto to_weights = units == ScoreUnits::natural ? exponentiate_rows<A, ScoreUnits::natural>
                                                         : exponentiate_rows<A, ScoreUnits::log2_relative>;
    to_weights(rows_.count, packets_seen_.size(), row(0) + packets_seen_.begin, row_stride, state_.maximum,
               state_.sum);
  }

  A* scores_ = nullptr;
  Index tile_begin_ = 0;  // the key of place 0 of a row
  Range packets_seen_{};  // places of a row
};

}  // namespace kernels
ATTN_NAMESPACE_END
