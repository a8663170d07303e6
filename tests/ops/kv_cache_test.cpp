// tests/ops/kv_cache_test.cpp - KVCache: what was appended is there, in every storage and layout, whatever
// was done to the cache meanwhile.
#include "attn/ops/kv_cache.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "attn/core/random.hpp"
#include "attn/ops/heads.hpp"
#include "support/counting_new.hpp"
#include "support/draw.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::KVCache;
using attn::KVCacheConfig;
using attn::StoredRows;
using attn_test::random_tensor;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// An element by the formula of StoredRows, in double.
template <class S>
double element(const StoredRows<S>& x, Index b, Index h, Index r, Index c) {
  const Index page = x.pages != nullptr ? x.pages[b * x.pages_per_entry + r / x.page_rows] : b;
  const Index row = r % x.page_rows;
  const auto stored = static_cast<double>(
      x.data[page * x.strides[0] + h * x.strides[1] + row * x.strides[2] + c * x.strides[3]]);
  if constexpr (std::is_same_v<S, std::int8_t>)
    return stored *
           static_cast<double>(
               x.scales[page * x.scale_strides[0] + h * x.scale_strides[1] + row * x.scale_strides[2]]);
  else
    return stored;
}

/// Rows of a sequence, [row][head][column] one after the other.
template <class S>
std::vector<double> sequence(const StoredRows<S>& x, Index b, Index length) {
  std::vector<double> values;
  for (Index r = 0; r < length; ++r)
    for (Index h = 0; h < x.extent(1); ++h)
      for (Index c = 0; c < x.extent(3); ++c) values.push_back(element(x, b, h, r, c));
  return values;
}
template <class T>
std::vector<double> sequence(const attn::TensorView<const T, 4>& x, Index b, Index length) {
  std::vector<double> values;
  for (Index r = 0; r < length; ++r)
    for (Index h = 0; h < x.extent(1); ++h)
      for (Index c = 0; c < x.extent(3); ++c) values.push_back(static_cast<double>(x(b, h, r, c)));
  return values;
}
/// Keys and values of all sequences.
template <class T, class S>
std::vector<std::vector<double>> contents(const KVCache<T, S>& cache) {
  std::vector<std::vector<double>> all;
  for (Index b = 0; b < cache.batch(); ++b) {
    all.push_back(sequence(cache.keys(), b, cache.length(b)));
    all.push_back(sequence(cache.values(), b, cache.length(b)));
  }
  return all;
}
std::vector<Index> as_vector(std::span<const Index> values) { return {values.begin(), values.end()}; }

/// Keys and values to append.
template <class T>
struct Rows {
  attn::Tensor<T, 4> k, v;
  Rows(const KVCacheConfig& c, Index n, std::uint64_t seed)
      : k(random_tensor<T, 4>({c.batch, c.num_kv_heads, n, c.head_dim}, 2 * seed)),
        v(random_tensor<T, 4>({c.batch, c.num_kv_heads, n, c.value_dim ? c.value_dim : c.head_dim},
                              2 * seed + 1)) {}
  attn::TensorView<const T, 4> keys(Index begin, Index end) const { return k.view().slice(2, {begin, end}); }
  attn::TensorView<const T, 4> values(Index begin, Index end) const {
    return v.view().slice(2, {begin, end});
  }
};

template <class Elements, class Stored>
struct Types {
  using T = Elements;
  using S = Stored;
};
template <class>
class Cache : public testing::Test {};
using AllTypes =
    testing::Types<Types<float, float>, Types<double, double>, Types<Eigen::half, Eigen::half>,
                   Types<Eigen::bfloat16, Eigen::bfloat16>, Types<float, Eigen::half>,
                   Types<float, Eigen::bfloat16>, Types<float, std::int8_t>, Types<double, float>,
                   Types<Eigen::bfloat16, Eigen::half>, Types<double, std::int8_t>, Types<float, double>>;
TYPED_TEST_SUITE(Cache, AllTypes);

constexpr Index layouts[] = {0, 1, 4, 64};  // page_rows

TYPED_TEST(Cache, AppendInChunksIsAppendAtOnce) {
  using Cached = KVCache<typename TypeParam::T, typename TypeParam::S>;
  for (const Index page_rows : layouts)
    for (const Index chunk : {1, 2, 3, 7, 16, 30}) {
      const KVCacheConfig config{.batch = 2,
                                 .num_kv_heads = 3,
                                 .head_dim = 70,
                                 .value_dim = 5,
                                 .max_len = 30,
                                 .page_rows = page_rows};
      const Rows<typename TypeParam::T> rows(config, 30, 1);
      Cached whole(config), parts(config);
      whole.append(rows.k, rows.v);
      for (Index begin = 0; begin < 30; begin += chunk) {
        const Index end = std::min<Index>(begin + chunk, 30);
        parts.append(rows.keys(begin, end), rows.values(begin, end));
      }
      EXPECT_EQ(parts.longest(), 30);
      EXPECT_TRUE(parts.uniform());
      EXPECT_EQ(contents(parts), contents(whole)) << page_rows << " " << chunk;
    }
}

