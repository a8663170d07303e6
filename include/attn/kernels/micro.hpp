// attn/kernels/micro.hpp - RegisterBlock: the one register-blocked product behind Q K^T, P V and the
// projections.
//
// All three are sums of outer products: a few packets of A (query lanes, or output features) times a few
// scalars of B that enter as broadcasts. B is therefore read where it lies, in any stride, and never packed.
#pragma once
#include <algorithm>

#include "attn/kernels/packet.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// Shape of the register block: `packets` x `broadcasts` accumulators must leave room for `packets` operands
/// and one broadcast, and be enough to hide the latency of the multiply-add.
template <class T>
struct BlockShape {
  static constexpr int width = packet_width<T>;
  static constexpr bool many_registers = vector_registers >= 32;
  static constexpr int packets = many_registers ? 2 : (has_fma || width == 1) ? 3 : 4;
  static constexpr int broadcasts = many_registers ? 8 : (has_fma || width == 1) ? 4 : 2;
  static constexpr int lanes = packets * width;
};

/// C[j][m] += A[m] * B[j], held in registers: m counts packets, j broadcasts.
template <class T, int Packets, int Broadcasts>
struct RegisterBlock {
  static constexpr int width = packet_width<T>;
  Packet<T> c[as_size(Broadcasts)][as_size(Packets)];

