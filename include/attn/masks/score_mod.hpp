// attn/masks/score_mod.hpp - ScoreMod and Filter: a mask in one lambda.
#pragma once
#include "attn/masks/mask.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {
/// f(arguments..., problem) if f takes the problem, else f(arguments...).
template <class F, class... Arguments>
ATTN_ALWAYS_INLINE decltype(auto) call_with_problem(const F& f, const Problem& p,
                                                    const Arguments&... arguments) {
  if constexpr (std::is_invocable_v<const F&, const Arguments&..., const Problem&>)
    return f(arguments..., p);
  else
    return f(arguments...);
}

/// f takes the arguments, with or without the problem behind them.
template <class F, class... Arguments>
concept CallableWithProblem =
    std::invocable<const F&, Arguments..., const Problem&> || std::invocable<const F&, Arguments...>;
}  // namespace detail

/// The derivative of a ScoreMod that has none: it can be applied, but not differentiated.
struct NoDerivative {};

/// A score change in a lambda: ScoreMod{[](auto s, const attn::Site& at) { return ...; }}, optionally with
/// the problem as third argument. s is the score after scale and soft cap; write it as `auto`, since it is
/// float or double as the tensors are. The lambda runs for every pair, lanes of queries at a time: without
/// branches and without calls that do not inline it vectorises: attn::exp and attn::tanh (core/math.hpp)
/// instead of those of std. at.q counts the queries of the call: the position of the query among the keys is
/// at.q + problem.query_offset(at.batch).
///
/// A second lambda of the same arguments is the derivative of the change by s, for gradients:
/// ScoreMod{[](auto s, const attn::Site&) { return s * s; }, [](auto s, const attn::Site&) { return 2 * s;
/// }}.
template <class F, class Derivative = NoDerivative>
struct ScoreMod {
  F change;
  Derivative derivative{};

  template <std::floating_point A>
    requires detail::CallableWithProblem<F, A, Site> A score(A value, const Site& s, const Problem& p)
  const { return static_cast<A>(detail::call_with_problem(change, p, value, s)); }
  /// Of score() by its value, at `value`.
  template <std::floating_point A>
    requires detail::CallableWithProblem<Derivative, A, Site> A score_derivative(A value, const Site& s,
                                                                                 const Problem& p)
  const { return static_cast<A>(detail::call_with_problem(derivative, p, value, s)); }
};
template <class F>
ScoreMod(F) -> ScoreMod<F>;
template <class F, class Derivative>
ScoreMod(F, Derivative) -> ScoreMod<F, Derivative>;

/// A filter in a lambda: Filter{[](const attn::Site& at) { return at.k % 2 == 0; }}, optionally with the
/// problem as second argument. True: the query sees the key. Positions as in ScoreMod.
template <class F>
struct Filter {
  F condition;

  bool allows(const Site& s, const Problem& p) const requires detail::CallableWithProblem<F, Site> {
    return detail::call_with_problem(condition, p, s);
  }
};
template <class F>
Filter(F) -> Filter<F>;

ATTN_NAMESPACE_END