// Half and bfloat16 hold what Eigen's own conversion of one element gives; integers are off by half a step.
TYPED_TEST(Cache, RowsReadBackAsTheStorageHoldsThem) {
  using T = typename TypeParam::T;
  using S = typename TypeParam::S;
  for (const Index page_rows : layouts) {
    const KVCacheConfig config{.batch = 2,
                               .num_kv_heads = 2,
                               .head_dim = 67,
                               .value_dim = 130,
                               .max_len = 9,
                               .page_rows = page_rows};
    const Rows<T> rows(config, 9, 3);
    KVCache<T, S> cache(config);
    cache.append(rows.k, rows.v);
    const auto expect_rows = [](const StoredRows<S>& stored, const attn::Tensor<T, 4>& x) {
      ASSERT_EQ(stored.extents, x.extents());
      for (Index b = 0; b < x.extent(0); ++b)
        for (Index h = 0; h < x.extent(1); ++h)
          for (Index r = 0; r < x.extent(2); ++r) {
            double largest = 0;
            for (Index c = 0; c < x.extent(3); ++c)
              largest = std::max(largest, std::abs(static_cast<double>(x(b, h, r, c))));
            for (Index c = 0; c < x.extent(3); ++c) {
              const double got = element(stored, b, h, r, c);
              if constexpr (std::is_same_v<S, std::int8_t>)
                EXPECT_LE(std::abs(got - static_cast<double>(x(b, h, r, c))), 1.0000001 * largest / 254);
              else
                EXPECT_EQ(got, static_cast<double>(static_cast<S>(static_cast<float>(x(b, h, r, c)))));
            }
          }
    };
    expect_rows(cache.keys(), rows.k);
    expect_rows(cache.values(), rows.v);
  }
}

TYPED_TEST(Cache, RowsOfAnyStridesAreAppended) {
  using T = typename TypeParam::T;
  attn_test::Draw draw(1);
  for (int i = 0; i < 20; ++i) {
    const KVCacheConfig config{.batch = draw.between(1, 3),
                               .num_kv_heads = draw.between(1, 3),
                               .head_dim = draw.between(1, 150),
                               .max_len = 8,
                               .page_rows = draw.between(0, 3)};
    const attn::Dims<4> extents{config.batch, config.num_kv_heads, 5, config.head_dim};
    const auto k = draw.tensor<T>(extents), v = draw.tensor<T>(extents);
    KVCache<T, typename TypeParam::S> strided(config), plain(config);
    strided.append(k.read(), v.read());
    plain.append(attn::Tensor<T, 4>(k.read()), attn::Tensor<T, 4>(v.read()));
    EXPECT_EQ(contents(strided), contents(plain));
  }
}

TYPED_TEST(Cache, SequencesGrowByCountsOfTheirOwn) {
  using T = typename TypeParam::T;
  for (const Index page_rows : layouts) {
    const KVCacheConfig config{
        .batch = 3, .num_kv_heads = 2, .head_dim = 8, .max_len = 12, .page_rows = page_rows};
    const Rows<T> rows(config, 6, 1), more(config, 3, 2);
    KVCache<T, typename TypeParam::S> cache(config);
    cache.append(rows.k, rows.v, std::array<Index, 3>{6, 0, 2});
    EXPECT_EQ(as_vector(cache.lengths()), (std::vector<Index>{6, 0, 2}));
    EXPECT_FALSE(cache.uniform());
    EXPECT_EQ(cache.keys().extents, (attn::Dims<4>{3, 2, 6, 8}));
    cache.append(more.k, more.v, std::array<Index, 3>{1, 3, 0});
    EXPECT_EQ(as_vector(cache.lengths()), (std::vector<Index>{7, 3, 2}));

    for (Index b = 0; b < 3; ++b) {  // each sequence is what a cache of its own holds
      KVCacheConfig single = config;
      single.batch = 1;
      KVCache<T, typename TypeParam::S> alone(single);
      const std::array<Index, 3> first{6, 0, 2}, second{1, 3, 0};
      const auto of = [&](const attn::Tensor<T, 4>& x, Index n) {
        return x.view().slice(0, {b, b + 1}).slice(2, {0, n});
      };
      alone.append(of(rows.k, first[at(b)]), of(rows.v, first[at(b)]));
      alone.append(of(more.k, second[at(b)]), of(more.v, second[at(b)]));
      EXPECT_EQ(contents(alone)[0], contents(cache)[at(2 * b)]);
      EXPECT_EQ(contents(alone)[1], contents(cache)[at(2 * b + 1)]);
    }
  }
}

TYPED_TEST(Cache, NothingIsAllocatedOnceThereIsRoom) {
  using T = typename TypeParam::T;
  for (const Index page_rows : layouts) {
    const KVCacheConfig config{
        .batch = 3, .num_kv_heads = 2, .head_dim = 16, .max_len = 40, .page_rows = page_rows};
    const Rows<T> rows(config, 8, 1);
    KVCache<T, typename TypeParam::S> cache(config);
    const auto allocations = attn_test::allocations_in([&] {
      for (int round = 0; round < 3; ++round) {
        cache.append(rows.k, rows.v);
        for (int step = 0; step < 6; ++step) {
          cache.append(rows.keys(0, 1), rows.values(0, 1));
          cache.reorder(std::array<Index, 3>{1, 1, 0});
          cache.append(rows.keys(0, 4), rows.values(0, 4), std::array<Index, 3>{0, 1, 4});
          cache.truncate(cache.longest() - 1);
          (void)cache.keys();
          (void)cache.values();
        }
        cache.reset();
      }
    });
    EXPECT_EQ(allocations, 0u) << page_rows;
  }
}

