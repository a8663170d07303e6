// The same work cut into 1 to 32 query heads, with every number of key-value heads that divides them: many
// (multi-head), few (grouped-query) and one (multi-query). The number of operations does not change with
// either.
#include "support/attention.hpp"
#include "support/report.hpp"

namespace {

using attn::Index;

constexpr Index embed_dim = 512;
constexpr Index heads[] = {1, 4, 8, 16, 32};

void head_counts(benchmark::internal::Benchmark* b) {
  for (const Index num_heads : heads)
    for (Index num_kv_heads = num_heads; num_kv_heads > 0; --num_kv_heads)
      if (num_heads % num_kv_heads == 0) b->Args({num_heads, num_kv_heads});
  b->ArgNames({"num_heads", "num_kv_heads"})->Unit(benchmark::kMillisecond);
}

/// All queries of 8 sentences of 512 tokens.
void prefill(benchmark::State& state) {
  const Index num_heads = state.range(0);
  bench::NumpyNormal normal;
  bench::Attention<float> attention({.batch = 8,
                                     .num_heads = num_heads,
                                     .num_kv_heads = state.range(1),
                                     .q_len = 512,
                                     .kv_len = 512,
                                     .head_dim = embed_dim / num_heads},
                                    normal);
  bench::measure<float>(state, bench::attention_cost(attention.problem),
                        [&] { attention.run(attn::NoMask{}); });
}
BENCHMARK(prefill)->Apply(head_counts);

/// One query against 8,192 cached keys: fewer key-value heads are fewer bytes.
void decode(benchmark::State& state) {
  const Index num_heads = state.range(0);
  bench::NumpyNormal normal;
  bench::Attention<float> attention({.num_heads = num_heads,
                                     .num_kv_heads = state.range(1),
                                     .q_len = 1,
                                     .kv_len = 8192,
                                     .head_dim = embed_dim / num_heads},
                                    normal);
  bench::Cost cost = bench::attention_cost(attention.problem);
  cost.read_bytes = static_cast<double>(attention.k.size() + attention.v.size()) * sizeof(float);
  bench::measure<float>(state, cost, [&] { attention.run(attn::Causal{}); });
}
BENCHMARK(decode)->Apply(head_counts);

}  // namespace
