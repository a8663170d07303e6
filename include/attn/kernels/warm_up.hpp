// attn/kernels/warm_up.hpp - WarmUp: memory that will be touched soon, asked for bit by bit.
#pragma once
#include <algorithm>
#include <cstddef>

#include "attn/core/types.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Memory that will be touched soon, in the order in which it was added, asked for a few cache lines at each
/// step. (The first touch of a row otherwise stalls the change to another layout, and one head's rows do not
/// lead the hardware to the next head's; asked for all at once, lines wait for each other.)
class WarmUp {
 public:
  /// Rows of `bytes` bytes that begin `stride` bytes apart. No more than `capacity` calls count.
  void add(const std::byte* first, Index rows, Index bytes, Index stride) {
    if (count_ == as_size(capacity) || rows <= 0) return;
    if (stride == bytes) {  // one row
      bytes *= rows;
      rows = 1;
    }
    list_[count_++] = {first, bytes, stride, rows};
    lines_ += (bytes + 63) / 64 * rows;
  }
  /// step() will be called so many times.
  void share_out(Index steps) { lines_per_step_ = steps <= 0 ? 0 : (lines_ + steps - 1) / steps; }
  ATTN_ALWAYS_INLINE void step() {
    for (Index left = lines_per_step_; left > 0 && next_ < count_;) {
      Rows& rows = list_[next_];
      const Index lines = std::min(left, (rows.bytes - offset_ + 63) / 64);
      const std::byte* const line = rows.first + offset_;
      for (Index i = 0; i < lines; ++i) ATTN_PREFETCH(line + 64 * i);
      left -= lines;
      offset_ += 64 * lines;
      if (offset_ < rows.bytes) continue;
      offset_ = 0;
      rows.first += rows.stride;
      if (--rows.count == 0) ++next_;
    }
  }

 private:
  struct Rows {
    const std::byte* first;
    Index bytes, stride, count;
  };
  static constexpr Index capacity = 4;
  Rows list_[as_size(capacity)];
  std::size_t count_ = 0, next_ = 0;
  Index offset_ = 0;  // into the current row
  Index lines_ = 0, lines_per_step_ = 0;
};

}  // namespace kernels
ATTN_NAMESPACE_END