// A cache beside what it ought to hold: for each sequence, the seeds of its rows.
struct Modelled {
  KVCache<float> cache;
  std::vector<std::vector<std::uint64_t>> rows;
};
constexpr Index model_heads = 2, model_dim = 3;

void append_random(Modelled& m, attn_test::Draw& draw, std::uint64_t& next) {
  const Index batch = m.cache.batch(), n = draw.between(0, 5);
  attn::Tensor<float, 4> k({batch, model_heads, n, model_dim}), v(k.extents());
  std::vector<Index> counts;
  for (Index b = 0; b < batch; ++b) {
    counts.push_back(std::min(draw.between(0, n), m.cache.capacity() - m.cache.length(b)));
    for (Index r = 0; r < n; ++r, ++next) {
      for (Index h = 0; h < model_heads; ++h)
        for (Index c = 0; c < model_dim; ++c) {
          k(b, h, r, c) = static_cast<float>(next * 10 + static_cast<std::uint64_t>(h * model_dim + c));
          v(b, h, r, c) = -k(b, h, r, c);
        }
      if (r < counts.back()) m.rows[at(b)].push_back(next);
    }
  }
  m.cache.append(k, v, counts);
}
void expect_rows(const Modelled& m) {
  const auto all = contents(m.cache);
  for (Index b = 0; b < m.cache.batch(); ++b) {
    std::vector<double> keys, values;
    for (const std::uint64_t row : m.rows[at(b)])
      for (int i = 0; i < model_heads * model_dim; ++i) {
        keys.push_back(static_cast<double>(row * 10) + i);
        values.push_back(-keys.back());
      }
    EXPECT_EQ(m.cache.length(b), static_cast<Index>(m.rows[at(b)].size()));
    ASSERT_EQ(all[at(2 * b)], keys);
    ASSERT_EQ(all[at(2 * b + 1)], values);
  }
}
void change(std::vector<Modelled>& family, attn_test::Draw& draw, std::uint64_t& next) {
  Modelled& m = family[at(draw.between(0, static_cast<Index>(family.size()) - 1))];
  const Index batch = m.cache.batch();
  std::vector<Index> entries;
  for (Index b = 0; b < batch; ++b) entries.push_back(draw.between(0, batch - 1));
  std::vector<std::vector<std::uint64_t>> selected;
  for (const Index from : entries) selected.push_back(m.rows[at(from)]);
  switch (draw.between(0, 9)) {
    case 0: {
      const Index len = draw.between(0, m.cache.capacity());
      m.cache.truncate(len);
      for (auto& rows : m.rows) rows.resize(std::min(rows.size(), at(len)));
      break;
    }
    case 1: {
      for (Index b = 0; b < batch; ++b) entries[at(b)] = draw.between(0, m.cache.length(b));
      m.cache.truncate(entries);
      for (Index b = 0; b < batch; ++b) m.rows[at(b)].resize(at(entries[at(b)]));
      break;
    }
    case 2:
    case 3:
      m.cache.reorder(entries);
      m.rows = selected;
      break;
    case 4: {
      const bool forks = m.cache.config().page_rows > 0 && draw.one_in(2);
      Modelled other{forks ? m.cache.fork(entries) : m.cache.copy(entries), selected};
      if (family.size() < 4)
        family.push_back(std::move(other));
      else
        m = std::move(other);
      break;
    }
    case 5:
      if (draw.one_in(4)) {
        m.cache.reset();
        for (auto& rows : m.rows) rows.clear();
      }
      break;
    default:
      append_random(m, draw, next);
  }
}

TEST(CacheModel, AnyOrderOfOperationsLeavesTheRowsThatThePlainModelHas) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    attn_test::Draw draw(seed);
    const KVCacheConfig config{.batch = draw.between(1, 4),
                               .num_kv_heads = model_heads,
                               .head_dim = model_dim,
                               .max_len = draw.between(1, 20),
                               .page_rows = draw.between(0, 5)};
    std::vector<Modelled> family;
    family.push_back({KVCache<float>(config), std::vector<std::vector<std::uint64_t>>(at(config.batch))});
    std::uint64_t next = 1;
    for (int step = 0; step < 60; ++step) {
      change(family, draw, next);
      for (const Modelled& m : family) expect_rows(m);
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", step " << step;
    }
  }
}

TEST(CacheModel, EveryReorderingIsASelectionOfSequences) {
  constexpr Index batch = 4;
  for (const Index page_rows : {0, 2})
    for (Index number = 0; number < 256; ++number) {
      attn_test::Draw draw(1);
      std::uint64_t next = 1;
      Modelled m{KVCache<float>({.batch = batch,
                                 .num_kv_heads = model_heads,
                                 .head_dim = model_dim,
                                 .max_len = 12,
                                 .page_rows = page_rows}),
                 std::vector<std::vector<std::uint64_t>>(at(batch))};
      append_random(m, draw, next);
      append_random(m, draw, next);
      const std::array<Index, batch> entries{number % 4, number / 4 % 4, number / 16 % 4, number / 64};
      const auto before = m.rows;
      for (Index b = 0; b < batch; ++b) m.rows[at(b)] = before[at(entries[at(b)])];
      m.cache.reorder(entries);
      expect_rows(m);
    }
}

const KVCacheConfig small{.batch = 2, .num_kv_heads = 1, .head_dim = 2, .max_len = 4};

