// Whole multi-head attention layers and the projections alone, weights packed beforehand.
#include <algorithm>
#include <cmath>

#include "attn/modules/multi_head_attention.hpp"
#include "support/inputs.hpp"
#include "support/report.hpp"

namespace {

using attn::Index;

void layer(benchmark::State& state, Index batch, Index len, Index num_heads, Index head_dim) {
  const Index embed_dim = num_heads * head_dim;
  bench::NumpyNormal normal;
  const auto x = bench::normal_tensor<float, 3>(normal, {batch, len, embed_dim});
  attn::Tensor<float, 3> out(x.extents());
  attn::MultiHeadAttention<float> attention({.embed_dim = embed_dim, .num_heads = num_heads, .bias = false});
  const float scale = 1 / std::sqrt(static_cast<float>(embed_dim));
  for (auto* projection :
       {&attention.q_proj(), &attention.k_proj(), &attention.v_proj(), &attention.out_proj()})
    projection->weight().assign(bench::normal_tensor<float, 2>(normal, {embed_dim, embed_dim}, scale));
  attn::Workspace workspace;

  const attn::Problem p{.batch = batch,
                        .num_heads = num_heads,
                        .num_kv_heads = num_heads,
                        .q_len = len,
                        .kv_len = len,
                        .head_dim = head_dim,
                        .value_dim = head_dim};
  bench::Cost cost = bench::attention_cost(p);
  cost.operations += 8.0 * static_cast<double>(batch * len * embed_dim * embed_dim);
  bench::measure<float>(state, cost,
                        [&] { attention.forward_into(x, out, attn::NoMask{}, {.workspace = &workspace}); });
}
BENCHMARK_CAPTURE(layer, base_1_head, 8, 512, 1, 512)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer, base_4_heads, 8, 512, 4, 128)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer, base_8_heads, 8, 512, 8, 64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer, base_16_heads, 8, 512, 16, 32)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer, base_32_heads, 8, 512, 32, 16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(layer, small_128_tokens, 1, 128, 4, 64)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(layer, small_64_tokens, 1, 64, 4, 64)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(layer, small_16_tokens, 1, 16, 4, 64)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(layer, tiny_8_tokens, 1, 8, 2, 32)->Unit(benchmark::kMicrosecond);

/// tokens x 512 times 512 x 512; few tokens read the weights at the speed of the cache that holds them.
void projection(benchmark::State& state) {
  constexpr Index dim = 512;
  bench::NumpyNormal normal;
  const auto x = bench::normal_tensor<float, 2>(normal, {state.range(0), dim});
  attn::Tensor<float, 2> out(x.extents());
  const auto weight = bench::normal_tensor<float, 2>(normal, {dim, dim});
  const auto packed = attn::pack_linear<float>(weight.view());
  attn::Workspace workspace;
  bench::Cost cost{2.0 * dim * dim * static_cast<double>(state.range(0))};
  if (state.range(0) <= 4) cost.read_bytes = sizeof(float) * dim * dim;
  bench::measure<float>(state, cost,
                        [&] { attn::linear_into(x.view(), packed, out.view(), {.workspace = &workspace}); });
}
BENCHMARK(projection)
    ->ArgName("tokens")
    ->ArgsProduct({{1, 4, 16, 64, 128, 512, 2048, 8192}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
