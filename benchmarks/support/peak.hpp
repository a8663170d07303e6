// benchmarks/support/peak.hpp - what this core can do at best: fused multiply-adds and reads per second.
//
// The loops use the compiler's vector extension, as wide as the instruction set that the program is compiled
// for, so that the bound belongs to the very binary whose kernels are measured against it. Without a fused
// instruction a multiply-add counts as two operations all the same.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace bench {

#if defined(__AVX512F__)
inline constexpr std::size_t vector_bytes = 64;
inline constexpr std::size_t accumulators = 24;
#elif defined(__AVX__)
inline constexpr std::size_t vector_bytes = 32;
inline constexpr std::size_t accumulators = 12;
#elif defined(__aarch64__)
inline constexpr std::size_t vector_bytes = 16;
inline constexpr std::size_t accumulators = 24;
#else
inline constexpr std::size_t vector_bytes = 16;
inline constexpr std::size_t accumulators = 12;
#endif

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using type __attribute__((vector_size(vector_bytes))) = float;
};
template <>
struct VectorOf<double> {
  using type __attribute__((vector_size(vector_bytes))) = double;
};

/// Seconds on a clock that never goes back.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The compiler must assume that `value` is read and changed here; keeps loops whose result nobody needs.
template <class T>
inline void touch(T& value) {
  asm volatile("" : "+m"(value) : : "memory");
}

/// The least time of `repeats` runs of f: other work on the machine only ever adds to it.
template <class F>
double best_seconds(int repeats, F f) {
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const double start = now();
    f();
    const double seconds = now() - start;
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

/// `iterations` rounds of one multiply-add on each of `accumulators` independent registers: enough of them
/// to cover the instruction's latency, few enough to stay in registers (hence constant indices throughout).
template <class T>
[[gnu::noinline]] void multiply_adds(long iterations) {
  using Vector = typename VectorOf<T>::type;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    Vector sums[] = {Vector{} + static_cast<T>(i)...};
    Vector factor = Vector{} + static_cast<T>(0.999999);
    const Vector addend = Vector{} + static_cast<T>(1e-7);
    for (long n = 0; n < iterations; ++n) {
      ((sums[i] = sums[i] * factor + addend), ...);
      asm volatile("" : "+m"(factor));
    }
    Vector total = (sums[i] + ...);
    touch(total);
  }
  (std::make_index_sequence<accumulators>{});
}

/// Multiply-adds of this core in GFLOP/s (two operations each), for T = float or double.
template <class T>
double measure_peak_gflops(int repeats = 7) {
  constexpr long iterations = 1'000'000;
  constexpr std::size_t sums = accumulators * vector_bytes / sizeof(T);
  constexpr double operations = 2.0 * iterations * static_cast<double>(sums);
  return operations / best_seconds(repeats, [] { multiply_adds<T>(iterations); }) / 1e9;
}

/// The same, measured once per process.
template <class T>
double peak_gflops() {
  static const double gflops = measure_peak_gflops<T>();
  return gflops;
}

/// Whether a read loop asks for cache lines before it comes to them.
enum class Prefetch { none, ahead };

/// Reads every vector of `data` once; `count` vectors, a multiple of 8.
template <Prefetch prefetch>
[[gnu::noinline]] void read_all(const VectorOf<float>::type* data, std::size_t count) {
  constexpr std::size_t ahead = 4096, line = 64;
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    VectorOf<float>::type sums[] = {data[i]...};
    for (std::size_t n = 8; n < count; n += 8) {
      if constexpr (prefetch == Prefetch::ahead)
        for (std::size_t byte = 0; byte < 8 * vector_bytes; byte += line)
          __builtin_prefetch(reinterpret_cast<const char*>(data + n) + ahead + byte);
      ((sums[i] += data[n + i]), ...);
    }
    auto total = (sums[i] + ...);
    touch(total);
  }
  (std::make_index_sequence<8>{});
}

/// Read rate in GB/s (1e9 bytes) over a buffer of `bytes`, read again and again: the size picks the level of
/// the memory hierarchy.
template <Prefetch prefetch>
double measure_read_gbytes(std::size_t bytes, int repeats = 5) {
  using Vector = VectorOf<float>::type;
  const std::size_t count = bytes / vector_bytes / 8 * 8;
  std::vector<Vector> data(count, Vector{} + 1.0f);
  const std::size_t passes = std::max<std::size_t>(1, (std::size_t{1} << 28) / bytes);
  const double seconds = best_seconds(repeats, [&] {
    for (std::size_t pass = 0; pass < passes; ++pass) read_all<prefetch>(data.data(), count);
  });
  return static_cast<double>(count * vector_bytes * passes) / seconds / 1e9;
}

/// The better of the two read loops over 512 MiB (main memory), measured once per process.
inline double memory_gbytes() {
  static const double gbytes = std::max(measure_read_gbytes<Prefetch::none>(std::size_t{512} << 20, 3),
                                        measure_read_gbytes<Prefetch::ahead>(std::size_t{512} << 20, 3));
  return gbytes;
}

}  // namespace bench
