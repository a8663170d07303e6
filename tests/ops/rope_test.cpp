// tests/ops/rope_test.cpp - rotary embeddings: the laws of rotations, on every kind of view.
#include "attn/ops/rope.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "attn/ops/heads.hpp"
#include "support/attention.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::RopePairing;
using attn::RopeScalingKind;
using attn_test::distance;
using attn_test::random_tensor;
using attn_test::same_bits;

constexpr std::array pairings{RopePairing::interleaved, RopePairing::half};

template <class T>
class Rope : public testing::Test {
 protected:
  /// Largest error of a rotation of standard normal values.
  const double tolerance = std::is_same_v<T, double>        ? 1e-12
                           : std::is_same_v<T, float>       ? 8 * 0x1p-23
                           : std::is_same_v<T, Eigen::half> ? 8 * 0x1p-10
                                                            : 8 * 0x1p-7;
};
using Elements = testing::Types<float, double, Eigen::half, Eigen::bfloat16>;
TYPED_TEST_SUITE(Rope, Elements);

/// The formula, element by element, in double.
attn::Tensor<double, 4> rotated(const auto& x, RopePairing pairing, Index rotary_dim, double base,
                                const auto& position) {
  attn::Tensor<double, 4> y(x.extents());
  attn::copy(x.view(), y.view());
  const Index pairs = rotary_dim / 2;
  for (Index b = 0; b < y.extent(0); ++b)
    for (Index h = 0; h < y.extent(1); ++h)
      for (Index i = 0; i < y.extent(2); ++i)
        for (Index pair = 0; pair < pairs; ++pair) {
          const double angle =
              static_cast<double>(position(b, i)) *
              std::pow(base, -2 * static_cast<double>(pair) / static_cast<double>(rotary_dim));
          const Index first = pairing == RopePairing::half ? pair : 2 * pair,
                      second = pairing == RopePairing::half ? pair + pairs : 2 * pair + 1;
          const auto u = static_cast<double>(x(b, h, i, first)), v = static_cast<double>(x(b, h, i, second));
          y(b, h, i, first) = u * std::cos(angle) - v * std::sin(angle);
          y(b, h, i, second) = v * std::cos(angle) + u * std::sin(angle);
        }
  return y;
}

TYPED_TEST(Rope, FollowsTheFormulaForEveryHeadSizeAndPart) {
  for (const RopePairing pairing : pairings)
    for (const auto& [head_dim, rotary_dim] :
         {std::array<Index, 2>{2, 2}, {3, 2}, {8, 8}, {10, 6}, {22, 22}, {64, 64}, {80, 32}, {96, 34}}) {
      const auto x = random_tensor<TypeParam, 4>({2, 3, 7, head_dim}, 1);
      const std::vector<Index> offsets{0, 1013};
      const auto want = rotated(x, pairing, rotary_dim, 500,
                                [&](Index b, Index i) { return offsets[static_cast<std::size_t>(b)] + i; });
      const attn::RotaryEmbedding rope(
          {.pairing = pairing, .head_dim = head_dim, .rotary_dim = rotary_dim, .base = 500});
      auto y = random_tensor<TypeParam, 4>({2, 3, 7, head_dim}, 2);
      rope.apply_into(x, y, offsets);
      EXPECT_LT(distance(y, want), this->tolerance) << head_dim << " " << rotary_dim;
    }
}

TYPED_TEST(Rope, PositionZeroChangesNothing) {
  for (const RopePairing pairing : pairings) {
    const attn::RotaryEmbedding rope({.pairing = pairing, .head_dim = 12});
    const auto x = random_tensor<TypeParam, 4>({3, 2, 1, 12}, 1);
    auto y = x;
    rope.apply(y, 0);
    EXPECT_EQ(distance(x, y), 0);
  }
}

