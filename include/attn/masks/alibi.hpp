// attn/masks/alibi.hpp - Alibi: attention with linear biases, a penalty that grows with the distance of a
// key.
#pragma once
#include <cmath>
#include <vector>

#include "attn/masks/score_block.hpp"

ATTN_NAMESPACE_BEGIN

/// The slopes of Press et al. 2022, one per head: 2^(-8 (h + 1) / n) for n heads if n is a power of two;
/// otherwise those of the largest power of two below n, then every other slope of twice that power, as in the
/// authors' code.
/// @throws std::invalid_argument if num_heads < 1.
inline std::vector<double> alibi_slopes(Index num_heads) {
  check<std::invalid_argument>(num_heads >= 1, "alibi_slopes: num_heads ", num_heads, " must be at least 1");
  Index power = 1;
  while (2 * power <= num_heads) power *= 2;
  std::vector<double> slopes;
  slopes.reserve(as_size(num_heads));
  const auto add_slope = [&](Index step, Index of) {
    slopes.push_back(std::exp2(-8 * static_cast<double>(step) / static_cast<double>(of)));
  };
  for (Index h = 0; h < power; ++h) add_slope(h + 1, power);
  for (Index h = 0; h < num_heads - power; ++h) add_slope(2 * h + 1, 2 * power);
  return slopes;
}

/// What Alibi does to keys behind the query, where the paper, which is causal, says nothing.
enum class AlibiForm {
  causal,     ///< slope * (k - x), as the paper writes it: a bonus for keys that Causal{} then filters
  symmetric,  ///< -slope * |k - x|: the same penalty to both sides, for encoders
};

/// Adds slope[head] * (k - x), x = q + query_offset the position of the query; use it with Causal{}, or in
/// its symmetric form. Positions are absolute, so a query decoded from a cache gets the bias it had in the
/// prompt. Source: Press et al. 2022, "Train short, test long", section 3. Owns the slopes.
class Alibi {
 public:
  static constexpr bool uses_positions = true;

  /// The paper's slopes for a number of query heads.
  explicit Alibi(Index num_heads, AlibiForm form = AlibiForm::causal)
      : slopes_(alibi_slopes(num_heads)), form_(form) {}
  /// Own slopes, one per query head.
  explicit Alibi(std::vector<double> slopes, AlibiForm form = AlibiForm::causal)
      : slopes_(std::move(slopes)), form_(form) {}

  template <std::floating_point A>
  A score(A value, const Site& s, const Problem& p) const {
    const A after = static_cast<A>(s.k - s.q - p.query_offset(s.batch));
    return value + slope<A>(s.head) * directed(after);
  }
  /// Of score() by its value.
  template <std::floating_point A>
  A score_derivative(A, const Site&, const Problem&) const {
    return A(1);
  }
  /// @throws ShapeError if there is not one slope per query head.
  void validate(const Problem& p) const {
    check(static_cast<Index>(slopes_.size()) == p.num_heads, "Alibi: ", slopes_.size(), " slopes for ",
          p.num_heads, " query heads");
  }

  /// Counts the distance down from the first lane in floating point: no 64-bit integers in the loop.
  template <class Block>
  void change_scores(const Block& block, const Problem& p) const {
    using A = typename Block::Scalar;
    const A factor = slope<A>(block.head);
    const Index first = block.k - block.q - p.query_offset(block.batch);
    const bool is_symmetric = form_ == AlibiForm::symmetric;
    for (Position j = 0; j < block.keys; ++j) {
      A* const scores = block.row(j);
      const A after = static_cast<A>(first + j);
      ATTN_LANES
      for (Position i = 0; i < block.lanes; ++i) {
        const A distance = after - static_cast<A>(i);
        scores[i] += factor * (is_symmetric ? -std::abs(distance) : distance);
      }
    }
  }

  /// One per query head.
  const std::vector<double>& slopes() const { return slopes_; }

 private:
  template <class A>
  A slope(Index head) const {
    return static_cast<A>(slopes_[as_size(head)]);
  }
  template <class A>
  A directed(A after) const {
    return form_ == AlibiForm::symmetric ? -std::abs(after) : after;
  }

  std::vector<double> slopes_;
  AlibiForm form_;
};

ATTN_NAMESPACE_END