TEST(CacheForks, ShareTheirPagesUntilOneWrites) {
  KVCacheConfig config = small;
  config.max_len = 32;
  config.page_rows = 4;
  const Rows<float> rows(config, 10, 1);
  KVCache<float> cache(config);
  cache.append(rows.k, rows.v);
  EXPECT_EQ(cache.pages_in_use(), 6);
  {
    KVCache<float> fork = cache.fork();
    EXPECT_EQ(cache.pages_in_use(), 6);
    const auto before = contents(cache);
    fork.append(rows.keys(0, 1), rows.values(0, 1));  // the page of rows 8 and 9 is copied
    EXPECT_EQ(cache.pages_in_use(), 8);
    EXPECT_EQ(contents(cache), before);
    const auto forked = contents(fork);
    cache.append(rows.keys(3, 10), rows.values(3, 10));
    EXPECT_EQ(contents(fork), forked);
  }
  EXPECT_EQ(cache.pages_in_use(), 2 * 5);
  cache.reset();
  EXPECT_EQ(cache.pages_in_use(), 0);
}

TEST(CacheForks, OneSequenceBecomesManyBeams) {
  for (const Index page_rows : {0, 4}) {
    const KVCacheConfig config{.num_kv_heads = 2, .head_dim = 4, .max_len = 9, .page_rows = page_rows};
    const Rows<float> rows(config, 5, 1);
    KVCache<float> prompt(config);
    prompt.append(rows.k, rows.v);
    const std::array<Index, 3> beams{0, 0, 0};
    const KVCache<float> many = page_rows > 0 ? prompt.fork(beams) : prompt.copy(beams);
    EXPECT_EQ(many.batch(), 3);
    EXPECT_EQ(many.capacity(), 9);
    for (Index b = 0; b < 3; ++b) EXPECT_EQ(contents(many)[at(2 * b)], contents(prompt)[0]);
  }
}

TEST(CacheForks, OutliveTheCacheTheyCameFrom) {
  KVCacheConfig config = small;
  config.page_rows = 2;
  const Rows<float> rows(config, 3, 1);
  std::optional<KVCache<float>> cache(config);
  cache->append(rows.k, rows.v);
  const auto before = contents(*cache);
  const KVCache<float> fork = cache->fork();
  cache.reset();
  EXPECT_EQ(contents(fork), before);
}

TEST(CacheMoves, TakeTheRowsAlong) {
  for (const Index page_rows : {0, 2}) {
    KVCacheConfig config = small;
    config.page_rows = page_rows;
    const Rows<float> rows(config, 3, 1);
    KVCache<float> cache(config), target(config);
    cache.append(rows.k, rows.v);
    target.append(rows.v, rows.k);
    const auto before = contents(cache);
    target = std::move(cache);
    EXPECT_EQ(contents(target), before);
    KVCache<float> last(std::move(target));
    EXPECT_EQ(contents(last), before);
    last.append(rows.keys(0, 1), rows.values(0, 1));
    EXPECT_EQ(last.length(1), 4);
  }
}

TYPED_TEST(Cache, GrowsWhenAskedToAndKeepsItsRows) {
  using T = typename TypeParam::T;
  for (const Index page_rows : layouts)
    for (const Index max_len : {0, 1, 7}) {
      KVCacheConfig config{.batch = 2,
                           .num_kv_heads = 2,
                           .head_dim = 8,
                           .max_len = max_len,
                           .growth = attn::Growth::doubling,
                           .page_rows = page_rows};
      KVCache<T, typename TypeParam::S> growing(config);
      config.max_len = 100;
      KVCache<T, typename TypeParam::S> large(config);
      const Rows<T> rows(config, 100, 1);
      int grown = 0;
      for (Index i = 0; i < 100; ++i) {
        const Index before = growing.capacity();
        growing.append(rows.keys(i, i + 1), rows.values(i, i + 1));
        grown += growing.capacity() != before;
        EXPECT_GE(growing.capacity(), growing.longest());
      }
      large.append(rows.k, rows.v);
      EXPECT_EQ(contents(growing), contents(large));
      EXPECT_LE(grown, 8);  // doubling: logarithmically often
    }
}

template <class T, class S>
std::string append_error(KVCache<T, S>& cache, Index n) {
  const Rows<T> rows(cache.config(), n, 9);
  return attn_test::error_text<std::length_error>([&] { cache.append(rows.k, rows.v); });
}

TYPED_TEST(Cache, PastCapacityIsAnErrorThatChangesNothing) {
  using T = typename TypeParam::T;
  for (const Index page_rows : layouts) {
    KVCacheConfig config = small;
    config.page_rows = page_rows;
    KVCache<T, typename TypeParam::S> cache(config);
    const Rows<T> rows(config, 3, 1);
    cache.append(rows.k, rows.v, std::array<Index, 2>{1, 3});
    const auto before = contents(cache);
    EXPECT_EQ(append_error(cache, 2),
              "attn: KVCache: sequence 1 has 3 rows and gets 2, but there is room for 4 (max_len)");
    EXPECT_EQ(contents(cache), before);
    EXPECT_EQ(as_vector(cache.lengths()), (std::vector<Index>{1, 3}));
    EXPECT_EQ(append_error(cache, 1), "no error");
  }
}

