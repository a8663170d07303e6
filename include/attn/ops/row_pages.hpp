// attn/ops/row_pages.hpp - the memory of a cache: rows in equal pages, and which pages are free.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "attn/core/owner.hpp"
#include "attn/core/stored_rows.hpp"

ATTN_NAMESPACE_BEGIN
namespace detail {

/// Memory that starts at zero, aligned to 64 bytes. Large blocks come from the system as they are touched, so
/// that a cache of a long context costs what is in it.
class ZeroedMemory {
 public:
  static constexpr std::size_t alignment = 64;

  ZeroedMemory() = default;
  explicit ZeroedMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    block_ = OwnedBlock(std::calloc(bytes + alignment, 1), [](void* p) { std::free(p); });
    check<std::length_error>(block_.get() != nullptr, "KVCache: ", bytes, " bytes are not to be had");
    const auto address = reinterpret_cast<std::uintptr_t>(block_.get());
    data_ = static_cast<std::byte*>(block_.get()) + (alignment - address % alignment) % alignment;
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  OwnedBlock block_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Rows [page, head, row, dim], contiguous; 8-bit integers with a scale [page, head, row].
template <StorageElement S>
class RowPages {
 public:
  static constexpr bool has_scales = std::is_same_v<S, std::int8_t>;

  RowPages() = default;
  /// @throws std::length_error if the rows do not fit into memory.
  RowPages(Index pages, Index heads, Index page_rows, Index dim)
      : extents_(countable({pages, heads, page_rows, dim})),
        strides_{heads * page_rows * dim, page_rows * dim, dim},
        data_(as_size(product(extents_)) * sizeof(S)),
        scales_(has_scales ? as_size(pages * heads * page_rows) * sizeof(float) : 0) {}

  Index pages() const { return extents_[0]; }
  Index heads() const { return extents_[1]; }
  Index page_rows() const { return extents_[2]; }
  Index dim() const { return extents_[3]; }
  std::size_t bytes() const { return data_.bytes() + scales_.bytes(); }

  S* row(Index page, Index head, Index row) const {
    return static_cast<S*>(data_.data()) + page * strides_[0] + head * strides_[1] + row * strides_[2];
  }
  /// Null where the rows have none.
  float* scale(Index page, Index head, Index row) const {
    return has_scales ? static_cast<float*>(scales_.data()) + (page * heads() + head) * page_rows() + row
                      : nullptr;
  }

  /// Rows of a page, of all heads, to be written.
  TensorView<S, 3> rows(Index page, Index first, Index count) const {
    return {row(page, 0, first), {heads(), count, dim()}, {strides_[1], strides_[2], 1}};
  }
  /// Rows as sdpa reads them; the extents are of the longest sequence.
  StoredRows<S> view(Index batch, Index len, const Index* table, Index pages_per_entry) const {
    StoredRows<S> rows;
    rows.data = static_cast<const S*>(data_.data());
    rows.extents = {batch, heads(), len, dim()};
    rows.strides = {strides_[0], strides_[1], strides_[2], 1};
    rows.scales = static_cast<const float*>(scales_.data());
    if (has_scales) rows.scale_strides = {heads() * page_rows(), page_rows(), 1};
    rows.pages = table;
    rows.pages_per_entry = pages_per_entry;
    rows.page_rows = std::max<Index>(page_rows(), 1);
    return rows;
  }

