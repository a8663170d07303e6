// Sequence lengths, from sentences to books: 8 heads of 64, enough sequences for 4,096 tokens in all.
#include "attn/modules/linear.hpp"
#include "attn/modules/parameters.hpp"
#include "attn/ops/kv_cache.hpp"
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

/// One query against a cache that stores S, 32 query heads on 8 key-value heads of 128: from the second cache
/// to main memory.
template <attn::StorageElement S>
void decode(benchmark::State& state) {
  bench::NumpyNormal normal;
  bench::Attention<float> attention(
      {.num_heads = 32, .num_kv_heads = 8, .q_len = 1, .kv_len = state.range(0), .head_dim = 128}, normal);
  attn::KVCache<float, S> cache({.num_kv_heads = 8, .head_dim = 128, .max_len = state.range(0)});
  cache.append(attention.k, attention.v);
  const attn::SdpaOptions options{.query_offset = state.range(0) - 1, .workspace = &attention.workspace};
  bench::Cost cost = bench::attention_cost(attention.problem);
  cost.read_bytes = static_cast<double>(cache.bytes_per_token()) * static_cast<double>(state.range(0));
  bench::measure<float>(state, cost, [&] {
    attn::sdpa_into(attention.q, cache.keys(), cache.values(), attention.out, attn::Causal{}, options);
  });
}
BENCHMARK(decode<float>)
    ->ArgName("kv_len")
    ->RangeMultiplier(4)
    ->Range(64, 65536)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(decode<Eigen::bfloat16>)
    ->ArgName("kv_len")
    ->RangeMultiplier(4)
    ->Range(64, 65536)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(decode<std::int8_t>)
    ->ArgName("kv_len")
    ->RangeMultiplier(4)
    ->Range(64, 65536)
    ->Unit(benchmark::kMillisecond);

/// One row times a matrix of 49,152 x 576, as the logits of a small language model: read once, from memory.
void one_row(benchmark::State& state, attn::WeightStorage storage) {
  attn::Linear<float> linear({.in_dim = 576, .out_dim = 49152, .bias = false});
  attn::xavier_uniform(linear, 1);
  linear.store_as(storage);
  const attn::Matrix<float> x = attn::Matrix<float>::Ones(1, 576);
  attn::Matrix<float> y(1, 49152);
  attn::Workspace workspace;
  const bench::Cost cost{2.0 * 576 * 49152, static_cast<double>(linear.packed().bytes())};
  bench::measure<float>(state, cost, [&] { linear.forward_into(x, y, {.workspace = &workspace}); });
}
BENCHMARK_CAPTURE(one_row, full, attn::WeightStorage::full)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one_row, bfloat16, attn::WeightStorage::bfloat16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one_row, int8, attn::WeightStorage::int8)->Unit(benchmark::kMillisecond);

}  // namespace
