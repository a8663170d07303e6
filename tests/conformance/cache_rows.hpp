// tests/conformance/cache_rows.hpp - the rows of a cache as a tensor.
#pragma once
#include "attn/core/stored_rows.hpp"
#include "case.hpp"

namespace attn_conformance {

/// [batch, heads, len, dim], by the formula of StoredRows.
template <class T>
Tensor<T, 4> rows_of(const attn::StoredRows<T>& x) {
  Tensor<T, 4> rows(x.extents);
  for (Index b = 0; b < x.extent(0); ++b)
    for (Index h = 0; h < x.extent(1); ++h)
      for (Index r = 0; r < x.extent(2); ++r)
        for (Index c = 0; c < x.extent(3); ++c)
          rows(b, h, r, c) = x.data[x.page(b, r) * x.strides[0] + h * x.strides[1] +
                                    r % x.page_rows * x.strides[2] + c * x.strides[3]];
  return rows;
}

}  // namespace attn_conformance
