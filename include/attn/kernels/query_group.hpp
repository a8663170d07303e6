// attn/kernels/query_group.hpp - QueryGroup: a few query rows with their softmax state and the products over
// them; what LaneGroup and RowGroup have in common.
#pragma once
#include "attn/kernels/lane_scores.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Query rows of one task between place() and write(). P: the products, one of LaneProducts, PairProducts,
/// MatrixProducts (LaneGroup) or RowProducts (RowGroup); what attends to a key tile is the derived class.
template <class P>
class QueryGroup : public LaneScores<typename P::A> {
 protected:
  using A = typename P::A;
  using Base = LaneScores<A>;
  using Base::lanes;
  using State = SoftmaxState<A, lanes>;

 public:
  using Products = P;
  using typename Base::Hooks;

  QueryGroup() : Base(Products::keys_together) {}

  /// Elements of scratch that place() needs.
  static Index scratch_size(Index head_dim, Index value_dim) {
    return lanes * State::arrays + Products::scratch_size(head_dim, value_dim);
  }
  void place(A* scratch, Index head_dim, Index value_dim) {
    this->state_ = State(scratch);
    products_.place(scratch + lanes * State::arrays, head_dim, value_dim);
  }

  /// Starts on new rows. queries[i] points to the contiguous query of lane i (any query where lane i has no
  /// row); it is multiplied by `factor`.
  void begin(const LaneRows& rows, const Hooks& hooks, A factor, const A* const* queries) {
    Base::begin(rows, hooks);
    products_.begin(queries, rows.count, this->packets_, factor);
    has_output_ = false;
  }

  /// Every output is a finite number (and so no NaN of a masked key has come in).
  bool is_finite() const { return products_.is_finite(); }

  /// rows[i] = factors[first + i] * output of lane first + i, for one packet of lanes.
  void write(Index first, const A* factors, A* const* rows) const {
    products_.write(first, factors + first, rows);
  }

 protected:
  Products products_;
  bool has_output_ = false;  // or all of it is 0
};

}  // namespace kernels
ATTN_NAMESPACE_END
