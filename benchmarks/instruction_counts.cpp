// Small fixed pieces of work whose executed instructions are counted under valgrind: unlike times, counts
// repeat. instruction_counts.py runs this program and compares with instruction_bounds.json.
//
//   instruction_counts              what it is built with, then the names of the work, one a line
//   instruction_counts NAME         does that work, once to warm up and once inside counted_region()
#include <cstdio>
#include <string_view>
#include <vector>

#include "attn/modules/multi_head_attention.hpp"
#include "support/attention.hpp"

/// Valgrind finds the function by this name and counts what happens inside.
extern "C" [[gnu::noinline]] void counted_region(void (*call)(void*), void* work) {
  call(work);
  asm volatile("" : : : "memory");  // or the call would be a jump that leaves the function
}

namespace {

using attn::Index;
using attn::Problem;
using attn::Tensor;

template <class F>
void count(F work) {
  work();
  counted_region([](void* w) { (*static_cast<F*>(w))(); }, &work);
}

template <class T = float, attn::Mask M>
void count_attention(const Problem& p, const M& mask) {
  bench::NumpyNormal normal;
  bench::Attention<T> attention(p, normal);
  count([&] { attention.run(mask); });
}

constexpr Index len = 192;
Problem sentence(Index head_dim) {
  return {.num_heads = 4, .num_kv_heads = 4, .q_len = len, .kv_len = len, .head_dim = head_dim};
}
Problem grouped(Index q_len) {
  return {.num_heads = 8, .num_kv_heads = 2, .q_len = q_len, .kv_len = 1024, .head_dim = 64};
}

void none() { count_attention(sentence(64), attn::NoMask{}); }
void none_double() { count_attention<double>(sentence(64), attn::NoMask{}); }
void head_dim_16() { count_attention(sentence(16), attn::NoMask{}); }
void head_dim_100() { count_attention(sentence(100), attn::NoMask{}); }
void causal() { count_attention(sentence(64), attn::Causal{}); }
void padding() {
  const std::vector<Index> lengths{133};
  count_attention(sentence(64), attn::KeyPadding{lengths});
}
void bias() {
  bench::NumpyNormal normal;
  const auto values = bench::normal_tensor<float, 2>(normal, {len, len});
  count_attention(sentence(64), attn::AdditiveBias{values});
}

/// As a user writes it: no hooks.
struct OwnFilter {
  bool allows(const attn::Site& s, const Problem&) const { return ((s.q - s.k) & 7) != 3; }
};
void own_filter() { count_attention(sentence(64), OwnFilter{}); }

void decode() { count_attention(grouped(1), attn::Causal{}); }
void eight_queries() { count_attention(grouped(8), attn::Causal{}); }

/// Where the work around the products counts most.
void tiny_layer() {
  constexpr Index tokens = 8, dim = 64;
  bench::NumpyNormal normal;
  const auto x = bench::normal_tensor<float, 2>(normal, {tokens, dim});
  Tensor<float, 2> out(x.extents());
  attn::MultiHeadAttention<float> layer({.embed_dim = dim, .num_heads = 2});
  attn::Workspace workspace;
  count([&] { layer.forward_into(x, out, attn::NoMask{}, {.workspace = &workspace}); });
}

void projection() {
  bench::NumpyNormal normal;
  const auto x = bench::normal_tensor<float, 2>(normal, {50, 128});
  Tensor<float, 2> out(x.extents());
  const auto packed = attn::pack_linear<float>(bench::normal_tensor<float, 2>(normal, {128, 128}).view());
  attn::Workspace workspace;
  count([&] { attn::linear_into(x.view(), packed, out.view(), {.workspace = &workspace}); });
}

struct Work {
  std::string_view name;
  void (*run)();
};
constexpr Work all_work[] = {
    {"none", none},
    {"none_double", none_double},
    {"causal", causal},
    {"head_dim_16", head_dim_16},
    {"padding", padding},
    {"head_dim_100", head_dim_100},
    {"bias", bias},
    {"eight_queries", eight_queries},
    {"decode", decode},
    {"own_filter", own_filter},
    {"projection", projection},
    {"tiny_layer", tiny_layer},
};

/// Counts belong to a compiler and an Eigen.
void print_build() {
#if defined(__clang__)
  std::printf("clang++ %d", __clang_major__);
#else
  std::printf("g++ %d", __GNUC__);
#endif
#if defined(EIGEN_VERSION_STRING)  // since Eigen 5
  std::printf(", Eigen %s\n", EIGEN_VERSION_STRING);
#else
  std::printf(", Eigen %d.%d.%d\n", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) print_build();
  for (const Work& work : all_work) {
    if (argc < 2) std::printf("%s\n", work.name.data());
    if (argc == 2 && work.name == argv[1]) return work.run(), 0;
  }
  return argc < 2 ? 0 : 1;
}