TEST(CacheErrors, SayWhatDoesNotFit) {
  KVCache<float> cache(small);
  const auto text = [&](const attn::Dims<4>& k, const attn::Dims<4>& v) {
    return attn_test::error_text<attn::ShapeError>(
        [&] { cache.append(attn::Tensor<float, 4>(k), attn::Tensor<float, 4>(v)); });
  };
  EXPECT_EQ(text({1, 1, 2, 2}, {1, 1, 2, 2}), "attn: KVCache::append: k [1, 1, 2, 2] should be [2, 1, 2, 2]");
  EXPECT_EQ(text({2, 3, 2, 2}, {2, 1, 2, 2}), "attn: KVCache::append: k [2, 3, 2, 2] should be [2, 1, 2, 2]");
  EXPECT_EQ(text({2, 1, 2, 2}, {2, 1, 1, 2}), "attn: KVCache::append: v [2, 1, 1, 2] should be [2, 1, 2, 2]");
  const attn::Tensor<float, 4> two({2, 1, 2, 2});
  const auto counts = [&](const std::vector<Index>& c) {
    return attn_test::error_text<attn::ShapeError>([&] { cache.append(two, two, c); });
  };
  EXPECT_EQ(counts({1}), "attn: KVCache::append: counts: 1 values for a batch of 2");
  EXPECT_EQ(counts({1, 3}),
            "attn: KVCache::append: counts: 3 for sequence 1 is not within [0, 2], the rows of k");
  EXPECT_EQ(counts({-1, 1}),
            "attn: KVCache::append: counts: -1 for sequence 0 is not within [0, 2], the rows of k");
  cache.append(two, two);
  using attn_test::error_text;
  EXPECT_EQ(error_text<attn::ShapeError>([&] { cache.truncate(-1); }),
            "attn: KVCache::truncate: length -1 must not be negative");
  EXPECT_EQ(error_text<attn::ShapeError>([&] {
              cache.truncate(std::array<Index, 2>{1, 3});
            }),
            "attn: KVCache::truncate: 3 for sequence 1 is not within [0, 2], its length");
  EXPECT_EQ(error_text<attn::ShapeError>([&] {
              cache.reorder(std::array<Index, 2>{1, 2});
            }),
            "attn: KVCache::reorder: there is no sequence 2 in a batch of 2");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { cache.reorder(std::array<Index, 1>{1}); }),
            "attn: KVCache::reorder: 1 entries for a batch of 2");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)cache.copy(std::array<Index, 1>{-1}); }),
            "attn: KVCache::copy: there is no sequence -1 in a batch of 2");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { (void)cache.fork(); }),
            "attn: KVCache::fork: without pages (page_rows) there is nothing to share: copy()");
  EXPECT_EQ(as_vector(cache.lengths()), (std::vector<Index>{2, 2}));
}

TEST(CacheErrors, ConfigurationsThatCannotBeAreRefused) {
  const auto text = [](KVCacheConfig config) {
    return attn_test::error_text<std::logic_error>([&] { KVCache<float> cache(config); });
  };
  EXPECT_EQ(text({.head_dim = 4, .max_len = 4}), "attn: KVCache: num_kv_heads 0 must be positive");
  EXPECT_EQ(text({.num_kv_heads = 4, .max_len = 4}), "attn: KVCache: head_dim 0 must be positive");
  KVCacheConfig config = small;
  config.batch = -1;
  EXPECT_EQ(text(config), "attn: KVCache: batch -1 must not be negative");
  config = small;
  config.sinks = 1;
  EXPECT_EQ(text(config), "attn: KVCache: 1 sinks without a window: nothing is evicted");
  config.window = 4;
  EXPECT_EQ(text(config), "attn: KVCache: max_len 4 is too small for 1 sinks and a window of 4: at least 5");
  config.window = 2;
  config.growth = attn::Growth::doubling;
  EXPECT_EQ(text(config),
            "attn: KVCache: a rolling window evicts rows: it excludes growth and cross-attention");
  config = small;
  config.max_len = Index{1} << 48;
  config.num_kv_heads = Index{1} << 10;
  EXPECT_NE(text(config).find("[2, 1024, 281474976710656, 2] elements exceed the address space"),
            std::string::npos)
      << text(config);
}

TEST(CacheErrors, NameRowsThatCannotBeNumbered) {
  constexpr Index most = std::numeric_limits<Index>::max();
  const auto text = [](const KVCacheConfig& c) {
    return attn_test::error_text<std::length_error>([&] { KVCache<float> cache(c); });
  };
  const std::string too_many = "attn: KVCache: 9223372036854775807 rows of a sequence are more than 2^48";
  EXPECT_EQ(text({.num_kv_heads = 1, .head_dim = 1, .max_len = most}), too_many);
  EXPECT_EQ(text({.num_kv_heads = 1, .head_dim = 1, .max_len = most, .page_rows = 16}), too_many);
  EXPECT_EQ(text({.num_kv_heads = 1, .head_dim = 1, .max_len = 4, .page_rows = most}), too_many);
  EXPECT_EQ(text({.num_kv_heads = 1, .head_dim = 1, .max_len = 4, .window = most}), too_many);
  EXPECT_EQ(text({.num_kv_heads = 1, .head_dim = 1, .max_len = 4, .window = 2, .sinks = most}), too_many);
  EXPECT_EQ(
      text({.batch = 1 << 16, .num_kv_heads = 1, .head_dim = 1, .max_len = Index{1} << 48, .page_rows = 1}),
      "attn: KVCache: batch 65536 times max_len 281474976710656 rows exceed the address space");
}

