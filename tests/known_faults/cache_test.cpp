// Faults that users of other libraries have reported about caches of keys and values, one test per report.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/modules/multi_head_attention.hpp"
#include "attn/ops/kv_cache.hpp"
#include "support/attention.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::KVCache;
using attn_test::error_text;
using attn_test::random_tensor;
using attn_test::same_bits;

/// Rows [0, length(0)) of a cache of one float sequence, [heads, length, dim].
attn::Tensor<float, 3> rows_of(const attn::StoredRows<float>& x) {
  attn::Tensor<float, 3> rows({x.extent(1), x.extent(2), x.extent(3)});
  for (Index h = 0; h < x.extent(1); ++h)
    for (Index r = 0; r < x.extent(2); ++r)
      for (Index c = 0; c < x.extent(3); ++c)
        rows(h, r, c) = x.data[x.page(0, r) * x.strides[0] + h * x.strides[1] +
                               r % x.page_rows * x.strides[2] + c * x.strides[3]];
  return rows;
}

// A cache sized by d_model / heads = 8 was written to by rows of 16.
TEST(CacheFault, B26_TheHeadSizeOfTheLayerIsThatOfTheCache) {
  attn::MultiHeadAttention<float> mha({.embed_dim = 32, .num_heads = 4, .head_dim = 16});
  attn_test::randomize(mha, 1);
  const auto x = random_tensor<float, 3>({1, 5, 32}, 2);
  KVCache<float> cache({.num_kv_heads = 4, .head_dim = 16, .max_len = 5});
  const auto with_cache = mha.forward(x, cache, attn::Causal{});
  EXPECT_EQ(cache.keys().extents, (attn::Dims<4>{1, 4, 5, 16}));
  EXPECT_EQ(cache.bytes_per_token(), std::size_t{4 * (16 + 16) * 4});
  EXPECT_LT(attn_test::distance(with_cache, mha.forward(x, attn::Causal{})), 1e-6);
  KVCache<float> narrow({.num_kv_heads = 4, .head_dim = 8, .max_len = 5});
  EXPECT_THROW((void)mha.forward(x, narrow, attn::Causal{}), attn::ShapeError);
  EXPECT_EQ(narrow.longest(), 0);
}

TEST(CacheFault, B32_LengthsAndSequencesThatAreNotThereAreErrors) {
  KVCache<float> cache({.batch = 2, .num_kv_heads = 1, .head_dim = 2, .max_len = 4, .page_rows = 2});
  const attn::Tensor<float, 4> rows({2, 1, 3, 2}), five({2, 1, 5, 2});
  EXPECT_THROW(cache.append(rows, rows, std::array<Index, 2>{4, 0}), attn::ShapeError);   // rows of k
  EXPECT_THROW(cache.append(rows, rows, std::array<Index, 2>{-1, 0}), attn::ShapeError);  // decreasing
  EXPECT_THROW(cache.append(five, five), std::length_error);                              // capacity
  EXPECT_EQ(cache.longest(), 0);
  cache.append(rows, rows);
  EXPECT_THROW(cache.truncate(std::array<Index, 2>{4, 0}), attn::ShapeError);  // not that long
  EXPECT_THROW(cache.reorder(std::array<Index, 2>{0, 2}), attn::ShapeError);   // sequence = batch
  EXPECT_THROW((void)cache.fork(std::array<Index, 1>{2}), attn::ShapeError);
  EXPECT_THROW(cache.assign(rows.view(), rows.view(), std::array<Index, 2>{3, 4}), attn::ShapeError);
  EXPECT_EQ(cache.length(0), 3);
  EXPECT_EQ(cache.length(1), 3);
}

TEST(CacheFault, B35_AnAppendPastTheCapacityIsAnErrorThatChangesNothing) {
  const auto k = random_tensor<float, 3>({2, 5, 8}, 1), v = random_tensor<float, 3>({2, 5, 8}, 2);
  const auto part = [](const attn::Tensor<float, 3>& x, Index begin, Index end) {
    return x.view().slice(1, {begin, end});
  };
  for (const Index page_rows : {0, 2, 3}) {
    attn::KVCacheConfig config{.num_kv_heads = 2, .head_dim = 8, .max_len = 4, .page_rows = page_rows};
    KVCache<float> cache(config);
    cache.append(part(k, 0, 3), part(v, 0, 3));
    EXPECT_EQ(error_text<std::length_error>([&] { cache.append(part(k, 3, 5), part(v, 3, 5)); }),
              "attn: KVCache: sequence 0 has 3 rows and gets 2, but there is room for 4 (max_len)");
    EXPECT_EQ(cache.length(0), 3);
    EXPECT_TRUE(same_bits(rows_of(cache.keys()), attn::Tensor<float, 3>(part(k, 0, 3))));
    EXPECT_TRUE(same_bits(rows_of(cache.values()), attn::Tensor<float, 3>(part(v, 0, 3))));

    config.growth = attn::Growth::doubling;
    KVCache<float> growing(config);
    growing.append(part(k, 0, 3), part(v, 0, 3));
    growing.append(part(k, 3, 5), part(v, 3, 5));
    EXPECT_TRUE(same_bits(rows_of(growing.keys()), k));
    EXPECT_TRUE(same_bits(rows_of(growing.values()), v));
  }
}

