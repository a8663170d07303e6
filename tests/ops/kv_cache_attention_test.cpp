// tests/ops/kv_cache_attention_test.cpp - attention to the rows of a cache: a prompt and single tokens give
// what the whole sequence gives, for every storage, layout, mask and batch of unequal lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "attn/masks/alibi.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/window.hpp"
#include "attn/ops/kv_cache.hpp"
#include "attn/ops/rope.hpp"
#include "attn/ops/sdpa.hpp"
#include "support/attention.hpp"
#include "support/counting_new.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::KVCache;
using attn::Tensor;
using attn_test::random_tensor;

constexpr Index num_heads = 6, kv_heads = 2, head_dim = 20, value_dim = 12, total = 75;

/// Rows [batch, heads, len, dim] of stored rows, as sdpa is to read them.
template <class T, class S>
Tensor<T, 4> read_back(const attn::StoredRows<S>& x) {
  Tensor<T, 4> rows(x.extents);
  for (Index b = 0; b < x.extent(0); ++b)
    for (Index h = 0; h < x.extent(1); ++h)
      for (Index r = 0; r < x.extent(2); ++r) {
        const Index page = x.page(b, r), in_page = r % x.page_rows;
        float scale = 1;
        if constexpr (std::is_same_v<S, std::int8_t>)
          scale = x.scales[page * x.scale_strides[0] + h * x.scale_strides[1] + in_page * x.scale_strides[2]];
        for (Index c = 0; c < x.extent(3); ++c)
          rows(b, h, r, c) =
              static_cast<T>(scale) *
              static_cast<T>(
                  x.data[page * x.strides[0] + h * x.strides[1] + in_page * x.strides[2] + c * x.strides[3]]);
      }
  return rows;
}

/// Queries, keys and values of whole sequences.
template <class T>
struct Sequences {
  Tensor<T, 4> q, k, v;
  explicit Sequences(Index batch)
      : q(random_tensor<T, 4>({batch, num_heads, total, head_dim}, 1)),
        k(random_tensor<T, 4>({batch, kv_heads, total, head_dim}, 2)),
        v(random_tensor<T, 4>({batch, kv_heads, total, value_dim}, 3)) {}
};

template <class T>
attn::TensorView<const T, 4> part(const Tensor<T, 4>& x, Index begin, Index end) {
  return x.view().slice(2, {begin, end});
}

/// The whole sequence, fed to a cache in chunks of these sizes and then row by row.
template <class T, class S, class M>
Tensor<T, 4> in_chunks(KVCache<T, S>& cache, const Sequences<T>& s, std::vector<Index> chunks,
                       const M& mask) {
  Tensor<T, 4> out({cache.batch(), num_heads, total, value_dim});
  for (Index begin = 0, i = 0; begin < total; ++i) {
    const Index n = i < static_cast<Index>(chunks.size()) ? chunks[static_cast<std::size_t>(i)] : 1;
    const Index end = std::min(begin + n, total);
    cache.append(part(s.k, begin, end), part(s.v, begin, end));
    attn::sdpa_into(part(s.q, begin, end), cache.keys(), cache.values(), out.view().slice(2, {begin, end}),
                    mask, {.query_offset = cache.longest() - (end - begin)});
    begin = end;
  }
  return out;
}

/// What a storage may change: the largest error of an element of x.
template <class S, class T>
double storage_error(const Tensor<T, 4>& x) {
  const double largest = attn_test::largest(x);
  if (std::is_same_v<S, std::int8_t>) return largest / 254;
  if (std::is_same_v<S, Eigen::half>) return largest / 2048;
  if (std::is_same_v<S, Eigen::bfloat16>) return largest / 256;
  return 0;
}
/// How far attention may be off for it: scores move by at most d, so that weights change by a factor within
/// exp(+-2 d), and values by their own error.
template <class S, class T>
double attention_error(const Sequences<T>& s) {
  const double d = std::sqrt(double{head_dim}) * attn_test::largest(s.q) * storage_error<S>(s.k);
  const double values = attn_test::largest(s.v) + storage_error<S>(s.v);
  return values * (std::exp(2 * d) - 1) + storage_error<S>(s.v);
}