TEST(CacheErrors, ARotationThatThrowsLeavesAllRows) {
  for (const Index page_rows : {0, 2}) {
    const KVCacheConfig config{
        .num_kv_heads = 1, .head_dim = 2, .max_len = 6, .page_rows = page_rows, .window = 2};
    KVCache<float> cache(config);
    const Rows<float> rows(config, 6, 1);
    cache.append(rows.k, rows.v);
    const auto before = contents(cache);
    const auto fail = [](const attn::TensorView<float, 3>&, Index) { throw std::runtime_error("no"); };
    EXPECT_THROW(cache.make_room(1, fail), std::runtime_error);
    EXPECT_EQ(contents(cache), before);
    EXPECT_EQ(cache.positions()[0], 6);
  }
}

TYPED_TEST(Cache, NoSequencesAndNoRowsAreFine) {
  using T = typename TypeParam::T;
  using Cached = KVCache<T, typename TypeParam::S>;
  for (const Index page_rows : {0, 4}) {
    Cached none({.batch = 0, .num_kv_heads = 2, .head_dim = 4, .max_len = 4, .page_rows = page_rows});
    none.append(attn::Tensor<T, 4>({0, 2, 3, 4}), attn::Tensor<T, 4>({0, 2, 3, 4}));
    none.reorder({});
    EXPECT_EQ(none.longest(), 0);
    EXPECT_TRUE(none.uniform());
    EXPECT_EQ(none.keys().extents, (attn::Dims<4>{0, 2, 0, 4}));
    Cached empty({.batch = 2, .num_kv_heads = 2, .head_dim = 4, .max_len = 0, .page_rows = page_rows});
    empty.append(attn::Tensor<T, 4>({2, 2, 0, 4}), attn::Tensor<T, 4>({2, 2, 0, 4}));
    EXPECT_EQ(empty.values().extents, (attn::Dims<4>{2, 2, 0, 4}));
    EXPECT_EQ(empty.copy().longest(), 0);
    EXPECT_NE(append_error(empty, 1), "no error");
  }
}

const KVCacheConfig small_cross = [] {
  KVCacheConfig config = small;
  config.kind = attn::CacheKind::cross_attention;
  return config;
}();

TEST(CacheKinds, ACrossAttentionCacheWithoutRowsIsStillToBeFilled) {
  KVCache<float> cache(small_cross);
  const Rows<float> none(small_cross, 0, 1), rows(small_cross, 2, 1);
  cache.append(none.k, none.v);
  cache.append(rows.k, rows.v);
  EXPECT_EQ(cache.longest(), 2);
}

TEST(CacheKinds, ACrossAttentionCacheIsFilledOnce) {
  KVCache<float> cache(small_cross);
  const Rows<float> rows(small_cross, 2, 1), others(small_cross, 2, 2);
  cache.append(rows.k, rows.v);
  const auto first = contents(cache);
  EXPECT_EQ(attn_test::error_text<std::invalid_argument>([&] { cache.append(others.k, others.v); }),
            "attn: KVCache::append: a cross-attention cache is filled once; reset() it before the keys of "
            "another input");
  EXPECT_EQ(contents(cache), first);
  cache.reset();
  cache.append(others.k, others.v);
  EXPECT_NE(contents(cache), first);
}

TEST(CacheBytes, AreThoseOfTheStorage) {
  const KVCacheConfig config{.batch = 2, .num_kv_heads = 8, .head_dim = 128, .max_len = 1024};
  const auto check = [&]<class S>(S, std::size_t per_token) {
    const KVCache<float, S> cache(config);
    EXPECT_EQ(cache.bytes_per_token(), per_token);
    EXPECT_GE(cache.bytes(), 2 * 1024 * per_token);
    EXPECT_LE(cache.bytes(), 2 * 1024 * per_token + 1024);
  };
  check(float{}, 8192);
  check(double{}, 16384);
  check(Eigen::half{}, 4096);
  check(Eigen::bfloat16{}, 4096);
  check(std::int8_t{}, 2048 + 64);
}

TYPED_TEST(Cache, AssignTakesTheRowsOfAnyLayout) {
  using T = typename TypeParam::T;
  KVCacheConfig config{.batch = 2, .num_kv_heads = 2, .head_dim = 8, .max_len = 12};
  const Rows<T> rows(config, 7, 1);
  for (const Index from : layouts)
    for (const Index to : layouts) {
      config.page_rows = from;
      KVCache<T, typename TypeParam::S> source(config);
      source.append(rows.k, rows.v, std::array<Index, 2>{7, 4});
      config.page_rows = to;
      KVCache<T, typename TypeParam::S> target(config);
      target.append(rows.v, rows.k);
      target.assign(source.keys(), source.values(), source.lengths(), std::array<Index, 2>{9, 4});
      EXPECT_EQ(contents(target), contents(source));
      EXPECT_EQ(as_vector(target.positions()), (std::vector<Index>{9, 4}));
      target.assign(target.keys(), target.values(), std::array<Index, 2>{2, 1});
      EXPECT_EQ(as_vector(target.lengths()), (std::vector<Index>{2, 1}));
      EXPECT_EQ(as_vector(target.positions()), (std::vector<Index>{2, 1}));
      EXPECT_EQ(contents(target)[0], sequence(source.keys(), 0, 2));
    }
}

