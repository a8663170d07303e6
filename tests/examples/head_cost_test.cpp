#include "common/head_cost.hpp"

#include <gtest/gtest.h>

namespace {

using attn::Index;
using namespace attn::examples;

TEST(HeadCost, OfTheBaseModelIsThatOfThePaper) {
  const HeadCounts base;  // "Attention Is All You Need": d_model 512, 8 heads
  EXPECT_EQ(base.head_dim(), 64);
  EXPECT_EQ(parameter_count(base), 4 * 512 * 512);
}

TEST(HeadCost, IsTheSameForAnyNumberOfHeads) {
  const HeadCounts one{.num_heads = 1, .num_kv_heads = 1};
  for (const Index heads : {4, 8, 16, 32}) {
    const HeadCounts many{.num_heads = heads, .num_kv_heads = heads};
    EXPECT_EQ(parameter_count(many), parameter_count(one));
    EXPECT_EQ(total_flops(many), total_flops(one));
    EXPECT_EQ(kv_cache_bytes(many), kv_cache_bytes(one));
  }
}

TEST(HeadCost, OfTheCacheFallsWithTheGroupSize) {
  const HeadCounts mha{.num_heads = 32, .num_kv_heads = 32};
  const HeadCounts gqa{.num_heads = 32, .num_kv_heads = 8};
  const HeadCounts mqa{.num_heads = 32, .num_kv_heads = 1};
  EXPECT_EQ(kv_cache_bytes(mha), 4 * kv_cache_bytes(gqa));
  EXPECT_EQ(kv_cache_bytes(mha), 32 * kv_cache_bytes(mqa));
  EXPECT_EQ(attention_flops(mha), attention_flops(mqa));
}

TEST(HeadCost, CountsMatrixProducts) {
  const HeadCounts c{.d_model = 6, .length = 5, .batch = 3, .num_heads = 2, .num_kv_heads = 1};
  // Q and O: 6 x 6, K and V: 6 x 3, over 15 tokens; scores and weighted sums: 2 heads of 5 x 5 x 3.
  EXPECT_EQ(projection_flops(c), 2 * 15 * (2 * 36 + 2 * 18));
  EXPECT_EQ(attention_flops(c), 3 * 2 * 2 * (2 * 5 * 5 * 3));
}

TEST(HeadSweep, ListsEveryDivisor) {
  std::vector<Index> pairs;
  for (const HeadCounts& c : head_sweep({}, {1, 8})) pairs.insert(pairs.end(), {c.num_heads, c.num_kv_heads});
  EXPECT_EQ(pairs, (std::vector<Index>{1, 1, 8, 8, 8, 4, 8, 2, 8, 1}));
}

TEST(HeadSweep, RefusesHeadsThatDoNotDivideTheWidth) {
  EXPECT_THROW(head_sweep({}, {7}), std::invalid_argument);
  EXPECT_THROW(head_sweep({}, {0}), std::invalid_argument);
}

}  // namespace
