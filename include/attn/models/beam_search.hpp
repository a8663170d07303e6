// attn/models/beam_search.hpp - beam_search: the likeliest continuations that a CausalLM finds for a prompt.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "attn/models/causal_lm.hpp"

ATTN_NAMESPACE_BEGIN

struct BeamSearchConfig {
  Index num_beams = 4;        ///< continuations that are followed at a time; 1: greedy
  Index max_new_tokens = 20;  ///< longest continuation
  /// A continuation of n tokens has the score log p / n^length_penalty: 0 favours short ones, 1 takes the
  /// mean over its tokens, more favours long ones (Wu et al. 2016, section 7, in the form of transformers).
  double length_penalty = 1;
  std::vector<Index> end_tokens{};  ///< a continuation ends behind one of them
  Index page_rows = 64;             ///< of the caches' pages, which beams share until they differ
};

/// A continuation that beam_search found.
struct BeamHypothesis {
  std::vector<Index> tokens;   ///< behind the prompt, the end token included
  double log_probability = 0;  ///< of the tokens, given the prompt
  double score = 0;            ///< log_probability / (number of tokens)^length_penalty
};

namespace detail {

/// The bookkeeping of a beam search: which continuations are followed, and which have ended.
class Beams {
 public:
  explicit Beams(const BeamSearchConfig& config) : config_(config), live_(1) {
    check<std::invalid_argument>(config.num_beams > 0, "beam_search: num_beams ", config.num_beams,
                                 " must be positive");
    check<std::invalid_argument>(config.max_new_tokens > 0, "beam_search: max_new_tokens ",
                                 config.max_new_tokens, " must be positive");
    check<std::invalid_argument>(config.page_rows > 0, "beam_search: page_rows ", config.page_rows,
                                 " must be positive");
  }

  /// Grows every continuation by the tokens that are likeliest by logits [beams, vocab], row i for the
  /// continuation number i; false if nothing better can come.
  template <class A>
  bool advance(const TensorView<const A, 2>& logits) {
    find_candidates(logits);
    std::vector<BeamHypothesis> next;
    parents_.clear();
    for (std::size_t rank = 0; rank < candidates_.size(); ++rank) {
      const Candidate& c = candidates_[rank];
      if (is_end(c.token)) {  // one that is not among the best num_beams would not have been followed either
        if (rank < as_size(config_.num_beams)) finish(grown(c));
      } else if (next.size() < as_size(config_.num_beams)) {
        next.push_back(grown(c));
        parents_.push_back(c.parent);
      }
    }
    live_ = std::move(next);
    return !live_.empty() && length() < config_.max_new_tokens && !is_decided();
  }

  /// Of each continuation, which it grew from and its last token; padded to num_beams by the first.
  std::vector<Index> parents() const {
    std::vector<Index> all = parents_;
    all.resize(as_size(config_.num_beams), all.front());
    return all;
  }
  std::vector<Index> last_tokens() const {
    std::vector<Index> all;
    for (const BeamHypothesis& beam : live_) all.push_back(beam.tokens.back());
    all.resize(as_size(config_.num_beams), all.front());
    return all;
  }
  /// The best that ended, or were cut off, best first.
  std::vector<BeamHypothesis> take_result() {
    if (length() == config_.max_new_tokens)
      for (BeamHypothesis& beam : live_) finish(std::move(beam));
    return std::move(finished_);
  }

 private:
  struct Candidate {
    double log_probability = 0;
    Index parent = 0;
    Index token = 0;
    /// Better, and of equal ones the first.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
      return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
    }
  };

