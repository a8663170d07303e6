// attn/masks/tensor_mask.hpp - masks that are tensors: KeepMask, DropMask, AdditiveBias.
#pragma once
#include "attn/core/tensor_traits.hpp"
#include "attn/masks/mask.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// A [batch, heads, q_len, kv_len] tensor; axes of extent 1 are repeated (stride 0).
template <class T>
class PairTensor {
 public:
  template <int Rank>
  explicit PairTensor(const TensorView<const T, Rank>& values) : view_(broadcast(with_rank<4>(values))) {}

  const T& at(const Site& s) const { return view_(s.batch, s.head, s.q, s.k); }
  const TensorView<const T, 4>& view() const { return view_; }

  void validate(const char* name, const Problem& p) const {
    const Dims<4> wanted{p.batch, p.num_heads, p.q_len, p.kv_len};
    for (int axis = 0; axis < 4; ++axis)
      check(view_.extent(axis) == wanted[axis] || view_.extent(axis) == 1, name, ": extents ", view_,
            " do not fit [batch, num_heads, q_len, kv_len] = ", wanted, " (an extent may also be 1)");
  }

 private:
  static TensorView<const T, 4> broadcast(const TensorView<const T, 4>& values) {
    Dims<4> strides = values.strides();
    for (int axis = 0; axis < 4; ++axis)
      if (values.extent(axis) == 1) strides[axis] = 0;
    return {values.data(), values.extents(), strides};
  }
  TensorView<const T, 4> view_;
};

template <class X>
using PairElement = typename decltype(as_view(std::declval<const X&>()))::value_type;

}  // namespace detail

/// Pairs whose element is true (not zero) are seen. Elements: bool or an integer.
/// Rank 2 [q_len, kv_len], 3 [heads, q_len, kv_len] or 4 [batch, heads, q_len, kv_len]; an extent of 1 is
/// repeated. Borrows the tensor.
template <std::integral T>
class KeepMask {
 public:
  template <TensorLike X>
    requires std::same_as<detail::PairElement<X>, T>
  explicit KeepMask(const X& keep) : keep_(TensorView<const T, rank_of<X>>(as_view(keep))) {}

  bool allows(const Site& s, const Problem&) const { return keep_.at(s) != T{}; }
  void validate(const Problem& p) const { keep_.validate("KeepMask", p); }
  /// [batch, heads, q_len, kv_len], broadcast axes with stride 0.
  const TensorView<const T, 4>& keep_values() const { return keep_.view(); }

 private:
  detail::PairTensor<T> keep_;
};
template <TensorLike X>
KeepMask(const X&) -> KeepMask<detail::PairElement<X>>;

/// Pairs whose element is true (not zero) are not seen; otherwise as KeepMask.
template <std::integral T>
class DropMask {
 public:
  template <TensorLike X>
    requires std::same_as<detail::PairElement<X>, T>
  explicit DropMask(const X& drop) : drop_(TensorView<const T, rank_of<X>>(as_view(drop))) {}

  bool allows(const Site& s, const Problem&) const { return drop_.at(s) == T{}; }
  void validate(const Problem& p) const { drop_.validate("DropMask", p); }
  /// [batch, heads, q_len, kv_len], broadcast axes with stride 0.
  const TensorView<const T, 4>& drop_values() const { return drop_.view(); }

 private:
  detail::PairTensor<T> drop_;
};
template <TensorLike X>
DropMask(const X&) -> DropMask<detail::PairElement<X>>;

/// Adds its elements to the scores. Any arithmetic element type, half and bfloat16 included; shapes as
/// KeepMask. -inf means not seen; the lowest finite number is a number like any other, so a row of it changes
/// nothing. Borrows the tensor.
template <class T>
class AdditiveBias {
 public:
  template <TensorLike X>
    requires std::same_as<detail::PairElement<X>, T>
  explicit AdditiveBias(const X& bias) : bias_(TensorView<const T, rank_of<X>>(as_view(bias))) {}

  template <std::floating_point A>
  A score(A value, const Site& s, const Problem&) const {
    return value + static_cast<A>(bias_.at(s));
  }
  void validate(const Problem& p) const { bias_.validate("AdditiveBias", p); }
  /// [batch, heads, q_len, kv_len], broadcast axes with stride 0.
  const TensorView<const T, 4>& bias_values() const { return bias_.view(); }

 private:
  detail::PairTensor<T> bias_;
};
template <TensorLike X>
AdditiveBias(const X&) -> AdditiveBias<detail::PairElement<X>>;

ATTN_NAMESPACE_END
