// tests/known_faults/cached_modules_test.cpp - faults reported of other projects, about layers with caches.
#include <gtest/gtest.h>

#include "attn/masks/causal.hpp"
#include "attn/modules/multi_head_attention.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::Tensor;
using attn_test::largest_difference;
using attn_test::random_tensor;

attn::MultiHeadAttention<float> random_module(const attn::MultiHeadAttentionConfig& config) {
  attn::MultiHeadAttention<float> module(config);
  attn_test::randomize(module, 5);
  return module;
}
Tensor<float, 3> copy_of(const attn::TensorView<const float, 3>& x) {
  Tensor<float, 3> copied(x.extents());
  copy(x, copied.view());
  return copied;
}

TEST(CachedModuleFault, B26_ACacheRowHasTheHeadDimThatIsConfigured) {
  const auto module = random_module({.embed_dim = 32, .num_heads = 4, .head_dim = 16});
  const auto x = random_tensor<float, 3>({1, 3, 32}, 1);
  attn::KVCache<float> derived({.num_kv_heads = 4, .head_dim = 32 / 4, .max_len = 3});
  EXPECT_THROW((void)module.forward(x, derived, attn::Causal{}), attn::ShapeError);
  attn::KVCache<float> cache({.num_kv_heads = 4, .head_dim = 16, .max_len = 3});
  EXPECT_LT(largest_difference(module.forward(x, cache, attn::Causal{}), module.forward(x, attn::Causal{})),
            1e-6);
  EXPECT_EQ(cache.keys().extents, (attn::Dims<4>{1, 4, 3, 16}));
}

TEST(CachedModuleFault, B36_APromptOfFiveAndTwoTokensStandAtPositions0To6) {
  const auto module = random_module(
      {.embed_dim = 8, .num_heads = 2, .rope = attn::RopeConfig{.pairing = attn::RopePairing::half}});
  const auto x = random_tensor<float, 3>({1, 7, 8}, 2);
  const auto whole = module.forward(x, attn::Causal{});
  attn::KVCache<float> cache({.num_kv_heads = 2, .head_dim = 4, .max_len = 7});
  Index begin = 0;
  for (const Index n : {5, 1, 1}) {
    const auto part = module.forward(x.view().slice(1, {begin, begin + n}), cache, attn::Causal{});
    EXPECT_LT(largest_difference(part, copy_of(whole.view().slice(1, {begin, begin + n}))), 1e-6);
    begin += n;
  }
  // Position 6 is that of the rotation: key 6 in the cache is row 6 of all keys, rotated.
  auto keys = module.k_proj().forward(x);
  module.rope()->apply(attn::split_heads(keys, 2), 0);
  const attn::StoredRows<float> stored = cache.keys();
  for (Index c = 0; c < 4; ++c) EXPECT_NEAR(stored.data[6 * stored.strides[2] + c], keys(0, 6, c), 1e-6);
}

TEST(CachedModuleFault, B43_ACrossAttentionCacheIsFilledOnceAndAgainOnlyAfterAReset) {
  const auto module = random_module({.embed_dim = 8, .num_heads = 2});
  const auto memory = random_tensor<float, 3>({1, 6, 8}, 3), other = random_tensor<float, 3>({1, 4, 8}, 4);
  const auto x = random_tensor<float, 3>({1, 3, 8}, 5);
  attn::KVCache<float> cache(
      {.num_kv_heads = 2, .head_dim = 4, .max_len = 8, .kind = attn::CacheKind::cross_attention});
  module.fill_cross_cache(memory, cache);
  for (Index step = 0; step < 3; ++step) {
    const auto query = x.view().slice(1, {step, step + 1});
    EXPECT_LT(largest_difference(module.forward_cross(query, cache), module.forward(query, memory, memory)),
              1e-6);
    EXPECT_EQ(cache.length(0), 6);
  }
  EXPECT_THROW(module.fill_cross_cache(other, cache), std::invalid_argument);
  EXPECT_LT(largest_difference(module.forward_cross(x, cache), module.forward(x, memory, memory)), 1e-6);
  cache.reset();
  module.fill_cross_cache(other, cache);
  EXPECT_LT(largest_difference(module.forward_cross(x, cache), module.forward(x, other, other)), 1e-6);
}

TEST(CachedModuleFault, B43_PaddingTheMemoryChangesNothing) {
  const auto module = random_module({.embed_dim = 8, .num_heads = 2});
  const auto padded = random_tensor<float, 3>({1, 9, 8}, 6);
  const auto x = random_tensor<float, 3>({1, 3, 8}, 7);
  const auto filled_with = [&](Index rows, Index count) {
    attn::KVCache<float> cache(
        {.num_kv_heads = 2, .head_dim = 4, .max_len = 9, .kind = attn::CacheKind::cross_attention});
    module.fill_cross_cache(padded.view().slice(1, {0, rows}), cache, {.counts = {&count, 1}});
    return module.forward_cross(x, cache);
  };
  EXPECT_EQ(filled_with(9, 6), filled_with(6, 6));
}

TEST(CachedModuleFault, B45_KeepingKeysAndValuesNeverChangesABitOfTheOutput) {
  for (const Index num_kv_heads : {1, 4})
    for (const bool rope : {false, true}) {
      attn::MultiHeadAttentionConfig config{.embed_dim = 32, .num_heads = 4, .num_kv_heads = num_kv_heads};
      if (rope) config.rope = attn::RopeConfig{.pairing = attn::RopePairing::interleaved};
      const auto module = random_module(config);
      for (const Index len : {1, 7, 40}) {
        const auto x = random_tensor<float, 3>({2, len, 32}, 8);
        attn::KVCache<float> cache({.batch = 2, .num_kv_heads = num_kv_heads, .head_dim = 8, .max_len = len});
        const auto out = module.forward(x, attn::Causal{});
        EXPECT_EQ(module.forward(x, cache, attn::Causal{}), out);
        EXPECT_EQ(module.forward_with_weights(x, attn::Causal{}).out, out);
      }
    }
}

}  // namespace
