#include "attn/core/random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace {

using attn::CounterRandom;
using Words = std::array<std::uint32_t, 4>;

Words words(const CounterRandom& random, std::uint64_t counter) {
  const auto block = random.block(counter);
  return {block.words[0], block.words[1], block.words[2], block.words[3]};
}

// The known answers that Random123 publishes for philox4x32 with 10 rounds (its file kat_vectors): counter
// words 0 and 1 are our counter, 2 and 3 the stream; the key is the seed.
TEST(CounterRandom, GivesThePublishedAnswersOfPhilox) {
  EXPECT_EQ(words(CounterRandom(0, 0), 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(CounterRandom(~std::uint64_t{0}, ~std::uint64_t{0}), ~std::uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(CounterRandom(0x299f31d0a4093822, 0x0370734413198a2e), 0x85a308d3243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandom, DependsOnSeedStreamAndIndex) {
  const CounterRandom random(1, 2);
  EXPECT_EQ(random.uniform(7), CounterRandom(1, 2).uniform(7));
  EXPECT_NE(random.uniform(7), random.uniform(8));
  EXPECT_NE(random.uniform(7), CounterRandom(1, 3).uniform(7));
  EXPECT_NE(random.uniform(7), CounterRandom(2, 2).uniform(7));
}

TEST(CounterRandom, WordsAreTheBlocksInOrder) {
  const CounterRandom random(5);
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(random.word(i), random.block(i / 4).words[i % 4]);
}

// The bounds are five standard errors of the mean and of the variance of the named distribution.
TEST(CounterRandom, UniformHasTheMomentsOfTheUniformDistribution) {
  const CounterRandom random(11);
  constexpr int count = 100000;
  double sum = 0, squares = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double x = random.uniform(i);
    ASSERT_TRUE(0 <= x && x < 1);
    sum += x;
    squares += (x - 0.5) * (x - 0.5);
  }
  EXPECT_NEAR(sum / count, 0.5, 5 * std::sqrt(1.0 / 12 / count));
  EXPECT_NEAR(squares / count, 1.0 / 12, 5 * std::sqrt(1.0 / 180 / count));
}

TEST(CounterRandom, NormalHasTheMomentsOfTheNormalDistribution) {
  const CounterRandom random(12);
  constexpr int count = 100000;
  double sum = 0, squares = 0, fourth = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double x = random.normal(i);
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / count, 0, 5 * std::sqrt(1.0 / count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2.0 / count));
  EXPECT_NEAR(fourth / count, 3, 5 * std::sqrt(96.0 / count));
}

}  // namespace
