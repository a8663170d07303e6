#include "attn/models/sampling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "attn/core/tensor.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"

namespace {

using attn::Index;
using attn::Sampler;
using attn::SamplingOptions;
using attn_test::error_text;
using Row = Eigen::RowVectorXf;
using Ids = std::vector<Index>;

constexpr float infinity = std::numeric_limits<float>::infinity();

Row row(const std::vector<float>& values) {
  return Eigen::Map<const Row>(values.data(), static_cast<Index>(values.size()));
}

Row logs(Row probabilities) { return probabilities.array().log(); }

Row random_logits(Index size, std::uint64_t seed) {
  const attn::CounterRandom random(seed);
  Row logits(size);
  for (Index i = 0; i < size; ++i)
    logits(i) = static_cast<float>(3 * random.normal(static_cast<std::uint64_t>(i)));
  return logits;
}

std::vector<double> counts_of(const SamplingOptions& options, const Row& logits, int draws) {
  Sampler sampler(options);
  std::vector<double> counts(static_cast<std::size_t>(logits.size()));
  for (int i = 0; i < draws; ++i) ++counts[static_cast<std::size_t>(sampler.next(logits))];
  return counts;
}

std::set<Index> drawn_of(const SamplingOptions& options, const Row& logits) {
  const std::vector<double> counts = counts_of(options, logits, 2000);
  std::set<Index> drawn;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) drawn.insert(static_cast<Index>(i));
  return drawn;
}

/// Pearson's statistic of the draws against probabilities that need not sum to 1; tokens of probability 0
/// must not occur.
double chi_square(const std::vector<double>& counts, const std::vector<double>& probabilities) {
  double draws = 0, total = 0, statistic = 0;
  for (const double count : counts) draws += count;
  for (const double p : probabilities) total += p;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = draws * probabilities[i] / total;
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0);
    } else {
      statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
  }
  return statistic;
}

// Of 5 degrees of freedom, exceeded once in 1000 seeds; of fewer, less often.
constexpr double chi_square_5 = 20.5;
const Row six = row({1.0F, -0.5F, 0.25F, 2.0F, 0.0F, -1.0F});

TEST(Sampling, GreedyChoosesTheLargestLogitAndOfEqualOnesTheFirst) {
  Sampler greedy;
  EXPECT_EQ(greedy.next(six), 3);
  EXPECT_EQ(greedy.next(row({1, 5, 5, 2})), 1);
  EXPECT_EQ(greedy.next(row({-infinity, -3, -infinity})), 1);
}

TEST(Sampling, ATemperatureNearZeroIsGreedy) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Row logits = random_logits(300, seed);
    for (const double temperature : {1e-6, 1e-30, 1e-300}) {
      Sampler sampler({.temperature = temperature, .seed = seed});
      EXPECT_EQ(sampler.next(logits), Sampler().next(logits));
    }
  }
}

TEST(Sampling, TheLikeliestTokenAloneIsGreedyAtAnyTemperature) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Row logits = random_logits(300, seed);
    logits.array() = logits.array().round();  // with ties
    Sampler sampler({.temperature = 5, .top_k = 1, .seed = seed});
    EXPECT_EQ(sampler.next(logits), Sampler().next(logits));
  }
}

TEST(Sampling, DrawsFollowTheSoftmaxOfTheLogitsOverTheTemperature) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    std::vector<double> expected;
    for (const float logit : six) expected.push_back(std::exp(static_cast<double>(logit) / temperature));
    EXPECT_LT(chi_square(counts_of({.temperature = temperature, .seed = 11}, six, 30000), expected),
              chi_square_5);
  }
}

TEST(Sampling, TopKDrawsFromThatManyLikeliestInProportion) {
  std::vector<double> expected;
  for (const float logit : six) expected.push_back(logit >= 0.25F ? std::exp(static_cast<double>(logit)) : 0);
  EXPECT_LT(chi_square(counts_of({.temperature = 1, .top_k = 3, .seed = 5}, six, 30000), expected),
            chi_square_5);
  EXPECT_EQ(drawn_of({.temperature = 100, .top_k = 4}, six), (std::set<Index>{0, 2, 3, 4}));
  EXPECT_EQ(drawn_of({.temperature = 100, .top_k = 2}, row({1, 1, 1, 1})), (std::set<Index>{0, 1}));
}