  Index length() const { return live_.empty() ? 0 : static_cast<Index>(live_.front().tokens.size()); }
  bool is_end(Index token) const {
    return std::find(config_.end_tokens.begin(), config_.end_tokens.end(), token) != config_.end_tokens.end();
  }
  double score(double log_probability, Index tokens) const {
    return log_probability / std::pow(static_cast<double>(tokens), config_.length_penalty);
  }
  BeamHypothesis grown(const Candidate& c) const {
    BeamHypothesis beam{live_[as_size(c.parent)].tokens, c.log_probability, 0};
    beam.tokens.push_back(c.token);
    beam.score = score(beam.log_probability, static_cast<Index>(beam.tokens.size()));
    return beam;
  }
  /// The best pairs of continuation and token; enough of them that num_beams are left without those that end.
  template <class A>
  void find_candidates(const TensorView<const A, 2>& logits) {
    const std::size_t wanted =
        as_size(config_.num_beams) * std::max<std::size_t>(2, 1 + config_.end_tokens.size());
    candidates_.clear();
    for (std::size_t b = 0; b < live_.size(); ++b) {
      const TensorView<const A, 1> row = logits[static_cast<Index>(b)];
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (Index t = 0; t < row.extent(0); ++t) largest = std::max(largest, static_cast<double>(row(t)));
      for (Index t = 0; t < row.extent(0); ++t) sum += std::exp(static_cast<double>(row(t)) - largest);
      const double shift = live_[b].log_probability - largest - std::log(sum);
      for (Index t = 0; t < row.extent(0); ++t) {
        const Candidate c{shift + static_cast<double>(row(t)), static_cast<Index>(b), t};
        if (candidates_.size() == wanted && !(c < candidates_.front())) continue;
        if (candidates_.size() == wanted) {  // a heap: the worst is at the front
          std::pop_heap(candidates_.begin(), candidates_.end());
          candidates_.pop_back();
        }
        candidates_.push_back(c);
        std::push_heap(candidates_.begin(), candidates_.end());
      }
    }
    std::sort_heap(candidates_.begin(), candidates_.end());
  }
  /// Keeps the best num_beams of those that ended; of equal ones the first.
  void finish(BeamHypothesis beam) {
    const auto worse = std::find_if(finished_.begin(), finished_.end(),
                                    [&](const BeamHypothesis& other) { return other.score < beam.score; });
    finished_.insert(worse, std::move(beam));
    if (finished_.size() > as_size(config_.num_beams)) finished_.pop_back();
  }
  /// Log-probabilities only fall, so what a continuation can reach at best is known: its own now, at the
  /// length that the score favours.
  bool is_decided() const {
    if (finished_.size() < as_size(config_.num_beams)) return false;
    const Index best_length = config_.length_penalty > 0 ? config_.max_new_tokens : length() + 1;
    return score(live_.front().log_probability, best_length) <= finished_.back().score;
  }

  const BeamSearchConfig& config_;
  std::vector<BeamHypothesis> live_, finished_;  // live ones: best first, all of one length
  std::vector<Index> parents_;
  std::vector<Candidate> candidates_;
};

}  // namespace detail

/// The best num_beams continuations of a prompt, best first; fewer if there are no more. At each step every
/// continuation that is followed is grown by every token, and the likeliest num_beams are followed on; one
/// that ends is kept by its score. The prompt is computed once; the caches are shared between continuations
/// as far as these agree. Storage: of the caches; void: the type of the activations.
/// @throws std::invalid_argument if a number is not positive; else as CausalLM::forward_into.
template <class Storage = void, Element T>
std::vector<BeamHypothesis> beam_search(const CausalLM<T>& model, std::span<const Index> prompt,
                                        const BeamSearchConfig& config, const RunOptions& options = {}) {
  using A = Accumulator<T>;
  detail::Beams beams(config);
  Workspace local;
  CausalLMOptions how;
  how.executor = options.executor;
  how.workspace = options.workspace != nullptr ? options.workspace : &local;
  auto seen = model.template make_cache<std::conditional_t<std::is_void_v<Storage>, A, Storage>>(
      {.batch = 1,
       .max_len = static_cast<Index>(prompt.size()) + config.max_new_tokens,
       .page_rows = config.page_rows});
  Matrix<A> logits = model.forward(prompt, seen, how);
  auto cache = seen.fork(std::vector<Index>(as_size(config.num_beams), 0));
  seen = {};  // its pages are the beams' now
  logits = logits.replicate(config.num_beams, 1).eval();
  while (beams.advance(TensorView<const A, 2>(as_view(logits)))) {
    cache.reorder(beams.parents());
    const std::vector<Index> tokens = beams.last_tokens();
    model.forward_into(TensorView<const Index, 2>(tokens.data(), {config.num_beams, 1}), cache, logits, how);
  }
  return beams.take_result();
}
ATTN_NAMESPACE_END
