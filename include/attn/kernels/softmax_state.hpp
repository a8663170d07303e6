// attn/kernels/softmax_state.hpp - the running maximum and sum of the softmax of many query lanes, and how
// two merge.
//
// Online softmax (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", algorithm 3),
// with the rescaling made lazy: a lane takes a new maximum only when a score exceeds the old one by more than
// `slack`, so that weights stay below 2^8 and most tiles rescale nothing. Every decision is taken per lane
// and from that lane's scores alone: what another query sees never changes a bit of this one.
#pragma once
#include <cmath>
#include <limits>

#include "attn/kernels/packet.hpp"
#include "attn/masks/score_block.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

inline constexpr double log2_e = 1.4426950408889634;
inline constexpr double ln_2 = 0.69314718055994531;

/// Scores during the pass: in units of log2 and relative to the maximum (the product's accumulators start at
/// -maximum), or natural and absolute, as masks that change scores want them.
enum class ScoreUnits { log2_relative, natural };

/// The weight of a score relative to its maximum, in units of log2. Below 2^-90 it is 0: as good as nothing
/// in a sum, while products near the smallest normal number take a hundred times as long on some processors.
template <class P>
ATTN_ALWAYS_INLINE P weight_of(const P& score) {
  return exp2_from<-90>(score);
}
/// The same for a score in the units of a pass; in relative units its maximum is in it.
template <ScoreUnits Units, class P>
ATTN_ALWAYS_INLINE P weight_of(const P& score, const P& maximum) {
  if constexpr (Units == ScoreUnits::natural)
    return weight_of(mul(sub(score, maximum), broadcast(static_cast<ScalarOf<P>>(log2_e))));
  else
    return weight_of(score);
}

/// State of `Lanes` queries; arrays in the caller's scratch.
template <class A, int Lanes>
struct SoftmaxState {
  static constexpr int width = packet_width<A>;
  static constexpr int packets = Lanes / width;
  static constexpr int arrays = 4;  // scratch needed: arrays * Lanes elements

  A* maximum;  ///< in the units of the scores; 0 while the lane has seen no key
  A* sum;      ///< of 2^(score - maximum)
  A* ceiling;  ///< a score above it makes the lane take a new maximum; -inf while the lane has seen no key
  A* start;    ///< where the accumulators of the product start: -maximum, or 0 for natural scores

  SoftmaxState() : maximum(nullptr), sum(nullptr), ceiling(nullptr), start(nullptr) {}
  explicit SoftmaxState(A* scratch)
      : maximum(scratch), sum(scratch + Lanes), ceiling(scratch + 2 * Lanes), start(scratch + 3 * Lanes) {}

  void reset() {
    for (int i = 0; i < Lanes; ++i) {
      maximum[i] = sum[i] = start[i] = A(0);
      ceiling[i] = masked_score<A>;
    }
  }

  static constexpr A slack(ScoreUnits units) {
    return static_cast<A>(units == ScoreUnits::natural ? 8 * ln_2 : 8);
  }

  /// Some lane must take a new maximum.
  ATTN_ALWAYS_INLINE bool exceeded_by(const A* scores) const {
    Packet<A> over = broadcast(A(0));
    unroll<packets>([&](auto m) ATTN_LAMBDA_INLINE {
      const Packet<A> above = less(load(ceiling + m * width), load(scores + m * width));
      over = max(over, select(above, broadcast(A(1)), broadcast(A(0))));
    });
    return max_of_lanes(over) > A(0);
  }

  /// Lanes whose `scores` exceed the ceiling take them as maximum. factor[i]: what lane i multiplies
  /// everything gathered so far by (1 for the others); rise[i]: what it subtracts from relative scores not
  /// yet exponentiated.
  ATTN_NOINLINE void raise(const A* scores, ScoreUnits units, A* factor, A* rise) {
    const Packet<A> zero = broadcast(A(0)), one = broadcast(A(1)), unseen = broadcast(masked_score<A>);
    const bool natural = units == ScoreUnits::natural;
    unroll<packets>([&](auto m) ATTN_LAMBDA_INLINE {
      const Packet<A> score = load(scores + m * width), limit = load(ceiling + m * width);
      const Packet<A> old = load(maximum + m * width);
      const Packet<A> rises = less(limit, score), fresh = equal(limit, unseen);
      const Packet<A> now = natural ? score : add(old, score);
      const Packet<A> step =
          natural ? mul(sub(old, score), broadcast(static_cast<A>(log2_e))) : sub(zero, score);
      const Packet<A> scale = select(rises, select(fresh, one, weight_of(step)), one);
      const Packet<A> relative = broadcast(slack(units));
      store(factor + m * width, scale);
      store(rise + m * width, select(rises, natural ? zero : score, zero));
      store(sum + m * width, mul(load(sum + m * width), scale));
      store(maximum + m * width, select(rises, now, old));
      store(ceiling + m * width, select(rises, natural ? add(score, relative) : relative, limit));
      if (!natural) store(start + m * width, sub(zero, select(rises, now, old)));
    });
  }

  /// Natural logarithm of the sum over e^score; -inf for a lane that has seen no key,
  /// NaN where a score was NaN.
  A logsumexp(int lane, ScoreUnits units) const {
    if (sum[lane] == A(0)) return masked_score<A>;
    const A max = units == ScoreUnits::natural ? maximum[lane] : maximum[lane] * static_cast<A>(ln_2);
    return max + std::log(sum[lane]);
  }
};

/// log(e^a + e^b) without overflow; -inf stands for an empty sum.
template <std::floating_point A>
A log_add(A a, A b) {
  const A high = std::max(a, b), low = std::min(a, b);
  return low == masked_score<A> ? high : high + std::log1p(std::exp(low - high));
}

}  // namespace kernels
ATTN_NAMESPACE_END
