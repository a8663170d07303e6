// tests/modules/cached_attention_test.cpp - multi-head attention with a cache gives what the whole sequence
// gives.
#include "attn/modules/cached_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "attn/masks/alibi.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "attn/masks/window.hpp"
#include "attn/modules/multi_head_attention.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::Tensor;
using attn::TensorView;
using attn_test::error_text;
using attn_test::largest_difference;
using attn_test::random_tensor;
using Attention = attn::MultiHeadAttention<float>;
using Config = attn::MultiHeadAttentionConfig;

constexpr Index dim = 16;

Attention random_module(const Config& config) {
  Attention module(config);
  attn_test::randomize(module, 5);
  return module;
}

attn::KVCacheConfig cache_for(const Attention& module, Index batch, Index max_len) {
  const Config& c = module.config();
  return {.batch = batch,
          .num_kv_heads = c.num_kv_heads,
          .head_dim = c.head_dim,
          .value_dim = c.value_dim,
          .max_len = max_len};
}

TensorView<const float, 3> rows(const Tensor<float, 3>& x, Index begin, Index end) {
  return x.view().slice(1, {begin, end});
}

/// x in chunks of these lengths through a cache.
template <class Cache, class M>
Tensor<float, 3> in_chunks(const Attention& module, Cache& cache, const Tensor<float, 3>& x,
                           const std::vector<Index>& chunks, const M& mask) {
  Tensor<float, 3> out(x.extents());
  Index begin = 0;
  for (const Index n : chunks) {
    module.forward_into(rows(x, begin, begin + n), cache, out.view().slice(1, {begin, begin + n}), mask);
    begin += n;
  }
  EXPECT_EQ(begin, x.extent(1));
  return out;
}

const std::vector<std::vector<Index>> all_chunks = {
    {11}, {5, 6}, {8, 1, 1, 1}, {1, 7, 3}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};

std::vector<Config> all_configs() {
  std::vector<Config> configs;
  for (const Index num_kv_heads : {4, 2, 1})
    for (const bool rope : {false, true}) {
      Config c{.embed_dim = dim, .num_heads = 4, .num_kv_heads = num_kv_heads, .head_dim = 6, .value_dim = 5};
      if (rope) c.rope = attn::RopeConfig{.pairing = attn::RopePairing::half, .rotary_dim = 4};
      configs.push_back(c);
      c.qk_norm = attn::NormKind::rms;
      c.soft_cap = 3;
      c.output_gate = true;
      configs.push_back(c);
    }
  return configs;
}

/// Calls f(mask) for masks that read positions in different ways.
template <class F>
void for_each_mask(F f) {
  f(attn::Causal{});
  f(attn::Causal{} & attn::SlidingWindow{.left = 3, .right = 0});
  f(attn::Causal{} & attn::Alibi(4));
}

/// How far an output can be off if each element of a key or value row is off by `unit` times the largest of
/// all: scores by scale |q|_1 times that, weights by the factor e^(2 * ...), outputs by the sum of the
/// projection's row.
double storage_bound(const Attention& module, const Tensor<float, 3>& x, double unit) {
  const Config& c = module.config();
  const auto largest = [](const auto& values) {
    double max = 0;
    for (Index i = 0; i < values.size(); ++i)
      max = std::max(max, std::abs(static_cast<double>(values.data()[i])));
    return max;
  };
  const double value = largest(module.v_proj().forward(x));
  double key = largest(module.k_proj().forward(x)), query = largest(module.q_proj().forward(x));
  // RMS norm: a row of mean square 1, times the norm's weight; a rotation keeps lengths.
  if (c.qk_norm)
    key = query =
        std::sqrt(static_cast<double>(c.head_dim)) * std::max(largest(module.q_norm().weight()), 1.5);
  const double scores = std::sqrt(static_cast<double>(c.head_dim)) * 2 * query * unit * key;
  const auto w = module.out_proj().weight().view();
  double sum = 0;
  for (Index i = 0; i < w.extent(0); ++i) {
    double row = 0;
    for (Index j = 0; j < w.extent(1); ++j) row += std::abs(static_cast<double>(w(i, j)));
    sum = std::max(sum, row);
  }
  return sum * value * (unit + std::expm1(2 * scores));
}

