// attn/core/element.hpp - Element and StorageElement: what tensors and caches may hold; without Eigen, of
// which they need two names.
#pragma once
#include <concepts>
#include <cstdint>

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

/// What a cache may hold: an element type, or 8-bit integers with a scale per row.
template <class S>
concept StorageElement = Element<S> || std::same_as<S, std::int8_t>;

ATTN_NAMESPACE_END