template <class Elements, class Stored>
struct Types {
  using T = Elements;
  using S = Stored;
};
template <class>
class CacheAttention : public testing::Test {};
using AllTypes = testing::Types<Types<float, float>, Types<double, double>, Types<float, Eigen::half>,
                                Types<float, Eigen::bfloat16>, Types<float, std::int8_t>>;
TYPED_TEST_SUITE(CacheAttention, AllTypes);

TYPED_TEST(CacheAttention, OfAPromptAndSingleTokensEqualsTheWholeSequence) {
  using T = typename TypeParam::T;
  using S = typename TypeParam::S;
  const Sequences<T> s(2);
  const double rounding = 30 * static_cast<double>(std::numeric_limits<T>::epsilon());
  const auto expect_same = [&](const auto& mask) {
    const auto plain = attn::sdpa(s.q, s.k, s.v, mask);
    for (const Index page_rows : {0, 16})
      for (const std::vector<Index>& chunks : {std::vector<Index>{total}, {40, 1, 7}, {1}, {33, 33}}) {
        KVCache<T, S> cache({.batch = 2,
                             .num_kv_heads = kv_heads,
                             .head_dim = head_dim,
                             .value_dim = value_dim,
                             .max_len = total,
                             .page_rows = page_rows});
        const auto out = in_chunks(cache, s, chunks, mask);
        const auto stored = attn::sdpa(s.q, read_back<T>(cache.keys()), read_back<T>(cache.values()), mask);
        EXPECT_LT(attn_test::distance(out, stored), rounding);
        EXPECT_LE(attn_test::distance(out, plain), attention_error<S>(s) + rounding);
      }
  };
  expect_same(attn::Causal{});
  expect_same(attn::Causal{} & attn::SlidingWindow{.left = 9});
  expect_same(attn::Causal{} & attn::Alibi(num_heads));
}

TYPED_TEST(CacheAttention, OfUnequalLengthsIsThatOfEachSequenceAlone) {
  using T = typename TypeParam::T;
  using S = typename TypeParam::S;
  const Sequences<T> s(3);
  const std::array<Index, 3> prompt{30, 0, 7}, next{1, 2, 0};
  attn::KVCacheConfig config{
      .batch = 3, .num_kv_heads = kv_heads, .head_dim = head_dim, .value_dim = value_dim, .max_len = 40};
  for (const Index page_rows : {0, 4}) {
    config.page_rows = page_rows;
    KVCache<T, S> cache(config);
    cache.append(part(s.k, 0, 30), part(s.v, 0, 30), prompt);
    const std::vector<Index> before(cache.lengths().begin(), cache.lengths().end());
    cache.append(part(s.k, 40, 42), part(s.v, 40, 42), next);
    const auto out = attn::sdpa(part(s.q, 40, 42), cache.keys(), cache.values(),
                                attn::Causal{} & attn::KeyPadding{cache.lengths()},
                                {.query_offset = std::span<const Index>(before)});
    const Tensor<T, 4> keys = read_back<T>(cache.keys()), values = read_back<T>(cache.values());
    for (Index b = 0; b < 3; ++b) {
      const Index length = cache.length(b), first = before[static_cast<std::size_t>(b)];
      const auto of = [&](const Tensor<T, 4>& x, Index begin, Index end) {
        return Tensor<T, 4>(part(x, begin, end).slice(0, {b, b + 1}));
      };
      const auto alone = attn::sdpa(of(s.q, 40, 42), of(keys, 0, length), of(values, 0, length),
                                    attn::Causal{}, {.query_offset = first});
      const Index count = next[static_cast<std::size_t>(b)];  // rows after it are padding
      EXPECT_LT(attn_test::distance(of(out, 0, count), alone.view().slice(2, {0, count})),
                30 * static_cast<double>(std::numeric_limits<T>::epsilon()));
    }
  }
}

/// The newest `window` keys and the first `sinks`.
struct WindowWithSinks {
  static constexpr bool uses_positions = true;
  Index window, sinks;
  bool allows(const attn::Site& s, const attn::Problem& p) const {
    const Index q = s.q + p.query_offset(s.batch);
    return s.k <= q && (s.k < sinks || s.k > q - window);
  }
};