TEST(Sampling, MoreThanAllTokensIsAll) {
  Sampler all({.temperature = 1}), more({.temperature = 1, .top_k = 60});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(all.next(six), more.next(six));
}

TEST(Sampling, TopPKeepsTheFewestLikeliestTokensOfThatProbability) {
  const Row logits = logs(row({0.15F, 0.5F, 0.05F, 0.3F}));
  const auto drawn = [&](double top_p) { return drawn_of({.temperature = 1, .top_p = top_p}, logits); };
  EXPECT_EQ(drawn(1e-9), (std::set<Index>{1}));
  EXPECT_EQ(drawn(0.49), (std::set<Index>{1}));
  EXPECT_EQ(drawn(0.51), (std::set<Index>{1, 3}));
  EXPECT_EQ(drawn(0.79), (std::set<Index>{1, 3}));
  EXPECT_EQ(drawn(0.81), (std::set<Index>{0, 1, 3}));
  EXPECT_EQ(drawn(0.96), (std::set<Index>{0, 1, 2, 3}));
  EXPECT_LT(
      chi_square(counts_of({.temperature = 1, .top_p = 0.81, .seed = 2}, logits, 30000), {15, 50, 0, 30}),
      chi_square_5);
}

TEST(Sampling, TopPIsAPartOfWhatTopKLeaves) {
  const Row logits = logs(row({0.15F, 0.5F, 0.05F, 0.3F}));  // 0.5 of 0.8 is 0.625
  const auto drawn = [&](double top_p) {
    return drawn_of({.temperature = 1, .top_k = 2, .top_p = top_p}, logits);
  };
  EXPECT_EQ(drawn(0.6), (std::set<Index>{1}));
  EXPECT_EQ(drawn(0.65), (std::set<Index>{1, 3}));
  EXPECT_EQ(drawn(1), (std::set<Index>{1, 3}));
}

TEST(Sampling, ThePenaltyDividesPositiveLogitsAndMultipliesNegativeOnes) {
  Sampler sampler({.repetition_penalty = 2});
  EXPECT_EQ(sampler.next(row({2, 1.5F, -1}), Ids{0}), 1);
  EXPECT_EQ(sampler.next(row({2, 0.5F, -1}), Ids{0}), 0);
  EXPECT_EQ(sampler.next(row({-1, -1.5F}), Ids{0}), 1);
  EXPECT_EQ(sampler.next(row({-1, -2.5F}), Ids{0}), 0);
}

TEST(Sampling, ThePenaltyCountsATokenOfTheHistoryOnce) {
  Sampler sampler({.repetition_penalty = 1.5});
  EXPECT_EQ(sampler.next(row({2, 1.2F}), Ids{0, 0, 0}), 0);  // 1.33; twice it would be 0.89
}

TEST(Sampling, APenalisedTokenIsDrawnAsItsChangedLogitSays) {
  Sampler sampler({.repetition_penalty = 2, .temperature = 1, .seed = 3});
  std::vector<double> counts(3), expected{std::exp(1.0), std::exp(1.0), std::exp(-2.0)};
  for (int i = 0; i < 30000; ++i)
    ++counts[static_cast<std::size_t>(sampler.next(row({2, 1, -1}), Ids{2, 0}))];
  EXPECT_LT(chi_square(counts, expected), chi_square_5);
}

