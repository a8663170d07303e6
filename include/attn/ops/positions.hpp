// attn/ops/positions.hpp - sinusoidal position vectors.
#pragma once
#include <cmath>

#include "attn/core/error.hpp"
#include "attn/core/types.hpp"

ATTN_NAMESPACE_BEGIN

/// Row p - `first` is the vector of position p (Vaswani et al. 2017, section 3.5): element 2i is
/// sin(p / 10000^(2i / dim)), element 2i + 1 the cosine of the same angle. Angles are computed in double.
/// @throws ShapeError if an argument is negative.
template <Element T>
Matrix<T> sinusoidal_positions(Index len, Index dim, Index first = 0) {
  check(len >= 0 && dim >= 0 && first >= 0, "sinusoidal_positions: len ", len, ", dim ", dim, " and first ",
        first, " must not be negative");
  Matrix<T> positions(len, dim);
  for (Index c = 0; c < dim; ++c) {
    const double rate = std::pow(10000.0, -static_cast<double>(c - c % 2) / static_cast<double>(dim));
    for (Index p = 0; p < len; ++p) {
      const double angle = static_cast<double>(first + p) * rate;
      positions(p, c) = static_cast<T>(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return positions;
}

ATTN_NAMESPACE_END