TYPED_TEST(CacheAttention, InARollingWindowIsThatOfTheWholeSequenceUnderTheWindow) {
  using T = typename TypeParam::T;
  using S = typename TypeParam::S;
  const Sequences<T> s(1);
  for (const Index sinks : {0, 3})
    for (const Index page_rows : {0, 4}) {
      const WindowWithSinks mask{10, sinks};
      const attn::KVCacheConfig config{
          .num_kv_heads = kv_heads, .head_dim = head_dim, .value_dim = value_dim, .max_len = total};
      KVCache<T, S> whole(config);
      const auto expected = in_chunks(whole, s, {20, 5}, mask);
      attn::KVCacheConfig rolling = config;
      rolling.max_len = 34;
      rolling.window = 10;
      rolling.sinks = sinks;
      rolling.page_rows = page_rows;
      KVCache<T, S> cache(rolling);
      const auto out = in_chunks(cache, s, {20, 5}, mask);
      EXPECT_LT(cache.longest(), total);
      EXPECT_EQ(cache.positions()[0], total);
      EXPECT_LT(attn_test::distance(out, expected),
                30 * static_cast<double>(std::numeric_limits<T>::epsilon()));
    }
}

// Keys are rotated before they are appended, by positions in the text, or to the number of their row: without
// sinks only distances count, so that both are the whole sequence.
TEST(CacheAttentionWithRope, RollsWithPositionsOfTheTextAndWithNumbersOfRows) {
  const Sequences<float> s(1);
  const attn::RotaryEmbedding rope({.pairing = attn::RopePairing::half, .head_dim = head_dim});
  const auto mask = attn::Causal{} & attn::SlidingWindow{.left = 9};
  Tensor<float, 4> q = s.q, k = s.k;
  rope.apply(q, 0);
  rope.apply(k, 0);
  const auto expected = attn::sdpa(q, k, s.v, mask);
  for (const bool rotates_again : {false, true})
    for (const Index page_rows : {0, 4}) {
      KVCache<float> cache({.num_kv_heads = kv_heads,
                            .head_dim = head_dim,
                            .value_dim = value_dim,
                            .max_len = 24,
                            .page_rows = page_rows,
                            .window = 10});
      double worst = 0;
      for (Index t = 0; t < total; ++t) {
        if (rotates_again)
          cache.make_room(1, [&](const attn::TensorView<float, 3>& keys, Index by) { rope.shift(keys, by); });
        const Index position = cache.positions()[0];
        Tensor<float, 4> query(part(s.q, t, t + 1)), key(part(s.k, t, t + 1));
        rope.apply(query, position);
        rope.apply(key, position);
        cache.append(key, part(s.v, t, t + 1));
        const auto out =
            attn::sdpa(query, cache.keys(), cache.values(), mask, {.query_offset = cache.longest() - 1});
        worst = std::max(worst, attn_test::distance(out, expected.view().slice(2, {t, t + 1})));
      }
      EXPECT_EQ(cache.positions()[0], rotates_again ? cache.longest() : total);
      EXPECT_LT(worst, 1e-5);
    }
}

TYPED_TEST(CacheAttention, AllocatesNothingPerToken) {
  using T = typename TypeParam::T;
  const Sequences<T> s(1);
  for (const Index page_rows : {0, 16}) {
    KVCache<T, typename TypeParam::S> cache({.num_kv_heads = kv_heads,
                                             .head_dim = head_dim,
                                             .value_dim = value_dim,
                                             .max_len = total,
                                             .page_rows = page_rows});
    attn::Workspace workspace;
    Tensor<T, 4> out({1, num_heads, 1, value_dim});
    const auto step = [&](Index t) {
      cache.append(part(s.k, t, t + 1), part(s.v, t, t + 1));
      attn::sdpa_into(part(s.q, t, t + 1), cache.keys(), cache.values(), out, attn::Causal{},
                      {.query_offset = t, .workspace = &workspace});
    };
    for (Index t = 0; t < total; ++t) step(t);
    cache.truncate(30);
    EXPECT_EQ(attn_test::allocations_in([&] {
                for (Index t = 30; t < total; ++t) step(t);
              }),
              0u);
  }
}

}  // namespace
