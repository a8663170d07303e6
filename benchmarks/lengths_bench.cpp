// Sequence lengths, from sentences to books: 8 heads of 64, enough sequences for 4,096 tokens in all.
#include "support/attention.hpp"
#include "support/report.hpp"

namespace {

using attn::Index;

attn::Problem of_length(Index len) {
  return {.batch = std::max<Index>(1, 4096 / len),
          .num_heads = 8,
          .num_kv_heads = 8,
          .q_len = len,
          .kv_len = len,
          .head_dim = 64};
}

template <attn::Mask M>
void attend(benchmark::State& state, const M& mask, double visible) {
  bench::NumpyNormal normal;
  bench::Attention<float> attention(of_length(state.range(0)), normal);
  bench::measure<float>(state, bench::attention_cost(attention.problem, visible),
                        [&] { attention.run(mask); });
}

void every_key(benchmark::State& state) { attend(state, attn::NoMask{}, 1); }
void causal(benchmark::State& state) {
  attend(state, attn::Causal{}, bench::causal_fraction(state.range(0), state.range(0)));
}
BENCHMARK(every_key)->ArgName("len")->RangeMultiplier(2)->Range(16, 8192)->Unit(benchmark::kMillisecond);
BENCHMARK(causal)->ArgName("len")->RangeMultiplier(2)->Range(16, 8192)->Unit(benchmark::kMillisecond);

/// One query against a cache, 32 query heads on 8 key-value heads of 128: from the second cache to main
/// memory.
void decode(benchmark::State& state) {
  bench::NumpyNormal normal;
  bench::Attention<float> attention(
      {.num_heads = 32, .num_kv_heads = 8, .q_len = 1, .kv_len = state.range(0), .head_dim = 128}, normal);
  bench::Cost cost = bench::attention_cost(attention.problem);
  cost.read_bytes = static_cast<double>(attention.k.size() + attention.v.size()) * sizeof(float);
  bench::measure<float>(state, cost, [&] { attention.run(attn::Causal{}); });
}
BENCHMARK(decode)->ArgName("kv_len")->RangeMultiplier(4)->Range(64, 65536)->Unit(benchmark::kMillisecond);

}  // namespace
