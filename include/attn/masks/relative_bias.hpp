// attn/masks/relative_bias.hpp - RelativeBias: T5's learned bias per bucket of distances and head.
#pragma once
#include <cmath>
#include <vector>

#include "attn/core/tensor_traits.hpp"
#include "attn/masks/score_block.hpp"

ATTN_NAMESPACE_BEGIN

/// Which keys have buckets of their own.
enum class RelativeDirection {
  bidirectional,  ///< half of the buckets for keys behind the query's position, half for keys after it
  causal,         ///< all buckets for keys up to the query's position; keys after it share bucket 0 with it
};

/// How distances are sorted into buckets; the defaults are T5's.
struct RelativeBuckets {
  Index num_buckets = 32;
  Index max_distance = 128;  ///< from here on, all distances share the last bucket
  RelativeDirection direction = RelativeDirection::bidirectional;

  /// The bucket of a key `after` positions after the query (negative: before). Of the n buckets of a side,
  /// the first n / 2 hold one distance each, the others grow with its logarithm: n/2 + floor(log(distance /
  /// (n/2)) / log(max_distance / (n/2)) * (n - n/2)), at most n - 1. Source: Raffel et al. 2020, "Exploring
  /// the limits of transfer learning", section 2.1, and the authors' code.
  Index bucket(Index after) const {
    const bool has_two_sides = direction == RelativeDirection::bidirectional;
    const Index count = has_two_sides ? num_buckets / 2 : num_buckets;
    const Index first = has_two_sides && after > 0 ? count : 0;
    const Index distance = after > 0 ? (has_two_sides ? after : 0) : -after;
    const Index exact = count / 2;
    if (distance < exact) return first + distance;
    if (distance >= max_distance) return first + count - 1;
    const auto log_ratio = [&](Index x) {
      return std::log(static_cast<double>(x) / static_cast<double>(exact));
    };
    // A distance whose quotient is a whole number opens a bucket, whichever way the logarithms were rounded.
    const double step =
        log_ratio(distance) / log_ratio(max_distance) * static_cast<double>(count - exact) + 1e-9;
    return first + std::min(exact + static_cast<Index>(step), count - 1);
  }
};

/// Adds table(bucket of the distance, head) to each score; positions count from query_offset. Copies the
/// table, spread out over the distances: build it once for the layers and calls that share it. T5 itself does
/// not scale its scores: options.scale = 1.
template <std::floating_point T>
class RelativeBias {
 public:
  static constexpr bool uses_positions = true;

  /// `table` [num_buckets, num_heads], as T5's relative_attention_bias.weight.
  /// @throws ShapeError if it does not have num_buckets rows; std::invalid_argument if the buckets do not
  /// reach max_distance.
  template <TensorLike X>
    requires std::same_as<ElementOf<const X>, T> &&
        (rank_of<const X> == 2) explicit RelativeBias(const X& table, const RelativeBuckets& buckets = {})
        : reach_(buckets.max_distance) {
      const TensorView<const T, 2> values = as_view(table);
      const bool is_causal = buckets.direction == RelativeDirection::causal;
      const Index exact = buckets.num_buckets / (is_causal ? 2 : 4);
      check<std::invalid_argument>(exact >= 1 && buckets.max_distance > exact,
                                   "RelativeBias: ", buckets.num_buckets, " buckets and max_distance ",
                                   buckets.max_distance, " leave no room for logarithmic buckets");
      check(values.extent(0) == buckets.num_buckets, "RelativeBias: table ", values, " does not have ",
            buckets.num_buckets, " buckets (first extent)");
      num_heads_ = values.extent(1);
      by_distance_.reserve(as_size(num_heads_ * row_size()));
      for (Index head = 0; head < num_heads_; ++head)
        for (Index before = -reach_; before <= reach_; ++before)
          by_distance_.push_back(values(buckets.bucket(-before), head));
    }

    template <std::floating_point A>
    A score(A value, const Site& s, const Problem& p) const {
      return value + static_cast<A>(*bias(s.head, s.q + p.query_offset(s.batch) - s.k));
    }
    /// Of score() by its value.
    template <std::floating_point A>
    A score_derivative(A, const Site&, const Problem&) const {
      return A(1);
    }
    /// @throws ShapeError if the table has not one column per query head.
    void validate(const Problem& p) const {
      check(num_heads_ == p.num_heads, "RelativeBias: a table for ", num_heads_, " heads, but ", p.num_heads,
            " query heads");
    }

    /// Distances grow by one from lane to lane: within reach, the biases of a key lie side by side.
    template <class Block>
    void change_scores(const Block& block, const Problem& p) const {
      using A = typename Block::Scalar;
      for (Position j = 0; j < block.keys; ++j) {
        A* const scores = block.row(j);
        const Index before = block.q + p.query_offset(block.batch) - (block.k + j);
        const T* const first = bias(block.head, before);
        if (-reach_ <= before && before + block.lanes - 1 <= reach_) {
          ATTN_LANES
          for (Position i = 0; i < block.lanes; ++i) scores[i] += static_cast<A>(first[i]);
        } else {
          for (Position i = 0; i < block.lanes; ++i)
            scores[i] += static_cast<A>(*bias(block.head, before + i));
        }
      }
    }

   private:
    Index row_size() const { return 2 * reach_ + 1; }
    /// The bias of a key `before` positions before the query.
    const T* bias(Index head, Index before) const {
      return by_distance_.data() + head * row_size() + reach_ + std::clamp(before, -reach_, reach_);
    }

    Index reach_;
    Index num_heads_ = 0;
    std::vector<T> by_distance_;  // [num_heads, 2 * reach + 1]
};
template <TensorLike X>
RelativeBias(const X&, const RelativeBuckets&) -> RelativeBias<ElementOf<const X>>;
template <TensorLike X>
RelativeBias(const X&) -> RelativeBias<ElementOf<const X>>;

ATTN_NAMESPACE_END