  ATTN_ALWAYS_INLINE void fill(const Packet<T> (&value)[as_size(Packets)]) {
    unroll<Broadcasts>([&](auto j) ATTN_LAMBDA_INLINE {
      unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE { c[j][m] = value[m]; });
    });
  }
  ATTN_ALWAYS_INLINE void load(const T* from, Index row_stride) {
    unroll<Broadcasts>([&](auto j) ATTN_LAMBDA_INLINE {
      unroll<Packets>([&](auto m)
                          ATTN_LAMBDA_INLINE { c[j][m] = kernels::load(from + j * row_stride + m * width); });
    });
  }
  ATTN_ALWAYS_INLINE void add(const T* from, Index row_stride) {
    unroll<Broadcasts>([&](auto j) ATTN_LAMBDA_INLINE {
      unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
        c[j][m] = kernels::add(c[j][m], kernels::load(from + j * row_stride + m * width));
      });
    });
  }
  ATTN_ALWAYS_INLINE void store(T* to, Index row_stride) const {
    unroll<Broadcasts>([&](auto j) ATTN_LAMBDA_INLINE {
      unroll<Packets>([&](auto m)
                          ATTN_LAMBDA_INLINE { kernels::store(to + j * row_stride + m * width, c[j][m]); });
    });
  }
  ATTN_ALWAYS_INLINE void multiply(const T* factors) {
    unroll<Broadcasts>([&](auto j) ATTN_LAMBDA_INLINE {
      unroll<Packets>([&](auto m)
                          ATTN_LAMBDA_INLINE { c[j][m] = mul(c[j][m], kernels::load(factors + m * width)); });
    });
  }
  /// C = start + factor * C.
  ATTN_ALWAYS_INLINE void scale_onto(const Packet<T>& factor, const Packet<T> (&start)[as_size(Packets)]) {
    unroll<Broadcasts>([&](auto j) ATTN_LAMBDA_INLINE {
      unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE { c[j][m] = multiply_add(c[j][m], factor, start[m]); });
    });
  }
  /// One term of the sum: A is `Packets` packets at a, B the scalars b[0], b[b_stride], ...
  template <class S>
  ATTN_ALWAYS_INLINE void step(const S* a, const T* b, Index b_stride) {
    Packet<T> lanes[as_size(Packets)];
    unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
      lanes[m] = load_as<T>(a + m * width);
      ATTN_OPAQUE(
          lanes[m]);  // or g++ folds the load into every multiply-add, and the load ports become the limit
    });
    add_product(lanes, b, b_stride);
  }
  /// Two terms of the sum: A is packets of pairs of bfloat16, B the floats b[0] and b[1], b[b_stride] and
  /// b[b_stride + 1], ...
  ATTN_ALWAYS_INLINE void step_unpacked(const T* a, const T* b, Index b_stride) {
    step_first(a, b, b_stride);
    Packet<T> lanes[as_size(Packets)];
    unroll<Packets>([&](auto m)
                        ATTN_LAMBDA_INLINE { lanes[m] = second_of_pairs(kernels::load(a + m * width)); });
    add_product(lanes, b + 1, b_stride);
  }
  /// As step(), but lanes whose a is 0 keep their sum even if b is NaN or infinite.
  ATTN_ALWAYS_INLINE void step_where_nonzero(const T* a, const T* b, Index b_stride) {
    const Packet<T> zero = broadcast(T(0));
    unroll<Broadcasts>([&](auto j) ATTN_LAMBDA_INLINE {
      const Packet<T> scalar = broadcast(b[j * b_stride]);
      unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
        const Packet<T> lanes = kernels::load(a + m * width);
        c[j][m] = select(equal(lanes, zero), c[j][m], multiply_add(lanes, scalar, c[j][m]));
      });
    });
  }
  /// As step_unpacked(), of the first terms alone.
  ATTN_ALWAYS_INLINE void step_first(const T* a, const T* b, Index b_stride) {
    Packet<T> lanes[as_size(Packets)];
    unroll<Packets>([&](auto m)
                        ATTN_LAMBDA_INLINE { lanes[m] = first_of_pairs(kernels::load(a + m * width)); });
    add_product(lanes, b, b_stride);
  }
  /// Two terms of the sum: lanes of A and scalars of B are pairs of bfloat16; B as it lies, b_stride bytes
  /// apart.
  ATTN_ALWAYS_INLINE void step_pairs(const T* a, const std::byte* b, Index b_stride) {
    Packet<T> lanes[as_size(Packets)];
    unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
      lanes[m] = kernels::load(a + m * width);
      ATTN_OPAQUE(lanes[m]);
    });
    unroll<Broadcasts>([&](auto j) ATTN_LAMBDA_INLINE {
      const Packet<T> pair = broadcast_pair(b + j * b_stride);
      unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE { c[j][m] = dot_pairs(lanes[m], pair, c[j][m]); });
    });
  }
  /// As step_pairs(), but lanes keep their sum where an element of A is 0, as in step_where_nonzero().
  ATTN_ALWAYS_INLINE void step_pairs_where_nonzero(const T* a, const std::byte* b, Index b_stride) {
    const Packet<T> zero = broadcast(T(0));
    unroll<Broadcasts>([&](auto j) ATTN_LAMBDA_INLINE {
      const Packet<T> pair = broadcast_pair(b + j * b_stride);
      const auto add = [&](const Packet<T>& lanes, const Packet<T>& scalar, const Packet<T>& sum)
                           ATTN_LAMBDA_INLINE {
                             return select(equal(lanes, zero), sum, multiply_add(lanes, scalar, sum));
                           };
      unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE {
        const Packet<T> lanes = kernels::load(a + m * width);
        c[j][m] = add(second_of_pairs(lanes), second_of_pairs(pair), c[j][m]);
        c[j][m] = add(first_of_pairs(lanes), first_of_pairs(pair), c[j][m]);
      });
    });
  }

 private:
  ATTN_ALWAYS_INLINE void add_product(const Packet<T> (&lanes)[as_size(Packets)], const T* b,
                                      Index b_stride) {
    unroll<Broadcasts>([&](auto j) ATTN_LAMBDA_INLINE {
      const Packet<T> scalar = broadcast(b[j * b_stride]);
      unroll<Packets>([&](auto m) ATTN_LAMBDA_INLINE { c[j][m] = multiply_add(lanes[m], scalar, c[j][m]); });
    });
  }
};

/// Calls f(first, std::integral_constant<int, n>) over [0, count) in blocks of n = N, then of N / 2, ... 1.
template <int N, class F>
ATTN_ALWAYS_INLINE void for_blocks(Index count, F f, Index first = 0) {
  for (; first + N <= count; first += N) f(first, std::integral_constant<int, N>{});
  if constexpr (N > 1) {
    if (first < count) for_blocks<N / 2>(count, f, first);
  }
}

}  // namespace kernels
ATTN_NAMESPACE_END
