// tests/conformance/masks.hpp - masks that a case may or may not have, composed into one of a known type.
#pragma once
#include <optional>
#include <utility>

#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "tensors.hpp"

namespace attn_conformance {

/// f(mask & *other) if there is another, else f(mask).
template <class M, class Other, class F>
void with_also(const M& mask, const std::optional<Other>& other, F f) {
  if (!other)
    f(mask);
  else if constexpr (std::is_same_v<M, attn::NoMask>)
    f(*other);
  else
    f(attn::all_of(mask, *other));
}

}  // namespace attn_conformance
