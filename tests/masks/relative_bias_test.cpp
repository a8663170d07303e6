#include "attn/masks/relative_bias.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "attn/masks/tensor_mask.hpp"
#include "attn/ops/sdpa.hpp"
#include "masks/consistency.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::Problem;
using attn::RelativeBias;
using attn::RelativeBuckets;
using attn::RelativeDirection;
using attn_test::Draw;
using attn_test::error_text;

/// The buckets of keys `first`, first + 1, ... last after the query.
std::vector<Index> buckets_of(const RelativeBuckets& buckets, Index first, Index last) {
  std::vector<Index> result;
  for (Index after = first; after <= last; ++after) result.push_back(buckets.bucket(after));
  return result;
}

// 8 buckets up to distance 16: per side 0, 1 | 2-5, 6-.. since 2 + floor(2 log(d / 2) / log 8) steps at 2
// sqrt 8.
TEST(RelativeBuckets, HalveTheBucketsBetweenTheSides) {
  const RelativeBuckets buckets{.num_buckets = 8, .max_distance = 16};
  EXPECT_EQ(buckets_of(buckets, -7, 0), (std::vector<Index>{3, 3, 2, 2, 2, 2, 1, 0}));
  EXPECT_EQ(buckets_of(buckets, 1, 7), (std::vector<Index>{5, 6, 6, 6, 6, 7, 7}));
  EXPECT_EQ(buckets.bucket(-1000), 3);
  EXPECT_EQ(buckets.bucket(1000), 7);
}

// 8 buckets up to distance 16: 0-3, then steps at 4 * 4^(1/4), 4 * 4^(1/2) and 4 * 4^(3/4).
TEST(RelativeBuckets, OfACausalModelAllLieBehindTheQuery) {
  const RelativeBuckets buckets{.num_buckets = 8, .max_distance = 16, .direction = RelativeDirection::causal};
  EXPECT_EQ(buckets_of(buckets, -16, 3),
            (std::vector<Index>{7, 7, 7, 7, 7, 6, 6, 6, 6, 5, 5, 4, 4, 3, 2, 1, 0, 0, 0, 0}));
}

// T5's own: 8 distances of their own, and a new bucket at each power of sqrt 2 from there.
TEST(RelativeBuckets, OpenWherePowersAreExact) {
  const RelativeBuckets t5;
  for (const auto& [distance, bucket] : {std::pair<Index, Index>{8, 8}, {16, 10}, {32, 12}, {64, 14}}) {
    EXPECT_EQ(t5.bucket(-distance), bucket);
    EXPECT_EQ(t5.bucket(1 - distance), bucket - 1);
    EXPECT_EQ(t5.bucket(distance), 16 + bucket);
  }
  EXPECT_EQ(t5.bucket(-127), 15);
  EXPECT_EQ(t5.bucket(-128), 15);
}

TEST(RelativeBias, IsConsistent) {
  const auto table = attn_test::random_tensor<float, 2>({8, 4}, 1);
  for (const RelativeDirection direction : {RelativeDirection::bidirectional, RelativeDirection::causal})
    attn_test::expect_consistent([&](Draw& draw, const Problem&) {
      return RelativeBias(table,
                          {.num_buckets = 8, .max_distance = draw.between(5, 60), .direction = direction});
    });
}

TEST(RelativeBias, AddsTheTablesEntryOfTheBucketAndTheHead) {
  attn::Tensor<double, 2> table({8, 2});
  for (Index bucket = 0; bucket < 8; ++bucket)
    for (Index head = 0; head < 2; ++head) table(bucket, head) = static_cast<double>(10 * bucket + head);
  const RelativeBias bias(table, {.num_buckets = 8, .max_distance = 16});
  Problem p{.num_heads = 2, .q_len = 50, .kv_len = 50};
  EXPECT_EQ(bias.score(0.5, {.head = 1, .q = 3, .k = 2}, p), 11.5);
  EXPECT_EQ(bias.score(0.5, {.head = 0, .q = 3, .k = 4}, p), 50.5);
  EXPECT_EQ(bias.score(0.5, {.head = 0, .q = 45, .k = 0}, p), 30.5);
  p.offset = 40;  // query 0 stands at key 40
  EXPECT_EQ(bias.score(0.5, {.head = 1, .q = 0, .k = 41}, p), 51.5);
}

TEST(RelativeBias, IsTheBiasThatItAdds) {
  const auto x = attn_test::random_tensor<float, 3>({3, 90, 8}, 2);
  const auto table = attn_test::random_tensor<float, 2>({32, 3}, 3);
  attn::Tensor<float, 3> bias({3, 90, 90});
  for (Index h = 0; h < 3; ++h)
    for (Index q = 0; q < 90; ++q)
      for (Index k = 0; k < 90; ++k) bias(h, q, k) = table(RelativeBuckets{}.bucket(k - q), h);
  EXPECT_EQ(attn::sdpa(x, x, x, RelativeBias(table)), attn::sdpa(x, x, x, attn::AdditiveBias(bias)));
}

TEST(RelativeBias, NamesTablesAndBucketsThatDoNotFit) {
  const auto table = attn_test::random_tensor<float, 2>({8, 4}, 4);
  EXPECT_EQ(error_text<attn::ShapeError>([&] { RelativeBias{table}; }),
            "attn: RelativeBias: table [8, 4] does not have 32 buckets (first extent)");
  EXPECT_EQ(
      error_text<std::invalid_argument>([&] { RelativeBias(table, {.num_buckets = 8, .max_distance = 2}); }),
      "attn: RelativeBias: 8 buckets and max_distance 2 leave no room for logarithmic buckets");
  EXPECT_EQ(error_text<attn::ShapeError>(
                [&] { RelativeBias(table, {.num_buckets = 8}).validate({.num_heads = 6}); }),
            "attn: RelativeBias: a table for 4 heads, but 6 query heads");
}

}  // namespace