template <class Storage>
class CachedAttention : public testing::Test {
 protected:
  using Cache = attn::KVCache<float, Storage>;
  /// Relative error of one stored element.
  static constexpr double unit = std::is_same_v<Storage, float>         ? 0
                                 : std::is_same_v<Storage, Eigen::half> ? 0x1p-11
                                 : std::is_same_v<Storage, std::int8_t> ? 1.0 / 254
                                                                        : 0x1p-8;
};
using Storages = testing::Types<float, Eigen::half, Eigen::bfloat16, std::int8_t>;
TYPED_TEST_SUITE(CachedAttention, Storages);

TYPED_TEST(CachedAttention, OfChunksAndSingleTokensEqualsTheWholeSequence) {
  const auto x = random_tensor<float, 3>({2, 11, dim}, 1);
  for (const Config& config : all_configs()) {
    const Attention module = random_module(config);
    const double bound = 2e-5 + storage_bound(module, x, this->unit);
    for_each_mask([&](const auto& mask) {
      const auto whole = module.forward(x, mask);
      for (const Index page_rows : {0, 4})
        for (const auto& chunks : all_chunks) {
          auto room = cache_for(module, 2, 12);
          room.page_rows = page_rows;
          typename TestFixture::Cache cache(room);
          EXPECT_LT(largest_difference(in_chunks(module, cache, x, chunks, mask), whole), bound);
          EXPECT_EQ(cache.length(0), 11);
          EXPECT_EQ(cache.length(1), 11);
        }
    });
  }
}

/// Sequences of other lengths in one batch, and each for itself.
template <class Cache>
void expect_each_as_alone(attn::PaddingSide side, double unit) {
  const std::vector<Index> lengths{5, 2, 7, 0};
  const Index batch = 4, longest = 7, steps = 3;
  const auto x = random_tensor<float, 3>({batch, longest + steps, dim}, 2);
  for (const Config& config : all_configs()) {
    const Attention module = random_module(config);
    const double bound = 2e-5 + storage_bound(module, x, unit);
    for_each_mask([&](const auto& mask) {
      // Rows that do not count hold what must never be seen.
      Tensor<float, 3> prompt({batch, longest, dim});
      std::fill_n(prompt.data(), prompt.size(), 1e4F);
      const auto first = [&](Index b) {
        return side == attn::PaddingSide::left ? longest - lengths[attn::as_size(b)] : 0;
      };
      for (Index b = 0; b < batch; ++b)
        copy(x.view()[b].slice(0, {0, lengths[attn::as_size(b)]}),
             prompt.view()[b].slice(0, {first(b), first(b) + lengths[attn::as_size(b)]}));
      Cache cache(cache_for(module, batch, 12));
      const auto prefilled = module.forward(prompt, cache, mask, {.counts = lengths, .padding = side});
      std::vector<Tensor<float, 3>> decoded;
      for (Index step = 0; step < steps; ++step) {
        Tensor<float, 3> next({batch, 1, dim});
        for (Index b = 0; b < batch; ++b)
          copy(x.view()[b].slice(0, {lengths[attn::as_size(b)] + step, lengths[attn::as_size(b)] + step + 1}),
               next.view()[b]);
        decoded.push_back(module.forward(next, cache, mask));
      }
      for (Index b = 0; b < batch; ++b) {
        const Index len = lengths[attn::as_size(b)];
        const auto alone = module.forward(x.view().slice(0, {b, b + 1}).slice(1, {0, len + steps}), mask);
        EXPECT_EQ(cache.length(b), len + steps);
        for (Index i = 0; i < len + steps; ++i)
          for (Index c = 0; c < dim; ++c) {
            const float got =
                i < len ? prefilled(b, first(b) + i, c) : decoded[attn::as_size(i - len)](b, 0, c);
            EXPECT_NEAR(got, alone(0, i, c), bound);
          }
      }
    });
  }
}

