// What a mask costs: each against no mask on the same tensors. Counted are the pairs that the mask leaves.
#include <numeric>
#include <vector>

#include "attn/masks/alibi.hpp"
#include "support/attention.hpp"
#include "support/report.hpp"

namespace {

using attn::Index;

/// 8 sequences of 512, 512 wide, in heads of range(0).
struct Setting {
  bench::NumpyNormal normal;
  bench::Attention<float> attention;
  explicit Setting(const benchmark::State& state)
      : attention({.batch = 8,
                   .num_heads = 512 / state.range(0),
                   .num_kv_heads = 512 / state.range(0),
                   .q_len = 512,
                   .kv_len = 512,
                   .head_dim = state.range(0)},
                  normal) {}

  template <attn::Mask M>
  void measure(benchmark::State& state, const M& mask, double visible = 1,
               const attn::SdpaOptions& options = {}) {
    bench::measure<float>(state, bench::attention_cost(attention.problem, visible),
                          [&] { attention.run(mask, options); });
  }
};

void none(benchmark::State& state) { Setting(state).measure(state, attn::NoMask{}); }

void causal(benchmark::State& state) {
  Setting(state).measure(state, attn::Causal{}, bench::causal_fraction(512, 512));
}

void padding(benchmark::State& state) {
  const std::vector<Index> lengths{491, 368, 391, 473, 350, 426, 448, 214};
  const auto kept = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), Index{0}));
  Setting(state).measure(state, attn::KeyPadding{lengths}, kept / (8 * 512));
}

void soft_cap(benchmark::State& state) { Setting(state).measure(state, attn::NoMask{}, 1, {.soft_cap = 30}); }

void bias_per_head(benchmark::State& state) {
  Setting setting(state);
  const auto bias = bench::normal_tensor<float, 4>(setting.normal, {8, 512 / state.range(0), 512, 512});
  setting.measure(state, attn::AdditiveBias{bias});
}

void bias_shared_by_heads(benchmark::State& state) {
  Setting setting(state);
  const auto bias = bench::normal_tensor<float, 4>(setting.normal, {8, 1, 512, 512});
  setting.measure(state, attn::AdditiveBias{bias});
}

void alibi(benchmark::State& state) { Setting(state).measure(state, attn::Alibi{512 / state.range(0)}); }

/// Bytes of which every eighth hides its pair.
void keep_per_head(benchmark::State& state) {
  Setting setting(state);
  const Index heads = 512 / state.range(0);
  std::vector<std::uint8_t> keep(static_cast<std::size_t>(8 * heads * 512 * 512));
  for (std::size_t i = 0; i < keep.size(); ++i) keep[i] = i % 8 != 3;
  const attn::TensorView<const std::uint8_t, 4> view(keep.data(), {8, heads, 512, 512});
  setting.measure(state, attn::KeepMask{view});
}

/// A mask of the user's own, in one line, with none of the hooks that make it fast: hides every eighth
/// diagonal.
struct OwnFilter {
  bool allows(const attn::Site& s, const attn::Problem&) const { return ((s.q - s.k) & 7) != 3; }
};
void own_filter(benchmark::State& state) { Setting(state).measure(state, OwnFilter{}); }

/// A score change of the user's own: a penalty for distance.
struct OwnScore {
  template <class A>
  A score(A value, const attn::Site& s, const attn::Problem&) const {
    return value - A(0.01) * static_cast<A>(s.q > s.k ? s.q - s.k : s.k - s.q);
  }
};
void own_score(benchmark::State& state) { Setting(state).measure(state, OwnScore{}); }

#define ATTN_MASK_BENCHMARK(name) \
  BENCHMARK(name)->ArgName("head_dim")->Arg(64)->Arg(128)->Unit(benchmark::kMillisecond)

ATTN_MASK_BENCHMARK(none);
ATTN_MASK_BENCHMARK(causal);
ATTN_MASK_BENCHMARK(padding);
ATTN_MASK_BENCHMARK(soft_cap);
ATTN_MASK_BENCHMARK(bias_per_head);
ATTN_MASK_BENCHMARK(bias_shared_by_heads);
ATTN_MASK_BENCHMARK(alibi);
ATTN_MASK_BENCHMARK(keep_per_head);
ATTN_MASK_BENCHMARK(own_filter);
ATTN_MASK_BENCHMARK(own_score);

}  // namespace
