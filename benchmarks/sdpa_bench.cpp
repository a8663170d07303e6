// Attention in the shapes that matter, one thread unless the name says otherwise; many heads, so that no head
// stays in the first cache from one call to the next.
#include "attn/core/thread_pool.hpp"
#include "attn/ops/heads.hpp"
#include "support/attention.hpp"
#include "support/report.hpp"

namespace {

using attn::Index;
using attn::Problem;

enum class Masking { none, causal };

template <class T>
void attend(benchmark::State& state, const Problem& problem, Masking masking, Index threads = 1) {
  bench::NumpyNormal normal;
  bench::Attention<T> attention(problem, normal);
  const Problem& p = attention.problem;
  attn::ThreadPool pool(threads);
  const double visible = masking == Masking::causal ? bench::causal_fraction(p.q_len, p.kv_len) : 1;
  bench::Cost cost = bench::attention_cost(p, visible);
  const bool decoding = p.q_len <= 16;
  if (decoding) cost.read_bytes = static_cast<double>(attention.k.size() + attention.v.size()) * sizeof(T);
  const auto work = [&] {
    if (masking == Masking::causal)
      attention.run(attn::Causal{}, {.executor = pool});
    else
      attention.run(attn::NoMask{}, {.executor = pool});
  };
  bench::measure<attn::Accumulator<T>>(state, cost, work, static_cast<int>(threads));
}

void sdpa(benchmark::State& state, const Problem& p, Masking masking, Index threads = 1) {
  attend<float>(state, p, masking, threads);
}
void sdpa_double(benchmark::State& state, const Problem& p, Masking masking) {
  attend<double>(state, p, masking);
}

Problem square(Index batch, Index heads, Index len, Index dim) {
  return {.batch = batch,
          .num_heads = heads,
          .num_kv_heads = heads,
          .q_len = len,
          .kv_len = len,
          .head_dim = dim};
}
Problem grouped(Index q_len, Index kv_len) {
  return {.num_heads = 32, .num_kv_heads = 8, .q_len = q_len, .kv_len = kv_len, .head_dim = 128};
}

BENCHMARK_CAPTURE(sdpa, base_model, square(8, 8, 512, 64), Masking::none)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sdpa, base_model_causal, square(8, 8, 512, 64), Masking::causal)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sdpa, base_model_2_threads, square(8, 8, 512, 64), Masking::none, 2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(sdpa, short_sentences, square(32, 8, 128, 64), Masking::none)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sdpa, grouped_prefill, grouped(2048, 2048), Masking::causal)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sdpa, decode_4096, grouped(1, 4096), Masking::causal)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sdpa, decode_16384, grouped(1, 16384), Masking::causal)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sdpa, decode_16384_2_threads, grouped(1, 16384), Masking::causal, 2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(sdpa, eight_queries_4096, grouped(8, 4096), Masking::causal)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sdpa, one_query_256,
                  Problem{.num_heads = 8, .num_kv_heads = 8, .q_len = 1, .kv_len = 256, .head_dim = 64},
                  Masking::none)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sdpa, odd_length_777, square(4, 8, 777, 64), Masking::none)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sdpa_double, base_model, square(8, 8, 512, 64), Masking::none)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sdpa_double, head_dim_128, square(8, 4, 512, 128), Masking::none)
    ->Unit(benchmark::kMillisecond);

/// Any head_dim: the cost of sizes that fill no register block.
void sdpa_head_dim(benchmark::State& state) {
  attend<float>(state, square(8, 8, 512, state.range(0)), Masking::none);
}
BENCHMARK(sdpa_head_dim)
    ->ArgName("head_dim")
    ->ArgsProduct({{16, 32, 40, 48, 64, 80, 96, 100, 128, 256, 512}})
    ->Unit(benchmark::kMillisecond);

/// q, k and v as one projection leaves them, [batch, len, 3 * heads * dim], and the output as the next one
/// wants it: heads are strided views, nothing is copied.
void sdpa_fused_qkv(benchmark::State& state) {
  const Problem p = square(8, 8, 512, state.range(0));
  const Index width = p.num_heads * p.head_dim;
  bench::NumpyNormal normal;
  const auto qkv = bench::normal_tensor<float, 3>(normal, {p.batch, p.q_len, 3 * width});
  attn::Tensor<float, 3> out({p.batch, p.q_len, width});
  attn::Workspace workspace;
  const auto part = [&](Index i) {
    return attn::split_heads(qkv.view().slice(2, {i * width, (i + 1) * width}), p.num_heads);
  };
  const auto q = part(0), k = part(1), v = part(2);
  Problem full = p;
  full.value_dim = p.head_dim;
  bench::measure<float>(state, bench::attention_cost(full), [&] {
    attn::sdpa_into(q, k, v, attn::split_heads(out, p.num_heads), attn::NoMask{}, {.workspace = &workspace});
  });
}
BENCHMARK(sdpa_fused_qkv)->ArgName("head_dim")->Arg(64)->Arg(128)->Unit(benchmark::kMillisecond);

}  // namespace