TYPED_TEST(CachedAttention, OfPromptsPaddedAtTheRightEqualsEachAlone) {
  expect_each_as_alone<typename TestFixture::Cache>(attn::PaddingSide::right, this->unit);
}
TYPED_TEST(CachedAttention, OfPromptsPaddedAtTheLeftEqualsEachAlone) {
  expect_each_as_alone<typename TestFixture::Cache>(attn::PaddingSide::left, this->unit);
}

TYPED_TEST(CachedAttention, AllocatesNothingPerTokenWhenWarm) {
  const Attention module = random_module(all_configs().back());
  const auto x = random_tensor<float, 3>({3, 8, dim}, 3);
  const attn::Alibi slopes(4);
  const auto mask = attn::Causal{} & slopes;
  for (const bool unequal : {false, true}) {
    typename TestFixture::Cache cache(cache_for(module, 3, 16));
    attn::Workspace workspace;
    const std::vector<Index> counts{4, unequal ? 2 : 4, 4};
    Tensor<float, 3> prefilled({3, 4, dim}), out({3, 1, dim});
    module.forward_into(rows(x, 0, 4), cache, prefilled, mask, {.counts = counts, .workspace = &workspace});
    const auto step = [&] {
      module.forward_into(rows(x, 4, 5), cache, out, mask, {.workspace = &workspace});
    };
    step();
    EXPECT_EQ(attn_test::allocations_in(step), 0u);
    EXPECT_EQ(cache.length(0), 6);
  }
}

/// Small integers are exact in 16 bits, as keys and values too.
template <class Storage>
class ExactStorage : public testing::Test {};
using SixteenBits = testing::Types<Eigen::half, Eigen::bfloat16>;
TYPED_TEST_SUITE(ExactStorage, SixteenBits);

TYPED_TEST(ExactStorage, OfKeysAndValuesGivesTheBitsOfFloats) {
  Attention module({.embed_dim = dim, .num_heads = 4, .num_kv_heads = 2, .bias = false});
  for_each_parameter(module, []<int Rank>(const std::string&, attn::Parameter<float, Rank>& parameter) {
    parameter.edit([](const TensorView<float, Rank>& values) {
      for (Index i = 0; i < values.size(); ++i) values.data()[i] = static_cast<float>(i * i % 7 % 3 - 1);
    });
  });
  Tensor<float, 3> x({2, 11, dim});
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(i * 5 % 11 % 4 - 1);
  for (const auto& chunks : all_chunks) {
    attn::KVCache<float> exact(cache_for(module, 2, 11));
    attn::KVCache<float, TypeParam> stored(cache_for(module, 2, 11));
    EXPECT_EQ(in_chunks(module, stored, x, chunks, attn::Causal{}),
              in_chunks(module, exact, x, chunks, attn::Causal{}));
  }
}

TEST(CachedAttentionOfDouble, AgreesWithTheWholeSequenceToTheDigitsOfDouble) {
  attn::MultiHeadAttention<double> module(
      {.embed_dim = 8, .num_heads = 2, .rope = attn::RopeConfig{.pairing = attn::RopePairing::interleaved}});
  attn_test::randomize(module, 5);
  const auto x = random_tensor<double, 3>({1, 9, 8}, 4);
  attn::KVCache<double> cache({.num_kv_heads = 2, .head_dim = 4, .max_len = 9});
  const auto whole = module.forward(x, attn::Causal{});
  for (Index i = 0; i < 9; ++i) {
    const auto one = module.forward(x.view().slice(1, {i, i + 1}), cache, attn::Causal{});
    for (Index c = 0; c < 8; ++c) EXPECT_NEAR(one(0, 0, c), whole(0, i, c), 1e-14);
  }
}

TEST(CachedAttentionOfHalf, AgreesWithTheWholeSequenceToTheDigitsOfHalf) {
  attn::MultiHeadAttention<Eigen::half> module({.embed_dim = 8, .num_heads = 2});
  attn_test::randomize(module, 5);
  const auto x = random_tensor<Eigen::half, 3>({1, 9, 8}, 4);
  attn::KVCache<Eigen::half> cache({.num_kv_heads = 2, .head_dim = 4, .max_len = 9});
  const auto whole = module.forward(x, attn::Causal{});
  for (Index i = 0; i < 9; ++i) {
    const auto one = module.forward(x.view().slice(1, {i, i + 1}), cache, attn::Causal{});
    for (Index c = 0; c < 8; ++c)
      EXPECT_NEAR(static_cast<float>(one(0, 0, c)), static_cast<float>(whole(0, i, c)), 0x1p-9);
  }
}