TYPED_TEST(Rope, AProductOfQueryAndKeyDependsOnTheirDistanceAlone) {
  for (const RopePairing pairing : pairings) {
    const attn::RotaryEmbedding rope({.pairing = pairing, .head_dim = 16});
    const auto q = random_tensor<TypeParam, 2>({1, 16}, 1), k = random_tensor<TypeParam, 2>({1, 16}, 2);
    const auto product = [&](Index at_q, Index at_k) {
      auto left = q, right = k;
      rope.apply(left, at_q);
      rope.apply(right, at_k);
      double sum = 0;
      for (Index i = 0; i < 16; ++i)
        sum += static_cast<double>(left(0, i)) * static_cast<double>(right(0, i));
      return sum;
    };
    for (const Index offset : {1, 98, 4000, -70})
      EXPECT_NEAR(product(5, 2), product(5 + offset, 2 + offset), 16 * this->tolerance) << offset;
    EXPECT_GT(std::abs(product(5, 2) - product(2, 5)), 0.1);
  }
}

TYPED_TEST(Rope, InvertUndoesApply) {
  for (const RopePairing pairing : pairings)
    for (const RopeScalingKind kind : {RopeScalingKind::none, RopeScalingKind::yarn}) {
      const attn::RotaryEmbedding rope({.pairing = pairing,
                                        .head_dim = 16,
                                        .rotary_dim = 12,
                                        .scaling = {.kind = kind, .factor = 8, .original_max_len = 64}});
      const auto x = random_tensor<TypeParam, 4>({2, 3, 5, 16}, 1);
      auto y = x, back = x;
      rope.apply(y, 777);
      EXPECT_GT(distance(x, y), 0.5);
      rope.invert_into(y, back, 777);
      EXPECT_LT(distance(x, back), 2 * this->tolerance);
      rope.invert(y, 777);
      EXPECT_TRUE(same_bits(y, back));
    }
}

TYPED_TEST(Rope, ShiftMovesRotatedRowsWithoutGrowingThemAgain) {
  for (const RopePairing pairing : pairings) {
    const attn::RotaryEmbedding rope(
        {.pairing = pairing,
         .head_dim = 16,
         .scaling = {.kind = RopeScalingKind::yarn, .factor = 8, .original_max_len = 64}});
    ASSERT_GT(rope.attention_factor(), 1.1);
    const auto x = random_tensor<TypeParam, 4>({2, 3, 5, 16}, 1);
    auto moved = x, there = x;
    const std::vector<Index> before{100, 7}, by{-93, 40}, after{7, 47};
    rope.apply(moved, before);
    rope.shift(moved, by);
    rope.apply(there, after);
    EXPECT_LT(distance(moved, there), 2 * this->tolerance);
  }
}

TYPED_TEST(Rope, AnOffsetMeansThePositionsThatFollowIt) {
  const attn::RotaryEmbedding rope({.pairing = RopePairing::half, .head_dim = 8});
  const auto x = random_tensor<TypeParam, 4>({2, 2, 130, 8}, 1);
  auto by_offset = x, by_offsets = x, by_rows = x;
  std::vector<Index> rows;
  for (Index i = 0; i < 130; ++i) rows.push_back(50 + i);
  rope.apply(by_offset, 50);
  rope.apply(by_offsets, std::vector<Index>{50, 50});
  rope.apply(by_rows, attn::TensorView<const Index, 2>(rows.data(), {1, 130}));
  EXPECT_TRUE(same_bits(by_offset, by_offsets));
  EXPECT_TRUE(same_bits(by_offset, by_rows));
}

TYPED_TEST(Rope, RowsInAnyOrderOfPositionsAreTheSameRows) {
  const attn::RotaryEmbedding rope({.pairing = RopePairing::interleaved, .head_dim = 8});
  auto x = random_tensor<TypeParam, 4>({1, 2, 40, 8}, 1), y = x;
  std::vector<Index> rows;
  for (Index i = 0; i < 40; ++i) rows.push_back(i * 523 % 401 - 200);
  rope.apply(x, attn::TensorView<const Index, 2>(rows.data(), {1, 40}));
  for (Index i = 0; i < 40; ++i) {
    const auto row = y.view().slice(2, {i, i + 1});
    rope.apply(row, rows[static_cast<std::size_t>(i)]);
  }
  EXPECT_TRUE(same_bits(x, y));
}

