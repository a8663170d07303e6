// attn/kernels/reference.hpp - attention straight from its formula: the oracle of every other kernel, and its
// text.
#pragma once
#include <cmath>
#include <span>

#include "attn/core/tensor_view.hpp"
#include "attn/masks/score_block.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// The run-time numbers of the formula.
struct ReferenceOptions {
  double scale = 1;
  double soft_cap = 0;              ///< 0: none
  std::span<const double> sinks{};  ///< per query head; empty: none
};

/// score = scale * q.k, soft cap, score changes, filter; masked_score where the pair is not seen.
/// A score change that masks a pair whatever its score masks it even if a NaN stands at the key.
template <class A, class E, Mask M>
A reference_score(const TensorView<const E, 4>& q, const TensorView<const E, 4>& k, const Site& s,
                  const Problem& p, const M& mask, const ReferenceOptions& options) {
  if (!mask_allows(mask, s, p)) return masked_score<A>;
  A score = 0;
  for (Index c = 0; c < p.head_dim; ++c)
    score +=
        static_cast<A>(q(s.batch, s.head, s.q, c)) * static_cast<A>(k(s.batch, p.kv_head(s.head), s.k, c));
  score *= static_cast<A>(options.scale);
  const A cap = static_cast<A>(options.soft_cap);
  if (cap > 0) score = cap * std::tanh(score / cap);
  if (!std::isfinite(score) && mask_score(mask, A(0), s, p) == masked_score<A>) return masked_score<A>;
  return mask_score(mask, score, s, p);
}

/// out = softmax(scores) . v for one query row, computed in A; `weights` is scratch of kv_len. Returns the
/// logsumexp. A row that sees no key gives zeros and -inf.
template <class A, class E, class O, Mask M>
A reference_row(const TensorView<const E, 4>& q, const TensorView<const E, 4>& k,
                const TensorView<const E, 4>& v, const TensorView<O, 4>& out, Site s, const Problem& p,
                const M& mask, const ReferenceOptions& options, std::span<A> weights) {
  const auto weight = [&](Index j) -> A& { return weights[static_cast<std::size_t>(j)]; };
  A max = options.sinks.empty() ? masked_score<A>
                                : static_cast<A>(options.sinks[static_cast<std::size_t>(s.head)]);
  const A sink = max;
  for (s.k = 0; s.k < p.kv_len; ++s.k) {
    weight(s.k) = reference_score<A>(q, k, s, p, mask, options);
    max = std::max(max, weight(s.k));
  }
  A sum = sink == masked_score<A> ? A(0) : std::exp(sink - max);
  for (Index j = 0; j < p.kv_len; ++j) {
    weight(j) = weight(j) == masked_score<A> ? A(0) : std::exp(weight(j) - max);
    sum += weight(j);
  }
  for (s.k = 0; s.k < p.kv_len; ++s.k)
    weight(s.k) = weight(s.k) == A(0) ? A(0) : mask_weight(mask, weight(s.k) / sum, s, p);
  for (Index c = 0; c < p.value_dim; ++c) {
    A result = 0;
    for (Index j = 0; j < p.kv_len; ++j)
      if (weight(j) != A(0)) result += weight(j) * static_cast<A>(v(s.batch, p.kv_head(s.head), j, c));
    out(s.batch, s.head, s.q, c) = static_cast<O>(result);
  }
  return sum == A(0) ? masked_score<A> : max + std::log(sum);
}

}  // namespace kernels
ATTN_NAMESPACE_END