TEST(CacheErrors, AssignRefusesRowsThatDoNotFit) {
  KVCache<float> cache(small);
  const attn::Tensor<float, 4> five({2, 1, 5, 2}), narrow({2, 1, 5, 1});
  const auto text = [&](const attn::Tensor<float, 4>& v, std::vector<Index> lengths,
                        std::vector<Index> positions = {}) {
    return attn_test::error_text<std::logic_error>(
        [&] { cache.assign(five.view(), v.view(), lengths, positions); });
  };
  EXPECT_EQ(text(narrow, {1, 1}), "attn: KVCache::assign: values [2, 1, 5, 1] should be [2, 1, 5, 2]");
  EXPECT_EQ(text(five, {1, 6}),
            "attn: KVCache::assign: lengths: 6 for sequence 1 is not within [0, 5], the rows of keys");
  EXPECT_EQ(text(five, {1, 5}),
            "attn: KVCache: sequence 1 has 0 rows and gets 5, but there is room for 4 (max_len)");
  EXPECT_EQ(text(five, {1, 4}, {1, 3}),
            "attn: KVCache::assign: position 3 of sequence 1 comes before its 4 rows");
  EXPECT_EQ(cache.longest(), 0);
}

// Key and value elements of row p are p, so that it can be seen which rows are there.
attn::Tensor<float, 4> numbered(const KVCacheConfig& c, Index first, Index n) {
  attn::Tensor<float, 4> x({c.batch, c.num_kv_heads, n, c.head_dim});
  for (Index b = 0; b < c.batch; ++b)
    for (Index h = 0; h < c.num_kv_heads; ++h)
      for (Index r = 0; r < n; ++r)
        for (Index d = 0; d < c.head_dim; ++d) x(b, h, r, d) = static_cast<float>(first + r);
  return x;
}

TEST(CacheWindow, KeepsTheSinksAndTheNewestRowsInOrder) {
  attn_test::Draw draw(1);
  for (const Index page_rows : {0, 1, 4})
    for (const Index sinks : {0, 1, 3, 4})
      for (const Index window : {1, 5, 8}) {
        const KVCacheConfig config{.batch = 2,
                                   .num_kv_heads = 2,
                                   .head_dim = 2,
                                   .max_len = 4 + 8 + 3 + 9,
                                   .page_rows = page_rows,
                                   .window = window,
                                   .sinks = sinks};
        KVCache<float> cache(config);
        Index next = 0;
        for (int step = 0; step < 60; ++step) {
          const Index n = draw.between(0, 6);
          const auto rows = numbered(config, next, n);
          cache.append(rows, rows);
          next += n;
          ASSERT_LE(cache.longest(), cache.capacity());
          for (Index b = 0; b < 2; ++b) {
            ASSERT_EQ(cache.positions()[at(b)], next);
            const Index length = cache.length(b), dropped = next - length;
            ASSERT_GE(length, std::min(next, sinks + window - 1 + n));
            for (Index r = 0; r < length; ++r) {
              const auto expected = static_cast<double>(r < sinks ? r : r + dropped);
              const double key = element(cache.keys(), b, 1, r, 0);
              if (page_rows <= 1 || r < sinks || r >= attn::detail::round_up(sinks, page_rows)) {
                ASSERT_EQ(key, expected);
                ASSERT_EQ(element(cache.values(), b, 1, r, 1), expected);
              }
            }
          }
        }
        EXPECT_GT(next, 3 * cache.capacity());
      }
}

TEST(CacheWindow, ExactlySinksAndWindowWhereThereIsNoMoreRoom) {
  const KVCacheConfig config{.num_kv_heads = 1, .head_dim = 1, .max_len = 2 + 3, .window = 3, .sinks = 2};
  KVCache<float> cache(config);
  for (Index p = 0; p < 20; ++p) cache.append(numbered(config, p, 1), numbered(config, p, 1));
  EXPECT_EQ(sequence(cache.keys(), 0, 5), (std::vector<double>{0, 1, 17, 18, 19}));
}

// The fake rotation adds: a key that came with its position ends with the number of its row.
TEST(CacheWindow, KeysAreRotatedToTheirNewRowsIfAsked) {
  for (const Index page_rows : {0, 4}) {
    const KVCacheConfig config{.batch = 2,
                               .num_kv_heads = 2,
                               .head_dim = 2,
                               .max_len = 16,
                               .page_rows = page_rows,
                               .window = 5,
                               .sinks = 2};
    KVCache<float> cache(config);
    std::optional<KVCache<float>> fork;
    for (Index step = 0; step < 40; ++step) {
      cache.make_room(1, [](const attn::TensorView<float, 3>& keys, Index by) {
        for (Index h = 0; h < keys.extent(0); ++h)
          for (Index r = 0; r < keys.extent(1); ++r)
            for (Index c = 0; c < keys.extent(2); ++c) keys(h, r, c) += static_cast<float>(by);
      });
      EXPECT_EQ(as_vector(cache.positions()), as_vector(cache.lengths()));
      const auto rows = numbered(config, cache.positions()[0], 1);
      cache.append(rows, rows);
      if (page_rows > 0 && step == 14) fork.emplace(cache.fork());
      for (Index r = 0; r < cache.longest(); ++r) EXPECT_EQ(element(cache.keys(), 1, 1, r, 1), r);
    }
    EXPECT_LT(cache.longest(), 17);
    for (Index r = 0; fork && r < fork->longest(); ++r)  // its rows are not those that were rotated
      EXPECT_EQ(element(fork->keys(), 1, 1, r, 1), r);
  }
}