TYPED_TEST(Rope, ResultsDependNeitherOnPlaceStridesNorExecutor) {
  using T = TypeParam;
  attn::ThreadPool pool(3);
  for (const RopePairing pairing : pairings) {
    const attn::RotaryEmbedding rope({.pairing = pairing, .head_dim = 24, .rotary_dim = 20});
    const auto x = random_tensor<T, 4>({2, 5, 150, 24}, 1);
    auto in_place = x, elsewhere = random_tensor<T, 4>({2, 5, 150, 24}, 2), in_parallel = x;
    rope.apply(in_place, 30);
    rope.apply_into(x, elsewhere, 30);
    rope.apply(in_parallel, 30, {.executor = pool});
    EXPECT_TRUE(same_bits(in_place, elsewhere));
    EXPECT_TRUE(same_bits(in_place, in_parallel));
    std::vector<T> memory(static_cast<std::size_t>(2 * x.size()));  // len, heads, dim backwards, batch
    const attn::TensorView<T, 4> strided(memory.data() + 23 * 4, {2, 5, 150, 24},
                                         {2, 24 * 4, 5 * 24 * 4, -4});
    attn::copy(x.view(), strided);
    rope.apply(strided, 30);
    EXPECT_TRUE(same_bits(in_place, strided));
    for (Index shift = 0; shift < 16; ++shift) {  // every distance from a multiple of a packet
      const attn::TensorView<T, 4> shifted(memory.data() + shift, {2, 5, 150, 24});
      attn::copy(x.view(), shifted);
      rope.apply(shifted, 30);
      EXPECT_TRUE(same_bits(in_place, shifted)) << shift;
    }
  }
}

TYPED_TEST(Rope, EveryRankIsRotatedAsRankFourIs) {
  const attn::RotaryEmbedding rope({.pairing = RopePairing::half, .head_dim = 8});
  const auto x = random_tensor<TypeParam, 4>({1, 3, 6, 8}, 1);
  auto four = x, three = x, two = x;
  rope.apply(four, 9);
  rope.apply(three.view()[0], 9);
  for (Index head = 0; head < 3; ++head) rope.apply(two.view()[0][head], 9);
  EXPECT_TRUE(same_bits(four, three));
  EXPECT_TRUE(same_bits(four, two));
}

TYPED_TEST(Rope, QueriesAndKeysOfAFusedProjectionAreRotatedWhereTheyLie) {
  using T = TypeParam;
  const Index heads = 3, dim = 8, len = 5, width = 3 * heads * dim;
  attn::Matrix<T> fused(len, width);
  const auto values = random_tensor<T, 2>({len, width}, 1);
  attn::copy(values.view(), attn::as_view(fused));
  const attn::RotaryEmbedding rope({.pairing = RopePairing::half, .head_dim = dim});
  auto keys = fused.middleCols(heads * dim, heads * dim);
  rope.apply(attn::split_heads(keys, heads), 11);
  auto alone = values;
  const auto part = alone.view().slice(1, {heads * dim, 2 * heads * dim});
  for (Index head = 0; head < heads; ++head) rope.apply(part.slice(1, {head * dim, (head + 1) * dim}), 11);
  EXPECT_TRUE(same_bits(fused, alone));
}

TYPED_TEST(Rope, NothingIsAllocatedWithAWorkspaceThatHasServedTheShape) {
  const attn::RotaryEmbedding rope({.pairing = RopePairing::interleaved, .head_dim = 32});
  auto x = random_tensor<TypeParam, 4>({2, 3, 100, 32}, 1);
  attn::Workspace workspace;
  rope.apply(x, 1, {.workspace = &workspace});
  EXPECT_EQ(attn_test::allocations_in([&] {
              rope.apply(x, 2, {.workspace = &workspace});
              rope.shift(x, -2, {.workspace = &workspace});
            }),
            0);
}

