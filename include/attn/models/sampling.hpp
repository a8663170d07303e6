// attn/models/sampling.hpp - the next token from a row of logits: the likeliest, or drawn at random.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "attn/core/error.hpp"
#include "attn/core/random.hpp"
#include "attn/core/tensor_traits.hpp"
#include "attn/ops/softmax.hpp"

ATTN_NAMESPACE_BEGIN

/// How a token is chosen from logits. What is set is applied in this order, which is that of Hugging Face's
/// transformers; the defaults choose the token with the largest logit.
struct SamplingOptions {
  /// Of tokens in the history: a positive logit is divided by it, a negative one multiplied (Keskar et al.
  /// 2019, "CTRL", section 4.1, and transformers for negative logits). Above 1 discourages repetition; 1:
  /// off.
  double repetition_penalty = 1;
  double temperature = 0;  ///< logits are divided by it; 0: the largest logit wins (greedy)
  Index top_k = 0;         ///< draw from this many likeliest tokens; 0: from all
  double top_p = 1;        ///< draw from the fewest likeliest tokens with at least this probability together
  std::uint64_t seed = 0;  ///< of the draws: the same seed and logits give the same tokens
  std::vector<Index> stop{};  ///< tokens that end a text
};

/// Chooses tokens one after the other. Of equal logits the lower id is the likelier. Once it has seen a
/// vocabulary's size, nothing is allocated. Copies continue alike; one serves one call at a time.
class Sampler {
 public:
  /// @throws std::invalid_argument naming the option that is out of range.
  explicit Sampler(const SamplingOptions& options = {}) : options_(options), random_(options.seed) {
    const auto require = [](bool ok, const char* name, double value, const char* wanted) {
      check<std::invalid_argument>(ok, "Sampler: ", name, " is ", value, ", not ", wanted);
    };
    const auto& o = options_;
    require(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), "repetition_penalty",
            o.repetition_penalty, "positive");
    require(o.temperature >= 0 && std::isfinite(o.temperature), "temperature", o.temperature, "0 or more");
    require(o.top_k >= 0, "top_k", static_cast<double>(o.top_k), "0 or more");
    require(o.top_p > 0 && o.top_p <= 1, "top_p", o.top_p, "within (0, 1]");
  }

  const SamplingOptions& options() const { return options_; }

  /// The next token. `logits`: [vocab] or [1, vocab], any element type and strides; `history`: the tokens
  /// that the repetition penalty is for, usually the prompt and what was chosen so far, in any order and
  /// number.
  /// @throws ShapeError if there is more than one row or no logit; std::invalid_argument if a logit is NaN or
  /// +inf, all are -inf, or an id of the history is out of range.
  template <TensorLike Logits>
  Index next(const Logits& logits, std::span<const Index> history = {}) {
    const auto rows = with_rank<2>(as_view(logits));
    check(rows.extent(0) == 1 && rows.extent(1) > 0, "Sampler::next: logits ", rows, " should be one row");
    read(rows[0], history);
    if (options_.temperature == 0) return best_;
    scores_to_weights();
    const bool from_all = options_.top_p == 1 && (options_.top_k == 0 || options_.top_k >= scores_.size());
    if (from_all) return draw(order_, weights_.cast<double>().sum());
    return draw(kept_, keep_likeliest());
  }

  /// Whether a token ends the text.
  bool is_stop(Index token) const { return std::ranges::find(options_.stop, token) != options_.stop.end(); }

 private:
  using Tokens = std::vector<std::int32_t>;

  template <class T>
  void read(const TensorView<T, 1>& logits, std::span<const Index> history);
  void scores_to_weights();
  double keep_likeliest();
  Index draw(const Tokens& tokens, double total);
  float weight(std::int32_t token) const { return weights_.data()[token]; }

  SamplingOptions options_;
  CounterRandom random_;
  std::uint64_t draws_ = 0;
  Matrix<float> scores_, weights_;  // [1, vocab]: penalised logits; probabilities
  Tokens order_, heap_, kept_;      // 0, 1, ...; a heap with the likeliest in front; the likeliest in order
  Index best_ = 0;
};

