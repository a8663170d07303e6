// Faults that users of other libraries have reported about multi-head attention and threads, one test per
// report.
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "attn/modules/multi_head_attention.hpp"
#include "support/attention.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::MultiHeadAttention;
using attn_test::random_tensor;
using attn_test::same_bits;

attn::MultiHeadAttention<float> random_module(const attn::MultiHeadAttentionConfig& config) {
  attn::MultiHeadAttention<float> module(config);
  attn_test::randomize(module, 1);
  return module;
}

TEST(ModuleFault, B08_CausalHoldsWhetherOrNotWeightsAreAskedForAndKeysArePadded) {
  const auto mha = random_module({.embed_dim = 8, .num_heads = 2});
  const auto x = random_tensor<float, 3>({1, 6, 8}, 2);
  auto changed = x;
  for (Index c = 0; c < 8; ++c) changed(0, 5, c) += 100;
  const std::array<Index, 1> lengths{5};
  const auto padded = attn::Causal{} & attn::KeyPadding{lengths};
  const auto earlier = [](const auto& out) { return attn::Tensor<float, 3>(out.view().slice(1, {0, 5})); };
  const auto expected = earlier(mha.forward(x, attn::Causal{}));
  EXPECT_TRUE(same_bits(earlier(mha.forward_with_weights(x, attn::Causal{}).out), expected));
  EXPECT_TRUE(same_bits(earlier(mha.forward(x, padded)), expected));
  EXPECT_TRUE(same_bits(earlier(mha.forward(changed, attn::Causal{})), expected));
  EXPECT_TRUE(same_bits(earlier(mha.forward_with_weights(changed, padded).out), expected));
}

TEST(ModuleFault, B26_HeadDimIsConfiguredApartFromEmbedDim) {
  const auto mha = random_module({.embed_dim = 32, .num_heads = 4, .head_dim = 16});
  EXPECT_EQ(mha.q_proj().weight().view().extents(), (attn::Dims<2>{64, 32}));
  EXPECT_EQ(mha.k_proj().weight().view().extents(), (attn::Dims<2>{64, 32}));
  EXPECT_EQ(mha.out_proj().weight().view().extents(), (attn::Dims<2>{32, 64}));
  EXPECT_EQ(mha.forward(random_tensor<float, 3>({2, 5, 32}, 2)).extents(), (attn::Dims<3>{2, 5, 32}));
}

TEST(ModuleFault, B45_AskingForWeightsNeverChangesABitOfTheOutput) {
  const auto mha = random_module({.embed_dim = 12, .num_heads = 3});
  const auto x = random_tensor<float, 3>({2, 30, 12}, 2);
  EXPECT_TRUE(same_bits(mha.forward_with_weights(x).out, mha.forward(x)));
  EXPECT_TRUE(same_bits(mha.forward_with_weights(x, attn::Causal{}).out, mha.forward(x, attn::Causal{})));
}

TEST(ModuleFault, B54_WeightsOfEachHeadAreThereAndTheirMeanIsTheAverage) {
  const auto mha = random_module({.embed_dim = 12, .num_heads = 3});
  const auto x = random_tensor<float, 3>({2, 5, 12}, 2);
  const auto weights = mha.forward_with_weights(x).weights;
  ASSERT_EQ(weights.extents(), (attn::Dims<4>{2, 3, 5, 5}));
  const auto averaged = attn::average_heads(weights);
  for (Index b = 0; b < 2; ++b)
    for (Index i = 0; i < 5; ++i)
      for (Index j = 0; j < 5; ++j) {
        const double mean =
            (static_cast<double>(weights(b, 0, i, j)) + static_cast<double>(weights(b, 1, i, j)) +
             static_cast<double>(weights(b, 2, i, j))) /
            3;
        EXPECT_NEAR(static_cast<double>(averaged(b, i, j)), mean, 1e-7);
      }
}

TEST(ModuleFault, B57_EveryParameterIsCountedAndVisited) {
  for (const Index d : {8, 24}) {
    auto mha = random_module({.embed_dim = d, .num_heads = 4});
    Index visited = 0;
    for_each_parameter(
        mha, [&](const std::string&, const auto& parameter) { visited += parameter.view().size(); });
    EXPECT_EQ(visited, 4 * d * (d + 1));
  }
}

TEST(ModuleFault, B57_ACausalMaskMakesWeightsAboveTheDiagonalExactlyZero) {
  const auto mha = random_module({.embed_dim = 8, .num_heads = 2});
  const auto x = random_tensor<float, 3>({1, 6, 8}, 2);
  const auto weights = mha.forward_with_weights(x, attn::Causal{}).weights;
  for (Index h = 0; h < 2; ++h)
    for (Index i = 0; i < 6; ++i)
      for (Index j = 0; j < 6; ++j) EXPECT_EQ(weights(0, h, i, j) == 0, j > i);
}

TEST(ThreadFault, B60_APoolOfOneRunsOnTheCallersThreadAndNestedCallsRunInline) {
  attn::ThreadPool one(1);
  const auto caller = std::this_thread::get_id();
  one.parallel_for(5, [&](Index, Index) { EXPECT_EQ(std::this_thread::get_id(), caller); });

  attn::ThreadPool pool(3);
  const auto x = random_tensor<float, 3>({4, 100, 8}, 1);
  const auto expected = attn::sdpa(x, x, x);
  std::array<bool, 8> same{};
  pool.parallel_for(8, [&](Index task, Index) {
    const auto outer = std::this_thread::get_id();
    pool.parallel_for(4, [&](Index, Index) { EXPECT_EQ(std::this_thread::get_id(), outer); });
    const auto out = attn::sdpa(x, x, x, attn::NoMask{}, {.executor = pool});
    same[static_cast<std::size_t>(task)] = same_bits(out, expected);
  });
  for (const bool result : same) EXPECT_TRUE(result);
}

}  // namespace