TEST(CachedAttentionOfMixedStorage, TakesFloatsOnWeightsOfSixteenBits) {
  attn::MultiHeadAttention<Eigen::bfloat16> stored({.embed_dim = dim, .num_heads = 4});
  attn_test::randomize(stored, 5);
  const auto x = random_tensor<float, 3>({1, 6, dim}, 4);
  attn::KVCache<float, Eigen::bfloat16> cache({.num_kv_heads = 4, .head_dim = 4, .max_len = 6});
  const auto out = stored.forward(x, cache, attn::Causal{});
  static_assert(std::is_same_v<decltype(out), const Tensor<float, 3>>);
  EXPECT_LT(largest_difference(out, stored.forward(x, attn::Causal{})), 0.05);
}

TEST(CachedAttentionRows, MayBeAMatrixForACacheOfOneSequence) {
  const Attention module = random_module({.embed_dim = dim, .num_heads = 4});
  const attn::Matrix<float> x = Eigen::MatrixXf::Random(7, dim);
  attn::KVCache<float> cache(cache_for(module, 1, 7));
  const attn::Matrix<float> whole = module.forward(x, attn::Causal{});
  const attn::Matrix<float> prompt = module.forward(x.topRows(5), cache, attn::Causal{});
  const attn::Matrix<float> rest = module.forward(x.bottomRows(2), cache, attn::Causal{});
  EXPECT_LT((prompt - whole.topRows(5)).cwiseAbs().maxCoeff(), 1e-5F);
  EXPECT_LT((rest - whole.bottomRows(2)).cwiseAbs().maxCoeff(), 1e-5F);
}

TEST(CachedAttentionRows, ThatDoNotCountLeaveASequenceAsItIs) {
  const Attention module = random_module({.embed_dim = dim, .num_heads = 4});
  const auto x = random_tensor<float, 3>({2, 6, dim}, 6);
  attn::KVCache<float> cache(cache_for(module, 2, 6));
  (void)module.forward(rows(x, 0, 4), cache, attn::Causal{});
  const std::vector<Index> counts{1, 0};
  (void)module.forward(rows(x, 4, 5), cache, attn::Causal{}, {.counts = counts});
  EXPECT_EQ(cache.length(0), 5);
  EXPECT_EQ(cache.length(1), 4);
  const auto next = module.forward(rows(x, 4, 5), cache, attn::Causal{});
  const auto whole = module.forward(rows(x, 0, 5), attn::Causal{});
  for (Index c = 0; c < dim; ++c) EXPECT_NEAR(next(1, 0, c), whole(1, 4, c), 1e-5);
}

TEST(CachedAttentionRows, SeeAllOfTheCacheWithoutAMask) {
  const Attention module = random_module({.embed_dim = dim, .num_heads = 4});
  const auto x = random_tensor<float, 3>({1, 6, dim}, 7);
  attn::KVCache<float> cache(cache_for(module, 1, 6));
  (void)module.forward(rows(x, 0, 4), cache);
  const auto last = module.forward(rows(x, 4, 6), cache);
  const auto whole = module.forward(x);
  for (Index i = 0; i < 2; ++i)
    for (Index c = 0; c < dim; ++c) EXPECT_NEAR(last(0, i, c), whole(0, 4 + i, c), 1e-5);
}

/// The newest `window` keys, and the first `sinks`.
struct Streaming {
  static constexpr bool uses_positions = true;
  Index window, sinks;
  bool allows(const attn::Site& s, const attn::Problem& p) const {
    const Index behind = s.q + p.query_offset(s.batch) - s.k;
    return behind >= 0 && (behind < window || s.k < sinks);
  }
};