TEST(CacheFault, B43_CrossAttentionKeysAreFilledOnceAndFollowTheBeams) {
  const auto q = random_tensor<float, 4>({2, 4, 3, 8}, 1), k = random_tensor<float, 4>({2, 2, 6, 8}, 2),
             v = random_tensor<float, 4>({2, 2, 6, 8}, 3), other = random_tensor<float, 4>({2, 2, 6, 8}, 4);
  for (const Index page_rows : {0, 4}) {
    const attn::KVCacheConfig config{.batch = 2,
                                     .num_kv_heads = 2,
                                     .head_dim = 8,
                                     .max_len = 6,
                                     .kind = attn::CacheKind::cross_attention,
                                     .page_rows = page_rows};
    KVCache<float> cache(config);
    cache.append(k, v);
    const auto whole = attn::sdpa(q, k, v);
    for (Index step = 0; step < 3; ++step) {
      const attn::Tensor<float, 4> query(q.view().slice(2, {step, step + 1}));
      EXPECT_LT(attn_test::distance(attn::sdpa(query, cache.keys(), cache.values()),
                                    whole.view().slice(2, {step, step + 1})),
                2e-6);
    }
    EXPECT_THROW(cache.append(other, other), std::invalid_argument);

    cache.reorder(std::array<Index, 2>{1, 0});
    const auto swapped = attn::sdpa(q, cache.keys(), cache.values());
    for (const Index b : {0, 1}) {
      const auto of = [&](const attn::Tensor<float, 4>& x, Index entry) {
        return attn::Tensor<float, 3>(x.view()[entry]);
      };
      EXPECT_LT(attn_test::distance(swapped.view()[b], attn::sdpa(of(q, b), of(k, 1 - b), of(v, 1 - b))),
                2e-6);
    }

    cache.reset();  // a new input, padded behind its end: nothing of the old one is left
    auto padded = other;
    for (Index h = 0; h < 2; ++h)
      for (Index c = 0; c < 8; ++c) padded(1, h, 5, c) = 1e9F;
    const std::array<Index, 2> lengths{6, 5};
    cache.append(padded, padded, lengths);
    EXPECT_TRUE(same_bits(attn::sdpa(q, cache.keys(), cache.values(), attn::KeyPadding{cache.lengths()}),
                          attn::sdpa(q, other, other, attn::KeyPadding{lengths})));
  }
}

TEST(CacheFault, B44_IntegerKeysCannotBeRotatedAgainAndSaySo) {
  KVCache<float, std::int8_t> cache(
      {.num_kv_heads = 2, .head_dim = 8, .max_len = 6, .window = 3, .sinks = 1});
  const auto k = random_tensor<float, 3>({2, 6, 8}, 1), v = random_tensor<float, 3>({2, 6, 8}, 2);
  cache.append(k, v);
  EXPECT_EQ(
      error_text<std::invalid_argument>(
          [&] { cache.make_room(2, [](const attn::TensorView<std::int8_t, 3>&, Index) { FAIL(); }); }),
      "attn: KVCache::make_room: keys kept as int8 cannot be rotated again, their rows share one scale; "
      "use a 16-bit or float cache");
  EXPECT_EQ(cache.length(0), 6);
  const attn::StoredRows<std::int8_t> keys = cache.keys();
  for (Index h = 0; h < 2; ++h)
    for (Index r = 0; r < 6; ++r) {
      const auto scale = static_cast<double>(keys.scales[h * keys.scale_strides[1] + r]);
      for (Index c = 0; c < 8; ++c) {
        const auto stored = static_cast<double>(keys.data[h * keys.strides[1] + r * keys.strides[2] + c]);
        EXPECT_LE(std::abs(scale * stored - static_cast<double>(k(h, r, c))), scale / 2);
      }
    }
}

}  // namespace
