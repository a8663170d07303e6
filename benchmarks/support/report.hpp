// benchmarks/support/report.hpp - runs a piece of work under Google Benchmark and reports the bounds it
// fights: multiply-adds and read rate, both measured in the same process.
#pragma once
#include <benchmark/benchmark.h>

#include <iostream>
#include <sstream>

#include "attn/masks/mask.hpp"
#include "attn/ops/build_info.hpp"
#include "support/peak.hpp"

namespace bench {

/// Puts the build into the report's head, and warns of a slow one.
inline const bool has_announced_build = [] {
  std::ostringstream build;
  build << attn::build_info();
  benchmark::AddCustomContext("build", build.str());
  if (!attn::build_info().is_fast())
    std::cerr
        << "***WARNING*** built without AVX2 or better: these are not the speeds that attn is made for\n";
  return true;
}();

/// What one call costs at least.
struct Cost {
  double operations = 0;  ///< floating-point operations that count: those on visible pairs
  double read_bytes = 0;  ///< that must come from memory or a cache; 0: not reported
};

/// Attention where each query sees `visible` of all query-key pairs (a fraction): two products of depth
/// head_dim and value_dim.
inline Cost attention_cost(const attn::Problem& p, double visible = 1) {
  const auto pairs = static_cast<double>(p.batch * p.num_heads * p.q_len * p.kv_len) * visible;
  return {2 * pairs * static_cast<double>(p.head_dim + p.value_dim), 0};
}

/// The fraction of pairs that a causal mask leaves when the last query sees every key.
inline double causal_fraction(attn::Index q_len, attn::Index kv_len) {
  const auto q = static_cast<double>(q_len), kv = static_cast<double>(kv_len);
  return (kv - (q - 1) / 2) / kv;
}

/// Times `work` and sets the counters GFLOP/s and %peak, or GB/s and %memory where bytes are given; `T` is
/// the type whose multiply-add is the bound, `threads` how many cores work.
template <class T, class F>
void measure(benchmark::State& state, const Cost& cost, F work, int threads = 1) {
  const double peak = peak_gflops<T>() * threads;
  work();  // packs weights, grows the workspace
  const double start = now();
  for (auto _ : state) {
    work();
    benchmark::ClobberMemory();
  }
  const double seconds = (now() - start) / static_cast<double>(state.iterations());
  const double gflops = cost.operations / seconds / 1e9;
  state.counters["GFLOP/s"] = gflops;
  state.counters["%peak"] = 100 * gflops / peak;
  if (cost.read_bytes > 0) {
    state.counters["GB/s"] = cost.read_bytes / seconds / 1e9;
    state.counters["%memory"] = 100 * cost.read_bytes / seconds / 1e9 / memory_gbytes();
  }
}

}  // namespace bench
