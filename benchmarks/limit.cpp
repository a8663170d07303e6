// What this machine can do at best, for the instruction set that this program is compiled for: multiply-adds
// in float and double, bfloat16 dot products where there is an instruction for them, and reads from each
// level of the memory hierarchy, plain and with software prefetch. Other benchmarks' percentages refer to
// these.
//
//   limit [threads]     every loop runs on that many threads at once; the rates are sums
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/peak.hpp"
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace {

/// Sum over the threads of what `measure` returns, all of them at it at the same time.
double on_all(int threads, const std::function<double()>& measure) {
  std::vector<double> rates(static_cast<std::size_t>(threads));
  std::atomic<int> waiting{threads};
  std::vector<std::thread> others;
  const auto run = [&](std::size_t i) {
    --waiting;
    while (waiting.load() > 0) {
    }
    rates[i] = measure();
  };
  for (std::size_t i = 1; i < rates.size(); ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& other : others) other.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

#if defined(__AVX512BF16__)
/// As bench::multiply_adds, with bfloat16 pairs: 32 products and 32 sums an instruction.
[[gnu::noinline]] void bf16_dots(long iterations) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    __m512 sums[] = {_mm512_set1_ps(static_cast<float>(i))...};
    __m512i bits = _mm512_set1_epi16(0x2000);
    for (long n = 0; n < iterations; ++n) {
      const auto pair = (__m512bh)bits;
      ((sums[i] = _mm512_dpbf16_ps(sums[i], pair, pair)), ...);
      asm volatile("" : "+v"(bits));
    }
    __m512 total = (sums[i] + ...);
    bench::touch(total);
  }
  (std::make_index_sequence<bench::accumulators>{});
}

double bf16_dot_gflops() {
  constexpr long iterations = 1'000'000;
  constexpr double operations = 64.0 * iterations * bench::accumulators;
  return operations / bench::best_seconds(7, [] { bf16_dots(iterations); }) / 1e9;
}
#endif

void row(const std::string& what, const char* unit, double rate) {
  std::printf("%-34s %9.1f %s\n", what.c_str(), rate, unit);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  std::printf("%d thread(s), vectors of %zu bits\n", threads, 8 * bench::vector_bytes);
  row("multiply-add, float", "GFLOP/s", on_all(threads, [] { return bench::measure_peak_gflops<float>(); }));
  row("multiply-add, double", "GFLOP/s",
      on_all(threads, [] { return bench::measure_peak_gflops<double>(); }));
#if defined(__AVX512BF16__)
  row("dot product, bfloat16", "GFLOP/s", on_all(threads, bf16_dot_gflops));
#endif
  const struct {
    std::string name;
    std::size_t bytes;
  } levels[] = {{"read, L1, 24 KiB", 24u << 10},
                {"read, L2, 384 KiB", 384u << 10},
                {"read, L3, 8 MiB", 8u << 20},
                {"read, memory, 512 MiB", 512u << 20}};
  for (const auto& level : levels) {
    using bench::Prefetch;
    const auto plain = [&] { return bench::measure_read_gbytes<Prefetch::none>(level.bytes); };
    const auto prefetched = [&] { return bench::measure_read_gbytes<Prefetch::ahead>(level.bytes); };
    row(level.name, "GB/s", on_all(threads, plain));
    row(level.name + ", prefetched", "GB/s", on_all(threads, prefetched));
  }
}
