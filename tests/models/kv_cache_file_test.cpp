// tests/models/kv_cache_file_test.cpp - caches come back from their file as they were, and a file that is
// something else changes nothing.
#include "attn/models/kv_cache_file.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "support/error_text.hpp"
#include "support/random_values.hpp"
#include "support/temporary_directory.hpp"

namespace {

using attn::FormatError;
using attn::Index;
using attn::KVCache;
using attn::KVCacheConfig;
using attn_test::error_text;
using attn_test::random_tensor;
using attn_test::TemporaryDirectory;

/// The bytes of all rows in use, and of their scales.
template <class S>
std::vector<std::vector<S>> stored(const attn::StoredRows<S>& x, std::span<const Index> lengths) {
  std::vector<std::vector<S>> all;
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    all.emplace_back();
    const auto entry = static_cast<Index>(b);
    for (Index r = 0; r < lengths[b]; ++r)
      for (Index h = 0; h < x.extent(1); ++h)
        for (Index c = 0; c < x.extent(3); ++c)
          all.back().push_back(x.data[x.page(entry, r) * x.strides[0] + h * x.strides[1] +
                                      r % x.page_rows * x.strides[2] + c * x.strides[3]]);
  }
  return all;
}
template <class T, class S>
void expect_same(const KVCache<T, S>& a, const KVCache<T, S>& b) {
  EXPECT_TRUE(std::ranges::equal(a.lengths(), b.lengths()));
  EXPECT_TRUE(std::ranges::equal(a.positions(), b.positions()));
  EXPECT_EQ(stored(a.keys(), a.lengths()), stored(b.keys(), b.lengths()));
  EXPECT_EQ(stored(a.values(), a.lengths()), stored(b.values(), b.lengths()));
  if constexpr (std::is_same_v<S, std::int8_t>) {
    using attn::detail::scale_rows;
    EXPECT_EQ(stored(scale_rows(a.keys()), a.lengths()), stored(scale_rows(b.keys()), b.lengths()));
    EXPECT_EQ(stored(scale_rows(a.values()), a.lengths()), stored(scale_rows(b.values()), b.lengths()));
  }
}

KVCacheConfig config(Index page_rows) {
  return {.batch = 2, .num_kv_heads = 3, .head_dim = 5, .value_dim = 4, .max_len = 9, .page_rows = page_rows};
}
template <class T, class S>
std::vector<KVCache<T, S>> layers(Index page_rows, int count, std::uint64_t seed) {
  std::vector<KVCache<T, S>> caches;
  for (int i = 0; i < count; ++i) {
    caches.emplace_back(config(page_rows));
    const std::array<Index, 2> counts{7, 4};
    seed += 2;
    caches.back().append(random_tensor<T, 4>({2, 3, 7, 5}, seed), random_tensor<T, 4>({2, 3, 7, 4}, seed + 1),
                         counts);
  }
  return caches;
}

template <class Storage>
class CacheFile : public testing::Test {};
using Storages = testing::Types<float, double, Eigen::half, Eigen::bfloat16, std::int8_t>;
TYPED_TEST_SUITE(CacheFile, Storages);

TYPED_TEST(CacheFile, WhatIsLoadedHasTheBitsOfWhatWasSavedInAnyLayout) {
  using Cache = KVCache<float, TypeParam>;
  const TemporaryDirectory directory;
  const auto path = directory / "caches.safetensors";
  for (const Index from : {0, 4})
    for (const Index to : {0, 2}) {
      const auto saved = layers<float, TypeParam>(from, 3, 1);
      auto loaded = layers<float, TypeParam>(to, 3, 100);
      attn::save_kv_caches(path, std::span<const Cache>(saved));
      attn::load_kv_caches(path, std::span<Cache>(loaded));
      for (std::size_t i = 0; i < 3; ++i) expect_same(loaded[i], saved[i]);
    }
}

TYPED_TEST(CacheFile, EmptyCachesAndPositionsAfterEvictionComeBack) {
  const TemporaryDirectory directory;
  const auto path = directory / "cache.safetensors";
  KVCacheConfig rolling = config(0);
  rolling.window = 3;
  KVCache<float, TypeParam> cache(rolling), other(rolling);
  attn::save_kv_cache(path, cache);
  attn::load_kv_cache(path, other);
  expect_same(other, cache);
  const auto k = random_tensor<float, 4>({2, 3, 5, 5}, 1), v = random_tensor<float, 4>({2, 3, 5, 4}, 2);
  for (int i = 0; i < 4; ++i) cache.append(k, v);
  ASSERT_EQ(cache.positions()[0], 20);
  attn::save_kv_cache(path, cache);
  attn::load_kv_cache(path, other);
  expect_same(other, cache);
}