TYPED_TEST(Rope, TablesOfTheCallerRotateAsTheirAnglesSay) {
  using T = TypeParam;
  const Index len = 6, pairs = 5, head_dim = 13;
  const auto x = random_tensor<T, 4>({2, 3, len, head_dim}, 1);
  attn::Tensor<T, 2> cosines({len, pairs}), sines({len, pairs});
  for (Index i = 0; i < len; ++i)
    for (Index pair = 0; pair < pairs; ++pair) {
      const double angle = static_cast<double>(i + 4) * std::pow(10000.0, -static_cast<double>(pair) / 5);
      cosines(i, pair) = static_cast<T>(std::cos(angle));
      sines(i, pair) = static_cast<T>(std::sin(angle));
    }
  for (const RopePairing pairing : pairings) {
    auto y = x;
    attn::rotate_pairs_into(y, cosines, sines, y, pairing);
    EXPECT_LT(distance(y, rotated(x, pairing, 2 * pairs, 10000, [](Index, Index i) { return i + 4; })),
              2 * this->tolerance);
  }
}

TEST(RopeScaling, EndsOfTheSpectrumAreAsThePapersSay) {
  attn::RopeConfig config{.pairing = RopePairing::half, .head_dim = 64};
  const auto plain = attn::RotaryEmbedding(config);
  for (const RopeScalingKind kind : {RopeScalingKind::ntk, RopeScalingKind::yarn, RopeScalingKind::llama3}) {
    config.scaling = {.kind = kind, .factor = 4, .original_max_len = 1024};
    const attn::RotaryEmbedding scaled(config);
    EXPECT_DOUBLE_EQ(scaled.frequencies().front(), plain.frequencies().front()) << static_cast<int>(kind);
    EXPECT_NEAR(scaled.frequencies().back() * 4, plain.frequencies().back(), 1e-18) << static_cast<int>(kind);
    for (std::size_t i = 1; i < 32; ++i) EXPECT_LT(scaled.frequencies()[i], scaled.frequencies()[i - 1]);
  }
}

TEST(RopeScaling, AFactorOfOneChangesNothing) {
  attn::RopeConfig config{.pairing = RopePairing::half, .head_dim = 64};
  const attn::RotaryEmbedding plain(config);
  for (const RopeScalingKind kind :
       {RopeScalingKind::linear, RopeScalingKind::ntk, RopeScalingKind::yarn, RopeScalingKind::llama3}) {
    config.scaling = {.kind = kind, .original_max_len = 1024};
    const attn::RotaryEmbedding scaled(config);
    EXPECT_EQ(scaled.attention_factor(), 1);
    for (std::size_t i = 0; i < 32; ++i)
      EXPECT_NEAR(scaled.frequencies()[i], plain.frequencies()[i], 1e-15 * plain.frequencies()[i]);
  }
  EXPECT_EQ(attn::dynamic_ntk_factor(4, 512, 512), 1);
  EXPECT_EQ(attn::dynamic_ntk_factor(4, 1024, 512), 5);
}

