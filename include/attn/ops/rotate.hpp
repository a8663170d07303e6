// attn/ops/rotate.hpp - rotates pairs of elements of each row by given cosines and sines.
#pragma once
#include <algorithm>
#include <complex>

#include "attn/ops/elementwise.hpp"
#include "attn/ops/rope_config.hpp"

ATTN_NAMESPACE_BEGIN
namespace detail {

/// Rotates one row: out may be in. `turns` holds, per pair, cosine and sine: the cosines first, as the
/// pairing `half` reads them, or one after the other for `interleaved`.
///
/// Every pair goes through a packet, the last ones of a row by way of a copy: where multiply-add is one
/// instruction, plain expressions round as the compiler pleases, here so and there so.
template <class A>
using RotateRow = void (*)(const A* in, const A* turns, Index pairs, A* out);

template <class A>
void rotate_halves(const A* in, const A* turns, Index pairs, A* out) {
  constexpr Index width = kernels::packet_width<A>;
  const auto rotate = [](const A* in_x, const A* in_y, const A* cosine, const A* sine, A* out_x, A* out_y) {
    const auto x = kernels::load(in_x), y = kernels::load(in_y);
    const auto c = kernels::load(cosine), s = kernels::load(sine);
    const auto minus_ys = kernels::mul(y, kernels::sub(kernels::broadcast(A(0)), s));
    kernels::store(out_x, kernels::multiply_add(x, c, minus_ys));
    kernels::store(out_y, kernels::multiply_add(y, c, kernels::mul(x, s)));
  };
  Index i = 0;
  for (; i + width <= pairs; i += width)
    rotate(in + i, in + pairs + i, turns + i, turns + pairs + i, out + i, out + pairs + i);
  if (i == pairs) return;
  A x[std::size_t{width}] = {}, y[std::size_t{width}] = {};
  A c[std::size_t{width}] = {}, s[std::size_t{width}] = {};
  std::copy(in + i, in + pairs, x);
  std::copy(in + pairs + i, in + 2 * pairs, y);
  std::copy(turns + i, turns + pairs, c);
  std::copy(turns + pairs + i, turns + 2 * pairs, s);
  rotate(x, y, c, s, x, y);
  std::copy_n(x, pairs - i, out + i);
  std::copy_n(y, pairs - i, out + pairs + i);
}

/// A pair is a complex number, and a turn another.
template <class A>
void rotate_neighbours(const A* in, const A* turns, Index pairs, A* out) {
  using Number = std::complex<A>;
  const auto product = [](const auto& x, const auto& turn)
                           ATTN_LAMBDA_INLINE { return kernels::mul(x, turn); };
  map_run(pairs, reinterpret_cast<Number*>(out), product, reinterpret_cast<const Number*>(in),
          reinterpret_cast<const Number*>(turns));
}

/// The rows of in rotated into out, both [batch, heads, len, dim]; the elements from rotary_dim on are
/// copied.
template <class T>
struct RowRotation {
  TensorView<const T, 4> in;
  TensorView<T, 4> out;
  RopePairing pairing;
  Index rotary_dim;

  using A = Accumulator<T>;
  bool is_direct() const { return std::is_same_v<A, T> && in.stride(3) == 1 && out.stride(3) == 1; }

  /// `gathered`: rotary_dim elements, used if rows cannot be rotated where they are.
  void rotate_row(Index batch, Index head, Index row, const A* turns, A* gathered) const {
    const T* const from = &in(batch, head, row, Index{0});
    T* const to = &out(batch, head, row, Index{0});
    const RotateRow<A> rotate = pairing == RopePairing::half ? &rotate_halves<A> : &rotate_neighbours<A>;
    const auto copy_rest = [&] {
      const Index rest = from == to ? 0 : in.extent(3) - rotary_dim;
      kernels::copy_row(from + rotary_dim * in.stride(3), in.stride(3), rest, to + rotary_dim * out.stride(3),
                        out.stride(3));
    };
    copy_rest();
    if constexpr (std::is_same_v<A, T>) {
      if (is_direct()) return rotate(from, turns, rotary_dim / 2, to);
    }
    kernels::copy_row(from, in.stride(3), rotary_dim, gathered, 1);
    rotate(gathered, turns, rotary_dim / 2, gathered);
    kernels::copy_row(gathered, 1, rotary_dim, to, out.stride(3));
  }
};

/// Rotates all rows. turns.fill(batch, first, count, scratch, to) writes the turns of rows [first, first +
/// count) of a batch entry, rotary_dim elements each, for all heads; its scratch are rotary_dim doubles.
template <class T, class Turns>
void rotate_rows(const RowRotation<T>& rotation, const Turns& turns, const RunOptions& options) {
  using A = Accumulator<T>;
  if (rotation.in.size() == 0) return;
  const Index heads = rotation.in.extent(1), len = rotation.in.extent(2), dim = rotation.rotary_dim;
  const Index rows_per_task = std::clamp<Index>(elements_per_task / (heads * dim), 1, 64);
  const Index tasks_per_entry = (len + rows_per_task - 1) / rows_per_task;
  const Index scratch_size = (rows_per_task + 1) * dim, workers = options.executor.concurrency();
  Workspace local;
  Workspace::Frame frame(options.workspace ? *options.workspace : local);
  A* const scratch = frame.take<A>(workers * scratch_size).data();
  double* const angles = frame.take<double>(workers * dim).data();
  options.executor.parallel_for(rotation.in.extent(0) * tasks_per_entry, [&](Index task, Index worker) {
    const Index batch = task / tasks_per_entry, first = task % tasks_per_entry * rows_per_task;
    const Index count = std::min(rows_per_task, len - first);
    A *const gathered = scratch + worker * scratch_size, *const of_rows = gathered + dim;
    turns.fill(batch, first, count, angles + worker * dim, of_rows);
    for (Index head = 0; head < heads; ++head)
      for (Index i = 0; i < count; ++i)
        rotation.rotate_row(batch, head, first + i, of_rows + i * dim, gathered);
  });
}

/// Turns that the caller has: cos and sin [batch, len, pairs].
template <class T>
struct GivenTurns {
  TensorView<const T, 3> cosines, sines;
  RopePairing pairing;