TEST(CachedAttentionInARollingWindow, EqualsTheWholeSequenceUnderTheWindow) {
  for (const Index sinks : {0, 2})
    for (const bool rope : {false, true}) {
      Config config{.embed_dim = dim, .num_heads = 4, .num_kv_heads = 2};
      if (rope) config.rope = attn::RopeConfig{.pairing = attn::RopePairing::half};
      const Attention module = random_module(config);
      const auto x = random_tensor<float, 3>({2, 30, dim}, 8);
      const Streaming mask{4, sinks};
      const auto whole = module.forward(x, mask);
      auto room = cache_for(module, 2, 9);
      room.window = 4;
      room.sinks = sinks;
      attn::KVCache<float> cache(room);
      std::vector<Index> chunks{3, 2};
      chunks.resize(27, 1);
      EXPECT_LT(largest_difference(in_chunks(module, cache, x, chunks, mask), whole), 2e-5);
      EXPECT_LE(cache.longest(), 9);
    }
}

TEST(CachedAttentionInARollingWindow, MakesRoomForTheRowsThatCountAlone) {
  const Attention module = random_module({.embed_dim = dim, .num_heads = 4});
  const auto x = random_tensor<float, 3>({2, 9, dim}, 8);
  auto room = cache_for(module, 2, 8);
  room.window = 3;
  room.sinks = 1;
  attn::KVCache<float> cache(room);
  (void)module.forward(rows(x, 0, 3), cache, attn::Causal{});
  const std::vector<Index> few{1, 2}, most{4, 3}, one{0, 1};
  (void)module.forward(x, cache, attn::Causal{}, {.counts = few});  // 9 rows, of which few count
  EXPECT_EQ(std::vector<Index>(cache.lengths().begin(), cache.lengths().end()), (std::vector<Index>{4, 5}));
  (void)module.forward(rows(x, 0, 4), cache, attn::Causal{}, {.counts = most});
  (void)module.forward(rows(x, 0, 1), cache, attn::Causal{}, {.counts = one});
  EXPECT_EQ(cache.length(0), 8);  // full, and nothing came
  EXPECT_EQ(cache.length(1), 4);  // full: sink and window stay
}

TEST(CachedAttentionExecutors, GiveTheSameBits) {
  const Attention module = random_module(all_configs()[6]);
  const auto x = random_tensor<float, 3>({2, 11, dim}, 9);
  attn::ThreadPool pool(3);
  attn::KVCache<float> a(cache_for(module, 2, 11)), b(cache_for(module, 2, 11));
  for (Index i = 0; i < 11; ++i)
    EXPECT_EQ(module.forward(rows(x, i, i + 1), a, attn::Causal{}),
              module.forward(rows(x, i, i + 1), b, attn::Causal{}, {.executor = pool}));
}

// What goes wrong.

struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Throws instead of running loop number `left`.
struct FailingExecutor {
  Index left;
  static Index concurrency() { return 1; }
  void parallel_for(Index count, attn::TaskRef task) {
    if (left-- == 0) throw Interrupted("no more");
    for (Index i = 0; i < count; ++i) task(i, 0);
  }
};

TEST(CachedAttentionInterrupted, LeavesTheCacheAsItWasWhereverItHappens) {
  Config config = all_configs().back();
  const Attention module = random_module(config);
  const auto x = random_tensor<float, 3>({2, 8, dim}, 10);
  for (const Index page_rows : {0, 2}) {
    auto room = cache_for(module, 2, 8);
    room.page_rows = page_rows;
    attn::KVCache<float> cache(room), calm(room);
    const std::vector<Index> counts{5, 3};
    (void)module.forward(rows(x, 0, 5), cache, attn::Causal{}, {.counts = counts});
    (void)module.forward(rows(x, 0, 5), calm, attn::Causal{}, {.counts = counts});
    Tensor<float, 3> out({2, 3, dim});
    Index failures = 0;
    for (bool done = false; !done; ++failures) {
      FailingExecutor executor{failures};
      try {
        module.forward_into(rows(x, 5, 8), cache, out, attn::Causal{}, {.executor = executor});
        done = true;
      } catch (const Interrupted&) {
        EXPECT_EQ(cache.length(0), 5);
        EXPECT_EQ(cache.length(1), 3);
      }
    }
    EXPECT_GT(failures, 6);  // projections, norms, rotations, attention, gate, projection
    EXPECT_EQ(out, module.forward(rows(x, 5, 8), calm, attn::Causal{}));
  }
}