/// Logits with the penalty to scores, and which is the largest.
template <class T>
void Sampler::read(const TensorView<T, 1>& logits, std::span<const Index> history) {
  const Index size = logits.extent(0);
  if (scores_.size() != size) {
    for (Matrix<float>* each : {&scores_, &weights_}) each->resize(1, size);
    for (Tokens* each : {&order_, &heap_, &kept_}) each->resize(as_size(size));
    std::iota(order_.begin(), order_.end(), 0);
  }
  for (Index i = 0; i < size; ++i) scores_(i) = static_cast<float>(logits(i));
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (const Index id : history) {
    check<std::invalid_argument>(0 <= id && id < size, "Sampler::next: the history holds ", id,
                                 ", not within [0, ", size, ")");
    const auto logit = static_cast<float>(logits(id));  // not the score: an id may be there twice
    scores_(id) = logit > 0 ? logit / penalty : logit * penalty;
  }
  constexpr float infinity = std::numeric_limits<float>::infinity();
  best_ = 0;
  for (Index i = 0; i < size; ++i) {
    check<std::invalid_argument>(scores_(i) < infinity, "Sampler::next: the logit of token ", i, " is ",
                                 scores_(i));
    if (scores_(i) > scores_(best_)) best_ = i;
  }
  check<std::invalid_argument>(scores_(best_) > -infinity, "Sampler::next: all ", size, " logits are -inf");
}

/// softmax(scores / temperature); the largest is subtracted first, so that no temperature is too low.
inline void Sampler::scores_to_weights() {
  const auto temperature = static_cast<float>(std::max<double>(options_.temperature, 1e-37));
  weights_ = (scores_.array() - scores_(best_)) / temperature;
  softmax_into(weights_, weights_);
}

/// The likeliest tokens that top_k and top_p leave, to kept_; returns what they weigh together. Only those
/// are put in order: the others stay in a heap.
inline double Sampler::keep_likeliest() {
  const auto less_likely = [this](std::int32_t a, std::int32_t b) {
    const float x = scores_.data()[a], y = scores_.data()[b];
    return x < y || (x == y && a > b);
  };
  heap_ = order_;
  std::ranges::make_heap(heap_, less_likely);
  const std::size_t most =
      options_.top_k == 0 ? heap_.size() : std::min(as_size(options_.top_k), heap_.size());
  kept_.clear();
  const auto keep_next = [&] {
    std::ranges::pop_heap(heap_.begin(), heap_.end() - static_cast<std::ptrdiff_t>(kept_.size()),
                          less_likely);
    kept_.push_back(heap_[heap_.size() - 1 - kept_.size()]);
    return static_cast<double>(weight(kept_.back()));
  };
  if (options_.top_k != 0) {  // top_p is a part of what top_k leaves
    double all = 0, sum = 0;
    while (kept_.size() < most) all += keep_next();
    std::size_t count = 0;
    while (count < most && (sum < options_.top_p * all)) sum += static_cast<double>(weight(kept_[count++]));
    kept_.resize(count);
    return sum;
  }
  const double all = weights_.cast<double>().sum();
  double sum = 0;
  while (kept_.size() < most && sum < options_.top_p * all) sum += keep_next();
  return sum;
}

/// One of the tokens, in proportion to its weight; `total` is their sum.
inline Index Sampler::draw(const Tokens& tokens, double total) {
  double left = random_.uniform(draws_++) * total;
  Index drawn = best_;
  for (const std::int32_t token : tokens) {
    if (weight(token) > 0) drawn = token;  // what rounding leaves goes to the last that may be drawn
    left -= static_cast<double>(weight(token));
    if (left < 0) break;
  }
  return drawn;
}

ATTN_NAMESPACE_END
