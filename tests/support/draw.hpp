// tests/support/draw.hpp - Draw: random shapes, strided tensors and choices from one seed.
#pragma once
#include <algorithm>
#include <limits>
#include <vector>

#include "attn/core/random.hpp"
#include "attn/core/tensor_view.hpp"

namespace attn_test {

/// A rank-4 tensor with any order of axes in memory, gaps between its elements, and negative strides. What
/// lies in the gaps is NaN (or the type's lowest value), so that a read or write beside the elements shows.
template <class T>
struct StridedTensor {
  std::vector<T> storage;
  attn::Dims<4> extents{}, strides{};
  attn::Index origin = 0;

  attn::TensorView<const T, 4> read() const { return {storage.data() + origin, extents, strides}; }
  attn::TensorView<T, 4> write() { return {storage.data() + origin, extents, strides}; }

  static T gap() {
    return std::numeric_limits<T>::has_quiet_NaN ? std::numeric_limits<T>::quiet_NaN()
                                                 : std::numeric_limits<T>::lowest();
  }
  /// f(element) for each element, in row-major order.
  template <class F>
  void for_each(F f) {
    for (attn::Index a = 0; a < extents[0]; ++a)
      for (attn::Index b = 0; b < extents[1]; ++b)
        for (attn::Index c = 0; c < extents[2]; ++c)
          for (attn::Index d = 0; d < extents[3]; ++d) f(write()(a, b, c, d));
  }
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  /// Uniform over [low, high].
  attn::Index between(attn::Index low, attn::Index high) {
    return low + static_cast<attn::Index>(random_.word(next_++)) % (high - low + 1);
  }
  /// True once in `n` draws.
  bool one_in(attn::Index n) { return between(1, n) == 1; }
  /// Normally distributed, exact in float.
  float normal() { return static_cast<float>(random_.normal(next_++)); }

  /// With normally distributed elements; for integers, 0 and others equally often.
  template <class T>
  StridedTensor<T> tensor(const attn::Dims<4>& extents) {
    StridedTensor<T> x;
    x.extents = extents;
    const attn::Index size = place(x);
    x.storage.assign(static_cast<std::size_t>(size), StridedTensor<T>::gap());
    x.for_each([&](T& element) {
      if constexpr (std::is_integral_v<T>)
        element = static_cast<T>(between(0, 1) * between(1, std::numeric_limits<T>::max()));
      else
        element = static_cast<T>(normal());
    });
    return x;
  }

 private:
  /// Draws strides and origin; returns how much storage they need.
  template <class T>
  attn::Index place(StridedTensor<T>& x) {
    int order[] = {3, 2, 1, 0};  // from the innermost axis
    const bool plain = one_in(2);
    for (int i = 3; i > 0 && !plain; --i)
      if (one_in(2)) std::swap(order[i], order[between(0, i)]);
    attn::Index step = plain || one_in(2) ? 1 : between(2, 3);
    for (const int axis : order) {
      const attn::Index extent = std::max<attn::Index>(x.extents[axis], 1);
      const bool reversed = !plain && one_in(5);
      x.strides[axis] = reversed ? -step : step;
      if (reversed) x.origin += (extent - 1) * step;
      step *= extent;
      if (!plain && one_in(3)) step += between(1, 3);
    }
    return step;
  }

  attn::CounterRandom random_;
  std::uint64_t next_ = 0;
};

}  // namespace attn_test
