// tests/models/beam_search_test.cpp - beam search: one beam is greedy, enough beams are an exhaustive search.
#include "attn/models/beam_search.hpp"

#include <gtest/gtest.h>

#include <map>

#include "models/tiny_causal_lm.hpp"
#include "support/error_text.hpp"

namespace {

using attn::Index;
using Tokens = std::vector<Index>;

/// Of five words, so that every continuation can be enumerated.
attn::CausalLM<float> small_model() {
  attn::CausalLMConfig config = attn_test::tiny_llama();
  config.vocab_size = 5;
  attn::CausalLM<float> model(config);
  attn_test::randomize(model, 8);
  model.modules().head.weight().edit([](const attn::TensorView<float, 2>& weight) {
    for (Index i = 0; i < weight.size(); ++i) weight.data()[i] *= 3;  // clear preferences
  });
  return model;
}
const Tokens prompt{3, 1, 4, 1};

std::vector<double> log_probabilities(const attn::CausalLM<float>& model, const Tokens& tokens) {
  const auto logits = model.forward(tokens);
  std::vector<double> row;
  double sum = 0;
  for (Index t = 0; t < logits.extent(2); ++t) {
    row.push_back(logits(0, logits.extent(1) - 1, t));
    sum += std::exp(row.back());
  }
  for (double& x : row) x -= std::log(sum);
  return row;
}

/// All continuations of up to `length` tokens with their log-probability, those that end and those cut off.
void enumerate(const attn::CausalLM<float>& model, const Tokens& tokens, double log_probability, Index length,
               Index end_token, std::map<Tokens, double>& all) {
  const std::vector<double> next = log_probabilities(model, tokens);
  for (Index t = 0; t < static_cast<Index>(next.size()); ++t) {
    Tokens longer = tokens;
    longer.push_back(t);
    const double p = log_probability + next[attn::as_size(t)];
    const Tokens found(longer.begin() + static_cast<std::ptrdiff_t>(prompt.size()), longer.end());
    if (t == end_token || static_cast<Index>(found.size()) == length)
      all[found] = p;
    else
      enumerate(model, longer, p, length, end_token, all);
  }
}

TEST(BeamSearch, WithEnoughBeamsFindsTheBestOfAllContinuationsForEveryLengthPenalty) {
  const attn::CausalLM<float> model = small_model();
  std::map<Tokens, double> all;
  enumerate(model, prompt, 0, 4, 2, all);
  for (const double penalty : {0.0, 1.0, 2.5, -1.0}) {
    std::vector<std::pair<double, Tokens>> best;
    for (const auto& [tokens, p] : all)
      best.emplace_back(p / std::pow(static_cast<double>(tokens.size()), penalty), tokens);
    std::sort(best.rbegin(), best.rend());
    const auto found = attn::beam_search(
        model, prompt, {.num_beams = 256, .max_new_tokens = 4, .length_penalty = penalty, .end_tokens = {2}});
    ASSERT_EQ(found.size(), 256u);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i].score, best[i].first, 1e-4) << "rank " << i << ", length penalty " << penalty;
      EXPECT_NEAR(found[i].log_probability, all.at(found[i].tokens), 1e-4);
    }
    EXPECT_EQ(found[0].tokens, best[0].second) << "length penalty " << penalty;
  }
}

TEST(BeamSearch, WithOneBeamIsGreedy) {
  const attn::CausalLM<float> model = small_model();
  Tokens tokens = prompt;
  while (tokens.size() < prompt.size() + 6) {
    const std::vector<double> next = log_probabilities(model, tokens);
    tokens.push_back(std::max_element(next.begin(), next.end()) - next.begin());
  }
  const Tokens greedy(tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end());
  const auto found = attn::beam_search(model, prompt, {.num_beams = 1, .max_new_tokens = 6});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].tokens, greedy);
  for (Index end_token = 0; end_token < 5; ++end_token) {  // what is less likely cannot win without a penalty
    const auto ended = attn::beam_search(
        model, prompt, {.num_beams = 1, .max_new_tokens = 6, .length_penalty = 0, .end_tokens = {end_token}});
    const auto end = std::find(greedy.begin(), greedy.end(), end_token);
    EXPECT_EQ(ended[0].tokens, Tokens(greedy.begin(), end == greedy.end() ? end : end + 1));
  }
}

TEST(BeamSearch, GivesEachContinuationTheProbabilityThatTheModelGivesIt) {
  const attn::CausalLM<float> model = small_model();
  std::map<Tokens, double> all;
  enumerate(model, prompt, 0, 5, 2, all);
  const auto found = attn::beam_search(
      model, prompt, {.num_beams = 3, .max_new_tokens = 5, .end_tokens = {2}, .page_rows = 2});
  ASSERT_EQ(found.size(), 3u);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i].log_probability, all.at(found[i].tokens), 1e-4);
    EXPECT_NEAR(found[i].score, found[i].log_probability / static_cast<double>(found[i].tokens.size()),
                1e-12);
    if (i == 0) continue;
    EXPECT_LE(found[i].score, found[i - 1].score);
    EXPECT_NE(found[i].tokens, found[i - 1].tokens);
  }
}

TEST(BeamSearch, FindsTheSameInAHalfPrecisionCache) {
  const attn::CausalLM<float> model = small_model();
  const attn::BeamSearchConfig config{.num_beams = 3, .max_new_tokens = 5};
  const auto in_float = attn::beam_search(model, prompt, config),
             in_half = attn::beam_search<Eigen::half>(model, prompt, config);
  for (std::size_t i = 0; i < in_float.size(); ++i)
    EXPECT_NEAR(in_half[i].score, in_float[i].score, 1e-2) << "rank " << i;
}

TEST(BeamSearch, SaysWhatIsWrong) {
  const attn::CausalLM<float> model = small_model();
  const auto error = [&](const attn::BeamSearchConfig& config, const Tokens& ids) {
    return attn_test::error_text<std::invalid_argument>([&] { (void)attn::beam_search(model, ids, config); });
  };
  EXPECT_EQ(error({.num_beams = 0}, prompt), "attn: beam_search: num_beams 0 must be positive");
  EXPECT_EQ(error({.max_new_tokens = -1}, prompt), "attn: beam_search: max_new_tokens -1 must be positive");
  EXPECT_EQ(error({}, {}), "attn: CausalLM: the prompt is empty: there is no token in ids [1, 0]");
  EXPECT_EQ(error({}, {5}), "attn: CausalLM: ids(0, 0) is 5, not within [0, 5)");
}

}  // namespace