/// Loads text into a cache with contents, which must not change, and returns the error.
template <class S = float>
std::string loading_error(const std::string& text, KVCacheConfig c = config(0)) {
  const TemporaryDirectory directory;
  const auto path = directory / "bad.safetensors";
  attn_test::write_text(path, text);
  KVCache<float, S> cache(c);
  cache.append(random_tensor<float, 4>({c.batch, 3, 2, 5}, 1),
               random_tensor<float, 4>({c.batch, 3, 2, 4}, 2));
  const KVCache<float, S> before = cache.copy();
  const std::string error = error_text<FormatError>([&] { attn::load_kv_cache(path, cache); });
  expect_same(cache, before);
  return error.substr(error.find("bad.safetensors") + 15);
}
std::string good_file() {
  const TemporaryDirectory directory;
  const auto path = directory / "good.safetensors";
  attn::save_kv_cache(path, layers<float, float>(0, 1, 1)[0]);
  return attn_test::read_text(path);
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  const std::size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

TEST(CacheFileErrors, AFileOfOtherCachesIsRefused) {
  const std::string good = good_file();
  EXPECT_EQ(
      loading_error<Eigen::half>(good),
      ": weight 'layers.0.sequences.0.keys' is float32 [3, 7, 5], but the cache holds float16 [3, 7, 5]");
  KVCacheConfig other = config(0);
  other.max_len = 6;
  EXPECT_EQ(loading_error(good, other),
            ": weight 'layers.0.sequences.0.keys' has 7 rows, but the cache has room for 6");
  other = config(0);
  other.batch = 3;
  EXPECT_EQ(loading_error(good, other), ": weight 'layers.0.sequences.2.keys' is missing");
  other.batch = 1;
  EXPECT_EQ(loading_error(good, other), ": weight 'layers.0.positions' has shape [2], not [1]");
  const TemporaryDirectory directory;
  const auto path = directory / "bad.safetensors";
  attn::save_kv_caches(path, std::span<const KVCache<float>>(layers<float, float>(0, 2, 1)));
  EXPECT_EQ(loading_error(attn_test::read_text(path)),
            ": holds 10 tensors, but 1 caches of 2 sequences have 5");
}

TEST(CacheFileErrors, AFileThatLiesIsRefused) {
  const std::string good = good_file();
  EXPECT_EQ(loading_error(replaced(good, "attn_kv_cache", "othr_kv_cache")),
            ": is not a file of caches that this version can read");
  EXPECT_EQ(loading_error(replaced(good, R"("attn_kv_cache":"1")", R"("attn_kv_cache":"2")")),
            ": is not a file of caches that this version can read");
  EXPECT_EQ(loading_error(replaced(good, "sequences.1.values", "sequences.1.valves")),
            ": weight 'layers.0.sequences.1.values' is missing");
  EXPECT_EQ(
      loading_error(replaced(good, R"("shape":[3,7,5])", R"("shape":[7,3,5])")),
      ": weight 'layers.0.sequences.0.keys' is float32 [7, 3, 5], but the cache holds float32 [3, 3, 5]");
  EXPECT_EQ(
      loading_error(replaced(good, R"("shape":[3,4,4])", R"("shape":[4,3,4])")),
      ": weight 'layers.0.sequences.1.values' is float32 [4, 3, 4], but the cache holds float32 [3, 4, 4]");
  EXPECT_NE(loading_error(good.substr(0, good.size() - 1)).find("bytes of data"), std::string::npos);
  EXPECT_NE(loading_error("no cache"), "no error");
}

TEST(CacheFileErrors, PositionsBeforeTheRowsOrBeyondReasonAreRefused) {
  const std::string good = good_file();
  for (const std::int64_t position : {std::int64_t{6}, std::int64_t{-1}, std::int64_t{1} << 60}) {
    std::string bytes(reinterpret_cast<const char*>(&position), 8);
    const std::int64_t seven = 7;
    std::string bad = good;
    const std::size_t data = good.find('}', good.find("sequences.1.values")) + 1;
    const std::size_t place = bad.find(std::string(reinterpret_cast<const char*>(&seven), 8), data);
    ASSERT_NE(place, std::string::npos);
    bad.replace(place, 8, bytes);
    EXPECT_EQ(loading_error(bad),
              ": position " + std::to_string(position) + " of sequence 0 does not fit its 7 rows");
  }
}

TEST(CacheFileErrors, EveryCutAndEveryChangedByteIsAnErrorOrAFileOfCaches) {
  const std::string good = good_file();
  const TemporaryDirectory directory;
  const auto path = directory / "bad.safetensors";
  KVCache<float> cache(config(0));
  const auto load = [&](const std::string& text) {
    attn_test::write_text(path, text);
    try {
      attn::load_kv_cache(path, cache);
    } catch (const FormatError&) {
    }
    EXPECT_LE(cache.longest(), cache.capacity());
  };
  for (std::size_t i = 0; i < good.size(); i += 3) {
    load(good.substr(0, i));
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ static_cast<char>(1 << (i % 7)));
    load(changed);
  }
}

}  // namespace