TEST(RopeErrors, ConfigsThatAreNoneNameTheirNumbers) {
  const auto text = [](const attn::RopeConfig& config) {
    return attn_test::error_text<std::invalid_argument>([&] { attn::RotaryEmbedding rope(config); });
  };
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto half = RopePairing::half;
  EXPECT_EQ(text({.pairing = half}), "attn: RotaryEmbedding: head_dim 0 must be positive");
  EXPECT_EQ(text({.pairing = half, .head_dim = 7}),
            "attn: RotaryEmbedding: rotary_dim 7 of head_dim 7 is odd and does not divide into pairs");
  EXPECT_EQ(text({.pairing = half, .head_dim = 8, .rotary_dim = 10}),
            "attn: RotaryEmbedding: rotary_dim 10 does not fit in head_dim 8");
  EXPECT_EQ(text({.pairing = half, .head_dim = 8, .rotary_dim = -2}),
            "attn: RotaryEmbedding: rotary_dim -2 does not fit in head_dim 8");
  for (const double base : {0.0, -1.0, infinity, std::nan("")})
    EXPECT_NE(text({.pairing = half, .head_dim = 8, .base = base}).find("RotaryEmbedding: base"),
              std::string::npos);
  const auto scaled = [&](const attn::RopeScaling& scaling) {
    return text({.pairing = half, .head_dim = 8, .scaling = scaling});
  };
  EXPECT_EQ(scaled({.kind = RopeScalingKind::linear, .factor = 0}),
            "attn: RotaryEmbedding: scaling.factor 0 must be a positive finite number");
  EXPECT_EQ(scaled({.kind = RopeScalingKind::yarn, .factor = 2}),
            "attn: RotaryEmbedding: scaling.original_max_len 0 must be positive");
  EXPECT_EQ(scaled({.kind = RopeScalingKind::yarn, .factor = 2, .original_max_len = 8, .beta_fast = 0.5}),
            "attn: RotaryEmbedding: scaling.beta_fast 0.5 must be finite and not below beta_slow");
  EXPECT_EQ(
      scaled({.kind = RopeScalingKind::llama3, .factor = 2, .original_max_len = 8, .low_freq_factor = 4}),
      "attn: RotaryEmbedding: scaling.high_freq_factor 4 must be finite and above low_freq_factor");
  EXPECT_EQ(text({.pairing = half, .head_dim = 2, .scaling = {.kind = RopeScalingKind::ntk, .factor = 2}}),
            "attn: RotaryEmbedding: rotary_dim 2 has one pair, and ntk scaling needs two");
}

TEST(RopeErrors, TensorsAndPositionsThatDoNotFitNameBoth) {
  const attn::RotaryEmbedding rope({.pairing = RopePairing::half, .head_dim = 8});
  attn::Tensor<float, 4> x({2, 3, 5, 8});
  const auto text = [&](auto&& f) { return attn_test::error_text<attn::ShapeError>(f); };
  attn::Tensor<float, 2> narrow({5, 6});
  EXPECT_EQ(text([&] { rope.apply(narrow, 0); }),
            "attn: RotaryEmbedding::apply: x [1, 1, 5, 6] has head_dim 6 and the embedding 8");
  const std::vector<Index> three{1, 2, 3};
  EXPECT_EQ(text([&] { rope.invert(x, three); }),
            "attn: RotaryEmbedding::invert: 3 offsets for the batch of x [2, 3, 5, 8]");
  EXPECT_EQ(text([&] {
              rope.apply(x, attn::TensorView<const Index, 2>(three.data(), {1, 3}));
            }),
            "attn: RotaryEmbedding::apply: positions [1, 3] [batch, len] do not fit x [2, 3, 5, 8]");
  EXPECT_NE(text([&] {
              rope.apply_into(x.view().slice(2, {0, 4}), x.view().slice(2, {1, 5}), 0);
            }).find("overlaps x"),
            std::string::npos);
  EXPECT_EQ(
      attn_test::error_text<std::length_error>([&] { rope.shift(x, Index{1} << 52); }),
      "attn: RotaryEmbedding::shift: position 4503599627370496 of x [2, 3, 5, 8] is not between -2^52 and "
      "2^52");
  const attn::Tensor<float, 2> cosines({4, 4}), sines({4, 3});
  EXPECT_EQ(text([&] { attn::rotate_pairs_into(x, cosines, sines, x, RopePairing::half); }),
            "attn: rotate_pairs: cos [2, 4, 4] and sin [2, 4, 3] differ in extents");
  EXPECT_EQ(text([&] { attn::rotate_pairs_into(x, cosines, cosines, x, RopePairing::half); }),
            "attn: rotate_pairs: cos and sin [2, 4, 4] [batch, len, pairs] do not fit x [2, 3, 5, 8]");
}

TEST(RopeErrors, EmptyTensorsAreNone) {
  const attn::RotaryEmbedding rope({.pairing = RopePairing::half, .head_dim = 8});
  attn::Tensor<float, 4> no_rows({2, 3, 0, 8}), no_batch({0, 3, 5, 8});
  rope.apply(no_rows, 5);
  rope.apply(no_batch, std::vector<Index>{});
}

}  // namespace