  void fill(Index batch, Index first, Index count, double*, Accumulator<T>* to) const {
    const Index pairs = cosines.extent(2), step = pairing == RopePairing::half ? 1 : 2;
    const auto copy = [&](const TensorView<const T, 3>& from, Index row, Accumulator<T>* begin) {
      kernels::copy_row(&from(batch, row, Index{0}), from.stride(2), pairs, begin, step);
    };
    for (Index row = first; row < first + count; ++row, to += 2 * pairs) {
      copy(cosines, row, to);
      copy(sines, row, to + (step == 1 ? pairs : 1));
    }
  }
};

/// [batch, len, pairs] of a table of rank 2 or 3 whose single batch entry stands for all.
template <class T, int Rank>
TensorView<const T, 3> turns_per_entry(const TensorView<const T, Rank>& table, Index batch) {
  static_assert(Rank == 2 || Rank == 3,
                "attn: cos and sin have rank 2 [len, pairs] or 3 [batch, len, pairs]");
  const auto x = with_rank<3>(table);
  if (x.extent(0) != 1) return x;
  return {x.data(), {batch, x.extent(1), x.extent(2)}, {0, x.stride(1), x.stride(2)}};
}

}  // namespace detail

/// Pair (x, y) of each row becomes (x cos - y sin, y cos + x sin), for cosines and sines that the caller has:
/// those of a table or of a formula of their own. For the usual ones see RotaryEmbedding.
///
/// x and out [..., len, head_dim], rank 2 to 4, any strides; out may be x. cos and sin [len, pairs] for all
/// batch entries or [batch, len, pairs]: the first 2 * pairs elements of a head are rotated, the rest is
/// kept.
/// @throws ShapeError if extents do not fit together, or out overlaps x in part.
template <TensorLike X, TensorLike C, TensorLike S, WritableTensor Out>
  requires std::same_as<ElementOf<X>, ElementOf<C>> && std::same_as<ElementOf<X>, ElementOf<S>> &&
      std::same_as<ElementOf<X>, ElementOf<Out>>
void rotate_pairs_into(const X& x, const C& cos, const S& sin, Out&& out, RopePairing pairing,
                       const RunOptions& options = {}) {
  using T = ElementOf<X>;
  const TensorView<const T, 4> from = as_bhld(detail::read_view(x));
  const TensorView<T, 4> to = as_bhld(as_view(out));
  detail::check_elementwise("rotate_pairs", from, to);
  const auto cosines = detail::turns_per_entry(detail::read_view(cos), from.extent(0));
  const auto sines = detail::turns_per_entry(detail::read_view(sin), from.extent(0));
  check(cosines.extents() == sines.extents(), "rotate_pairs: cos ", cosines, " and sin ", sines,
        " differ in extents");
  const Index rotary_dim = 2 * cosines.extent(2);
  check(cosines.extent(0) == from.extent(0) && cosines.extent(1) == from.extent(2) && 0 < rotary_dim &&
            rotary_dim <= from.extent(3),
        "rotate_pairs: cos and sin ", cosines, " [batch, len, pairs] do not fit x ", from);
  detail::rotate_rows(detail::RowRotation<T>{from, to, pairing, rotary_dim},
                      detail::GivenTurns<T>{cosines, sines, pairing}, options);
}

ATTN_NAMESPACE_END
