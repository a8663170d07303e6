// attn/masks/score_block.hpp - ScoreBlock: the scores a kernel hands to a mask, and the loops that apply a
// mask to it.
#pragma once
#include <limits>

#include "attn/masks/mask.hpp"

ATTN_NAMESPACE_BEGIN

/// Scores of up to `Lanes` consecutive queries of one head (contiguous: the vector lanes) with a few
/// consecutive keys, in natural units, to be changed in place: row(j)[i] belongs to query q + i and key k +
/// j.
template <std::floating_point T, int Lanes>
struct ScoreBlock {
  using Scalar = T;
  static constexpr int max_lanes = Lanes;

  T* data = nullptr;
  Position lanes = 0;  ///< queries that exist; user data may end behind them
  Position keys = 0;
  Index batch = 0;
  Index head = 0;
  Position q = 0;
  Position k = 0;

  T* row(Position j) const { return data + Index{j} * Lanes; }
};

/// The score of a pair that is not seen.
template <std::floating_point T>
inline constexpr T masked_score = -std::numeric_limits<T>::infinity();

/// row(j)[i] = f(row(j)[i], site) for every pair of the block; the loop over the lanes vectorises if f has no
/// branch and calls nothing that does not inline.
template <class Block, class F>
ATTN_ALWAYS_INLINE void for_each_site(const Block& block, F f) {
  const Position q = block.q, lanes = block.lanes;
  const Index batch = block.batch, head = block.head;
  for (Position j = 0; j < block.keys; ++j) {
    auto* const s = block.row(j);
    const Position k = block.k + j;
    if (lanes == Block::max_lanes) {
      ATTN_LANES
      for (Position i = 0; i < Block::max_lanes; ++i) s[i] = f(s[i], Site{batch, head, q + i, k});
    } else {
      ATTN_LANES
      for (Position i = 0; i < lanes; ++i) s[i] = f(s[i], Site{batch, head, q + i, k});
    }
  }
}

/// Applies the score changes of a mask: its own block form, those of its parts, or its per-pair form.
template <class Block, Mask M>
void change_scores(const M& mask, const Block& block, const Problem& p) {
  if constexpr (!ChangesScores<M>)
    return;
  else if constexpr (requires { mask.change_scores(block, p); })
    mask.change_scores(block, p);
  else if constexpr (requires { mask.parts(); })
    std::apply([&](const auto&... part) { (change_scores(part, block, p), ...); }, mask.parts());
  else
    for_each_site(block,
                  [&](auto s, const Site& site) ATTN_LAMBDA_INLINE { return mask_score(mask, s, site, p); });
}

/// Sets the score of every pair that the mask does not allow to masked_score, whatever stood there.
template <class Block, Mask M>
void filter_scores(const M& mask, const Block& block, const Problem& p) {
  using T = typename Block::Scalar;
  if constexpr (!FiltersPairs<M>)
    return;
  else if constexpr (requires { mask.filter(block, p); })
    mask.filter(block, p);
  else if constexpr (requires { mask.parts(); })
    std::apply([&](const auto&... part) { (filter_scores(part, block, p), ...); }, mask.parts());
  else
    for_each_site(block, [&](T s, const Site& site)
                             ATTN_LAMBDA_INLINE { return mask.allows(site, p) ? s : masked_score<T>; });
}

/// Applies the weight changes of a mask to a block of weights (normalised or not: they are linear).
template <class Block, Mask M>
void change_weights(const M& mask, const Block& block, const Problem& p) {
  if constexpr (ChangesWeights<M>)
    for_each_site(block,
                  [&](auto w, const Site& site) ATTN_LAMBDA_INLINE { return mask_weight(mask, w, site, p); });
}

ATTN_NAMESPACE_END
