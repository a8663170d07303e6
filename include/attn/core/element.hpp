// attn/core/element.hpp - Element: what tensors may hold; without Eigen, of which it needs two names.
#pragma once
#include <concepts>

#include "attn/core/config.hpp"

namespace Eigen {
struct half;
struct bfloat16;
}  // namespace Eigen

ATTN_NAMESPACE_BEGIN

/// What tensors may hold.
template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, Eigen::half> ||
    std::same_as<T, Eigen::bfloat16>;

ATTN_NAMESPACE_END