TEST(CacheWindow, MoreRowsThanThereIsRoomForBesideTheWindowAreAnError) {
  const KVCacheConfig config{.num_kv_heads = 1, .head_dim = 2, .max_len = 10, .window = 4, .sinks = 2};
  KVCache<float> cache(config);
  cache.append(numbered(config, 0, 9), numbered(config, 0, 9));
  EXPECT_EQ(append_error(cache, 6),
            "attn: KVCache: sequence 0 has 9 rows and gets 6, but there is room for 10 (max_len), and sinks "
            "and window stay: append fewer at a time");
  EXPECT_EQ(cache.length(0), 9);
  EXPECT_EQ(append_error(cache, 5), "no error");
  EXPECT_EQ(cache.length(0), 10);
}

TEST(CacheWindow, EvictionIsAmortisedAndAllocatesNothing) {
  const KVCacheConfig config{
      .num_kv_heads = 1, .head_dim = 2, .max_len = 4 + 2 * 16, .window = 16, .sinks = 4};
  KVCache<float> cache(config);
  const auto row = numbered(config, 0, 1);
  int evictions = 0;
  EXPECT_EQ(attn_test::allocations_in([&] {
              for (int step = 0; step < 1700; ++step) {
                const Index before = cache.length(0);
                cache.append(row, row);
                evictions += cache.length(0) <= before;
              }
            }),
            0u);
  EXPECT_LE(evictions, 1700 / 16);  // each moves a window of rows: one row per append on average
}

/// One row of float as 8-bit integers and back, and its scale.
std::pair<std::vector<double>, double> through_int8(const std::vector<float>& row) {
  KVCache<float, std::int8_t> cache(
      {.num_kv_heads = 1, .head_dim = static_cast<Index>(row.size()), .max_len = 1});
  const attn::TensorView<const float, 2> x(row.data(), {1, static_cast<Index>(row.size())});
  cache.append(x, x);
  return {sequence(cache.keys(), 0, 1), static_cast<double>(*cache.keys().scales)};
}

TEST(CacheIntegers, AreOffByHalfAScaleAtMost) {
  const attn::CounterRandom random(1);
  for (const double magnitude : {1.0, 1e-3, 1e30, 1e-37, 1e-44, 0.0})
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      std::vector<float> row;
      for (std::uint64_t i = 0; i < 1 + seed % 150; ++i)
        row.push_back(static_cast<float>(magnitude * random.normal(1000 * seed + i)));
      const auto [back, scale] = through_int8(row);
      for (std::size_t i = 0; i < row.size(); ++i)
        EXPECT_LE(std::abs(back[i] - static_cast<double>(row[i])), scale / 2) << row[i];
    }
}

// Rounding of the quotient to float would take some of these to the farther integer.
TEST(CacheIntegers, ElementsNextToHalfwayBetweenTwoStepsGoToTheNearerOne) {
  for (const float largest : {127.0F, 1.0F, 3.3F, 0.77F, 1e5F, 1e-5F}) {
    std::vector<float> row{largest};
    const auto step = static_cast<double>(largest / 127);
    for (int i = -127; i < 127; ++i) {
      const auto halfway = static_cast<float>((i + 0.5) * step);
      row.push_back(halfway);
      row.push_back(std::nextafter(halfway, largest));
      row.push_back(std::nextafter(halfway, -largest));
    }
    const auto [back, scale] = through_int8(row);
    EXPECT_EQ(scale, step);
    for (std::size_t i = 0; i < row.size(); ++i)
      EXPECT_LE(std::abs(back[i] - static_cast<double>(row[i])), scale / 2) << row[i];
  }
}

TEST(CacheIntegers, ARowThatIntegersCannotHoldReadsAsNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    const auto [back, scale] = through_int8({1, bad, 3});
    for (const double x : back) EXPECT_TRUE(std::isnan(x));
  }
}

TEST(CacheElements, AnyFloatIsRoundedToNearestEven) {
  std::vector<float> values;
  const attn::CounterRandom random(3);
  for (std::uint64_t i = 0; i < 4000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.word(i))));
  for (std::uint32_t high = 0; high < 0x10000; high += 37)
    for (const std::uint32_t low : {0x0000u, 0x0FFFu, 0x1000u, 0x1001u, 0x3000u, 0x7FFFu, 0x8000u, 0x8001u})
      values.push_back(std::bit_cast<float>(high << 16 | low));
  const attn::TensorView<const float, 2> x(values.data(), {1, static_cast<Index>(values.size())});
  const auto check = [&]<class S>(S) {
    KVCache<float, S> cache({.num_kv_heads = 1, .head_dim = x.extent(1), .max_len = 1});
    cache.append(x, x);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto got = static_cast<float>(cache.keys().data[i]), want = static_cast<float>(S(values[i]));
      EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << values[i];
    }
  };
  check(Eigen::half{});
  check(Eigen::bfloat16{});
}

TEST(CacheRanks, LeadingAxesOfOneMayBeLeftOut) {
  const Eigen::MatrixXf k = Eigen::MatrixXf::Random(3, 4), v = Eigen::MatrixXf::Random(3, 4);
  KVCache<float> one({.num_kv_heads = 1, .head_dim = 4, .max_len = 8}),
      two({.num_kv_heads = 2, .head_dim = 2, .max_len = 8});
  one.append(k, v);
  two.append(attn::split_heads(k, 2), attn::split_heads(v, 2));
  EXPECT_EQ(contents(one), contents(two));
  EXPECT_EQ(element(one.keys(), 0, 0, 2, 1), static_cast<double>(k(2, 1)));
}

}  // namespace