TEST(Sampling, TheSeedAloneDecidesTheDraws) {
  const Row logits = random_logits(1000, 1);
  const auto draw = [&](std::uint64_t seed) {
    Sampler sampler({.temperature = 1, .top_k = 500, .top_p = 0.99, .seed = seed});
    Ids ids;
    for (int i = 0; i < 20; ++i) ids.push_back(sampler.next(logits));
    return ids;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
}

TEST(Sampling, ACopyContinuesLikeTheOriginal) {
  const Row logits = random_logits(1000, 1);
  Sampler sampler({.temperature = 1, .seed = 9});
  sampler.next(logits);
  Sampler copy = sampler;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(copy.next(logits), sampler.next(logits));
}

TEST(Sampling, ATokenOfLogitMinusInfinityIsNeverDrawn) {
  const Row logits = row({-infinity, 0, -infinity, 0, -infinity});
  for (const Index top_k : {0, 4})
    EXPECT_EQ(drawn_of({.temperature = 1e6, .top_k = top_k}, logits), (std::set<Index>{1, 3}));
  EXPECT_EQ(drawn_of({.temperature = 1e6, .top_p = 0.999999}, logits), (std::set<Index>{1, 3}));
}

TEST(Sampling, TakesLogitsOfAnyElementTypeAndStride) {
  const Row logits = random_logits(64, 4);
  attn::Tensor<double, 1> wide({64});
  attn::Matrix<Eigen::bfloat16> columns(64, 3);
  for (Index i = 0; i < 64; ++i) {
    wide(i) = static_cast<double>(logits(i));
    columns(i, 1) = Eigen::bfloat16(std::round(logits(i)));
  }
  EXPECT_EQ(Sampler().next(wide), Sampler().next(logits));
  const attn::TensorView<const Eigen::bfloat16, 1> column(&columns(0, 1), {64}, {3});
  Row rounded = logits.array().round();
  EXPECT_EQ(Sampler().next(column), Sampler().next(rounded));
}

TEST(Sampling, AllocatesNothingOnceItHasSeenTheVocabulary) {
  const Row logits = random_logits(5000, 1);
  const Ids history{1, 2, 3};
  for (const SamplingOptions& options :
       {SamplingOptions{}, SamplingOptions{.repetition_penalty = 1.1, .temperature = 1},
        SamplingOptions{.temperature = 1, .top_k = 40, .top_p = 0.9},
        SamplingOptions{.temperature = 1, .top_p = 0.9}}) {
    Sampler sampler(options);
    sampler.next(logits, history);
    const auto draw = [&] { sampler.next(logits, history); };
    EXPECT_EQ(attn_test::allocations_in(draw), 0u);
  }
}

TEST(Sampling, KnowsTheTokensThatEndAText) {
  const Sampler sampler({.stop = {2, 0}});
  EXPECT_TRUE(sampler.is_stop(2));
  EXPECT_TRUE(sampler.is_stop(0));
  EXPECT_FALSE(sampler.is_stop(1));
  EXPECT_FALSE(Sampler().is_stop(0));
}

TEST(Sampling, RefusesOptionsOutOfRange) {
  const auto text = [](const SamplingOptions& options) {
    return error_text<std::invalid_argument>([&] { Sampler sampler(options); });
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(text({.repetition_penalty = 0}), "attn: Sampler: repetition_penalty is 0, not positive");
  EXPECT_EQ(text({.temperature = -0.5}), "attn: Sampler: temperature is -0.5, not 0 or more");
  EXPECT_EQ(text({.temperature = nan}), "attn: Sampler: temperature is nan, not 0 or more");
  EXPECT_EQ(text({.top_k = -1}), "attn: Sampler: top_k is -1, not 0 or more");
  EXPECT_EQ(text({.top_p = 0}), "attn: Sampler: top_p is 0, not within (0, 1]");
  EXPECT_EQ(text({.top_p = 1.5}), "attn: Sampler: top_p is 1.5, not within (0, 1]");
}

TEST(Sampling, RefusesLogitsAndHistoriesThatMeanNothing) {
  const auto text = [](const auto& logits, const Ids& history = {}) {
    return error_text<std::invalid_argument>([&] { Sampler().next(logits, history); });
  };
  EXPECT_EQ(text(row({0, std::nanf("")})), "attn: Sampler::next: the logit of token 1 is nan");
  EXPECT_EQ(text(row({infinity, 0})), "attn: Sampler::next: the logit of token 0 is inf");
  EXPECT_EQ(text(row({-infinity, -infinity})), "attn: Sampler::next: all 2 logits are -inf");
  EXPECT_EQ(text(row({1, 2}), {2}), "attn: Sampler::next: the history holds 2, not within [0, 2)");
  EXPECT_EQ(text(attn::Matrix<float>(2, 3)), "attn: Sampler::next: logits [2, 3] should be one row");
  EXPECT_EQ(text(attn::Matrix<float>(1, 0)), "attn: Sampler::next: logits [1, 0] should be one row");
}

}  // namespace
