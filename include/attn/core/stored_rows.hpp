// attn/core/stored_rows.hpp - StoredRows: keys or values as a cache keeps them: in any storage type, with
// scales, in pages.
#pragma once
#include <limits>

#include "attn/core/tensor_view.hpp"

ATTN_NAMESPACE_BEGIN

/// Read-only rows [batch, heads, len, dim] of a storage that is not a plain tensor. Borrows all it points to.
///
/// Row r of head h of batch entry b begins at data + page * strides[0] + h * strides[1] + (r % page_rows) *
/// strides[2], where page is pages[b * pages_per_entry + r / page_rows], or b if there is no page table: a
/// cache without pages has one page per batch entry. Elements of a row are strides[3] apart.
template <StorageElement S>
struct StoredRows {
  using value_type = S;

  const S* data = nullptr;
  Dims<4> extents{};              ///< batch, heads, len (of the longest entry), dim
  Dims<4> strides{0, 0, 0, 1};    ///< page, head, row, element
  const float* scales = nullptr;  ///< of 8-bit integers: an element is scale * integer; one scale per row
  Dims<3> scale_strides{};        ///< page, head, row
  const Index* pages = nullptr;   ///< [batch, pages_per_entry]; null: one page per batch entry
  Index pages_per_entry = 0;
  Index page_rows = std::numeric_limits<Index>::max();  ///< rows of a page

  StoredRows() = default;
  /// The rows of a tensor.
  StoredRows(const TensorView<const S, 4>& x)  // NOLINT(google-explicit-constructor)
      requires Element<S>
      : data(x.data()), extents(x.extents()), strides(x.strides()) {}

  Index extent(int axis) const { return extents[axis]; }
  Index page(Index batch, Index row) const {
    return pages == nullptr ? batch : pages[batch * pages_per_entry + row / page_rows];
  }
};

/// Prints the extents, as a tensor does.
template <StorageElement S>
std::ostream& operator<<(std::ostream& out, const StoredRows<S>& rows) {
  return out << rows.extents;
}

ATTN_NAMESPACE_END