TEST(CachedAttentionErrors, LeaveTheCacheAsItWas) {
  const Attention module = random_module({.embed_dim = dim, .num_heads = 4});
  const auto x = random_tensor<float, 3>({2, 8, dim}, 11);
  attn::KVCache<float> cache(cache_for(module, 2, 6));
  (void)module.forward(rows(x, 0, 4), cache, attn::Causal{});
  EXPECT_THROW((void)module.forward(rows(x, 0, 3), cache, attn::Causal{}), std::length_error);
  EXPECT_EQ(cache.length(1), 4);
  const Eigen::Matrix<bool, 2, 5> wrong = Eigen::Matrix<bool, 2, 5>::Ones();
  EXPECT_THROW((void)module.forward(rows(x, 4, 6), cache, attn::KeepMask(wrong)), attn::ShapeError);
  EXPECT_EQ(cache.length(0), 4);
  EXPECT_EQ(cache.length(1), 4);
  const auto whole = module.forward(rows(x, 0, 6), attn::Causal{});
  const auto rest = module.forward(rows(x, 4, 6), cache, attn::Causal{});
  for (Index c = 0; c < dim; ++c) EXPECT_NEAR(rest(1, 1, c), whole(1, 5, c), 1e-5);
}

TEST(CachedAttentionErrors, NameWhatDoesNotFit) {
  const Attention module = random_module({.embed_dim = dim, .num_heads = 4, .num_kv_heads = 2});
  const auto x = random_tensor<float, 3>({2, 3, dim}, 12);
  attn::KVCache<float> other({.batch = 2, .num_kv_heads = 4, .head_dim = 4, .max_len = 4});
  EXPECT_EQ(
      error_text<attn::ShapeError>([&] { (void)module.forward(x, other); }),
      "attn: MultiHeadAttention: a cache of batch, num_kv_heads, head_dim and value_dim [2, 4, 4, 4] does "
      "not fit the layer and its input, [2, 2, 4, 4]");
  attn::KVCache<float> cache(cache_for(module, 2, 4));
  const std::vector<Index> few{1}, many{1, 4};
  EXPECT_EQ(
      error_text<attn::ShapeError>([&] { (void)module.forward(x, cache, attn::NoMask{}, {.counts = few}); }),
      "attn: MultiHeadAttention: options.counts has 1 values for a batch of 2");
  EXPECT_EQ(
      error_text<attn::ShapeError>([&] { (void)module.forward(x, cache, attn::NoMask{}, {.counts = many}); }),
      "attn: MultiHeadAttention: count 4 is not within [0, 3], the rows of x");
  Tensor<float, 3> in_place = x;
  EXPECT_EQ(error_text<std::invalid_argument>([&] { module.forward_into(in_place, cache, in_place); }),
            "attn: MultiHeadAttention: out [2, 3, 16] overlaps x [2, 3, 16]");
  for (const bool zero : {false, true}) {
    const Attention extended = random_module(
        {.embed_dim = dim, .num_heads = 4, .num_kv_heads = 2, .add_bias_kv = !zero, .add_zero_attn = zero});
    EXPECT_EQ(
        error_text<std::invalid_argument>([&] { (void)extended.forward(x, cache); }),
        "attn: MultiHeadAttention: a layer with add_bias_kv or add_zero_attn cannot use a cache: its extra "
        "keys stand behind the last");
  }
  EXPECT_EQ(cache.longest(), 0);
}

// Cross-attention.

attn::KVCacheConfig cross_cache_for(const Attention& module, Index batch, Index max_len) {
  auto config = cache_for(module, batch, max_len);
  config.kind = attn::CacheKind::cross_attention;
  return config;
}