  /// Copies rows of another page of the same heads and dim; the runs may overlap within one page.
  void copy_rows(const RowPages& from, Index from_page, Index from_row, Index page, Index first,
                 Index count) {
    if (count == 0) return;
    for (Index head = 0; head < heads(); ++head) {
      std::memmove(row(page, head, first), from.row(from_page, head, from_row),
                   as_size(count * dim()) * sizeof(S));
      if constexpr (has_scales)
        std::memmove(scale(page, head, first), from.scale(from_page, head, from_row),
                     as_size(count) * sizeof(float));
    }
  }
  /// Copies rows of a sequence of stored rows of the same heads and dim.
  void copy_stored(const StoredRows<S>& from, Index entry, Index from_row, Index page, Index first,
                   Index count) {
    for (Index i = 0; i < count; ++i) {
      const Index source = from.page(entry, from_row + i), in_page = (from_row + i) % from.page_rows;
      for (Index head = 0; head < heads(); ++head) {
        const S* const elements =
            from.data + source * from.strides[0] + head * from.strides[1] + in_page * from.strides[2];
        S* const to = row(page, head, first + i);
        for (Index c = 0; c < dim(); ++c) to[c] = elements[c * from.strides[3]];
        if constexpr (has_scales)
          *scale(page, head, first + i) =
              from.scales[source * from.scale_strides[0] + head * from.scale_strides[1] +
                          in_page * from.scale_strides[2]];
      }
    }
  }
  /// Exchanges the first rows of two pages.
  void swap_rows(Index a, Index b, Index count) {
    for (Index head = 0; head < heads(); ++head) {
      std::swap_ranges(row(a, head, 0), row(a, head, 0) + count * dim(), row(b, head, 0));
      if constexpr (has_scales)
        std::swap_ranges(scale(a, head, 0), scale(a, head, 0) + count, scale(b, head, 0));
    }
  }
  /// As many pages more, with the contents of those there are.
  RowPages with_pages(Index pages) const {
    RowPages more(pages, heads(), page_rows(), dim());
    for (Index page = 0; page < this->pages(); ++page) more.copy_rows(*this, page, 0, page, 0, page_rows());
    return more;
  }

 private:
  /// The extents, if their elements have less than 2^62 bytes (4: scales, of which there are no more).
  static Dims<4> countable(const Dims<4>& extents) {
    double bytes = std::max<double>(sizeof(S), 4);
    for (const Index extent : checked_extents("KVCache", extents).values)
      bytes *= std::max(static_cast<double>(extent), 1.0);
    check<std::length_error>(bytes < 0x1p62, "KVCache: ", extents, " elements exceed the address space");
    return extents;
  }

  Dims<4> extents_{};
  Dims<3> strides_{};
  ZeroedMemory data_, scales_;
};

/// Pages of keys and values that a cache and its forks share, with the number of owners of each.
template <StorageElement S>
class PagePool {
 public:
  PagePool(Index pages, Index heads, Index page_rows, Index head_dim, Index value_dim)
      : keys(pages, heads, page_rows, head_dim), values(pages, heads, page_rows, value_dim) {
    add_free_pages(0);
  }

  RowPages<S> keys, values;

  Index pages() const { return keys.pages(); }
  Index pages_in_use() const { return pages() - static_cast<Index>(free_.size()); }
  bool is_shared(Index page) const { return owners_[as_size(page)] > 1; }
  std::size_t bytes() const {
    return keys.bytes() + values.bytes() + (owners_.capacity() + free_.capacity()) * sizeof(Index);
  }

  /// Makes the next `count` take() free of allocation and of errors.
  void reserve(Index count) {
    const auto available = static_cast<Index>(free_.size());
    if (count <= available) return;
    const Index before = pages(), wanted = std::max(2 * before, before + count - available);
    RowPages<S> more_keys = keys.with_pages(wanted), more_values = values.with_pages(wanted);
    owners_.reserve(as_size(wanted));
    free_.reserve(as_size(wanted));
    keys = std::move(more_keys);
    values = std::move(more_values);
    add_free_pages(before);
  }
  /// A page with one owner, of unspecified contents.
  Index take() {
    reserve(1);
    const Index page = free_.back();
    free_.pop_back();
    owners_[as_size(page)] = 1;
    return page;
  }
  void share(Index page) { ++owners_[as_size(page)]; }
  void release(Index page) {
    if (--owners_[as_size(page)] == 0) free_.push_back(page);
  }

 private:
  /// The pages from `first` on, the lowest to be taken first.
  void add_free_pages(Index first) {
    owners_.resize(as_size(pages()), 0);
    free_.reserve(as_size(pages()));
    for (Index page = pages(); page-- > first;) free_.push_back(page);
  }

  std::vector<Index> owners_, free_;
};

}  // namespace detail
ATTN_NAMESPACE_END
