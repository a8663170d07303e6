// attn/modules/mixed_storage.hpp - which activations a module of weights of another element type takes.
#pragma once
#include "attn/core/types.hpp"

ATTN_NAMESPACE_BEGIN

/// Whether a module of weights T takes activations (inputs, outputs, scratch) X: where both accumulate in one
/// type, so float, half and bfloat16 in any combination, and double with double. Modules say so at compile
/// time.
template <Element X, Element T>
inline constexpr bool takes_activations = std::same_as<Accumulator<X>, Accumulator<T>>;

namespace detail {
template <Element X, Element T>
constexpr void require_activations() {
  static_assert(takes_activations<X, T>,
                "attn: activations of double need weights of double, and weights of double need those");
}
}  // namespace detail

ATTN_NAMESPACE_END