TEST(CrossAttentionCache, FilledOnceEqualsTheCallWithKeysAndValues) {
  for (const Config& config : all_configs()) {
    const Attention module = random_module(config);
    const auto memory = random_tensor<float, 3>({2, 9, dim}, 13),
               x = random_tensor<float, 3>({2, 4, dim}, 14);
    attn::KVCache<float> cache(cross_cache_for(module, 2, 9));
    module.fill_cross_cache(memory, cache);
    for (Index i = 0; i < 4; ++i) {
      const attn::MultiHeadAttentionOptions at{.query_offset = i};
      const auto query = rows(x, i, i + 1);
      const auto out = module.forward_cross(query, cache, attn::NoMask{}, at);
      EXPECT_LT(largest_difference(out, module.forward(query, memory, memory, attn::NoMask{}, at)), 1e-6);
    }
  }
}

TEST(CrossAttentionCache, HidesPaddingOfTheMemory) {
  const Attention module = random_module({.embed_dim = dim, .num_heads = 4});
  const auto x = random_tensor<float, 3>({2, 4, dim}, 15);
  auto memory = random_tensor<float, 3>({2, 9, dim}, 16);
  const std::vector<Index> counts{9, 5};
  const attn::KeyPadding padding{counts};
  const auto want = module.forward(x, memory, memory, padding);
  for (Index i = 5; i < 9; ++i) std::fill_n(&memory(1, i, 0), dim, 1e4F);
  attn::KVCache<float> cache(cross_cache_for(module, 2, 9));
  module.fill_cross_cache(memory, cache, {.counts = counts});
  EXPECT_LT(largest_difference(module.forward_cross(x, cache), want), 1e-6);
}

TEST(CrossAttentionCache, FollowsTheBeams) {
  const Attention module = random_module({.embed_dim = dim, .num_heads = 4});
  const auto x = random_tensor<float, 3>({2, 1, dim}, 17), memory = random_tensor<float, 3>({2, 5, dim}, 18);
  attn::KVCache<float> cache(cross_cache_for(module, 2, 5));
  module.fill_cross_cache(memory, cache);
  const std::vector<Index> beams{1, 0};
  cache.reorder(beams);
  Tensor<float, 3> swapped(memory.extents());
  copy(memory.view()[1], swapped.view()[0]);
  copy(memory.view()[0], swapped.view()[1]);
  EXPECT_LT(largest_difference(module.forward_cross(x, cache), module.forward(x, swapped, swapped)), 1e-6);
}

TEST(CrossAttentionCache, AllocatesNothingPerTokenWhenWarm) {
  const Attention module = random_module({.embed_dim = dim, .num_heads = 4});
  const auto x = random_tensor<float, 3>({2, 1, dim}, 19), memory = random_tensor<float, 3>({2, 5, dim}, 20);
  attn::KVCache<float, Eigen::half> cache(cross_cache_for(module, 2, 5));
  const std::vector<Index> counts{5, 3};
  module.fill_cross_cache(memory, cache, {.counts = counts});
  Tensor<float, 3> out(x.extents());
  attn::Workspace workspace;
  const auto step = [&] {
    module.forward_cross_into(x, cache, out, attn::NoMask{}, {.workspace = &workspace});
  };
  step();
  EXPECT_EQ(attn_test::allocations_in(step), 0u);
}

TEST(CrossAttentionCache, SaysWhatItIsFor) {
  const Attention module = random_module({.embed_dim = dim, .num_heads = 4});
  const auto x = random_tensor<float, 3>({2, 3, dim}, 21);
  attn::KVCache<float> cross(cross_cache_for(module, 2, 6)), own(cache_for(module, 2, 6));
  EXPECT_EQ(error_text<std::invalid_argument>([&] { (void)module.forward_cross(x, cross); }),
            "attn: MultiHeadAttention: the cross-attention cache is empty: fill_cross_cache()");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { (void)module.forward(x, cross); }),
            "attn: MultiHeadAttention: the cache is one of cross-attention, which is filled by "
            "fill_cross_cache() and read by forward_cross()");
  for (const bool fill : {true, false})
    EXPECT_EQ(error_text<std::invalid_argument>([&] {
                if (fill)
                  module.fill_cross_cache(x, own);
                else
                  (void)module.forward_cross(x, own);
              }),
              "attn: MultiHeadAttention: the cache is one of self-attention, which fill_cross_cache() and "
              "forward_cross() do not take");
}

}  // namespace
