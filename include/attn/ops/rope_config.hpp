// attn/ops/rope_config.hpp - what a rotary position embedding is made of, and the frequencies that follow.
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "attn/core/error.hpp"
#include "attn/core/types.hpp"

ATTN_NAMESPACE_BEGIN

/// Which two elements of a head are the coordinates of pair i. Checkpoints are made for one of the two, and
/// the wrong one gives wrong numbers without an error.
enum class RopePairing {
  interleaved,  ///< 2 i and 2 i + 1: RoFormer, GPT-J, the original Llama weights
  half,         ///< i and i + rotary_dim / 2: GPT-NeoX, Llama and others as Hugging Face stores them
};

/// A value that cannot be left out of a config: there is no default, and `{}` does not compile.
template <class E>
class Required {
 public:
  constexpr Required(E value) : value_(value) {}   // NOLINT(google-explicit-constructor)
  constexpr operator E() const { return value_; }  // NOLINT(google-explicit-constructor)

 private:
  E value_;
};

/// How frequencies change for contexts longer than those of the training.
enum class RopeScalingKind {
  none,
  linear,  ///< every frequency / factor (Chen et al. 2023, "Extending context window ... via positional
           ///< interpolation", equation 4)
  ntk,     ///< "NTK-aware": base * factor^(dim / (dim - 2)), so that the lowest frequency becomes that of
           ///< `linear` and the highest stays (Peng et al. 2023, "YaRN", section 3.1)
  yarn,    ///< between `linear` for slow pairs and none for fast ones, by how often a pair turns within
           ///< original_max_len; scores grow by an attention factor ("YaRN", sections 3.2 to 3.4)
  llama3,  ///< as `linear` for wavelengths above original_max_len / low_freq_factor, none below
           ///< original_max_len / high_freq_factor, in between a mean weighted by the frequency
           ///< (Llama 3.1's reference implementation)
};

/// Parameters of the kinds; those of other kinds are not looked at.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;                                 ///< all kinds: how many times longer contexts become
  Index original_max_len = 0;                        ///< yarn, llama3: longest context of the training
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;  ///< yarn: pairs with more and with fewer turns are not mixed
  bool truncate = true;  ///< yarn: the pairs where mixing begins and ends are rounded to whole numbers
  std::optional<double> attention_factor{};  ///< yarn: of cos and sin; default: from the two below
  double mscale = 0, mscale_all_dim = 0;     ///< yarn: m(mscale) / m(mscale_all_dim) if both are given, else
                                             ///< m(1), where m(s) = 0.1 s ln(factor) + 1
};

/// Factor of RopeScalingKind::ntk for a context of `len` rows now ("dynamic NTK", Peng et al. 2023, section
/// 3.3, in the form of Hugging Face). Keys that were rotated for another length have other frequencies:
/// whoever lets `len` grow rotates them back and forth again, or keeps them unrotated.
inline double dynamic_ntk_factor(double factor, Index len, Index original_max_len) {
  check(original_max_len > 0, "dynamic_ntk_factor: original_max_len ", original_max_len, " must be positive");
  const double ratio = static_cast<double>(len) / static_cast<double>(original_max_len);
  return ratio <= 1 ? 1 : factor * ratio - (factor - 1);
}

/// A rotary position embedding (Su et al. 2021, "RoFormer", section 3.2.2).
struct RopeConfig {
  Required<RopePairing> pairing;  ///< no default
  Index head_dim = 0;
  Index rotary_dim = 0;  ///< leading elements of a head that are rotated; even; 0: head_dim
  double base = 10000;   ///< pair i turns by base^(-2 i / rotary_dim) per position
  RopeScaling scaling{};
};

namespace detail {

inline Index checked_rotary_dim(const RopeConfig& config) {
  const Index dim = config.rotary_dim == 0 ? config.head_dim : config.rotary_dim;
  check(config.head_dim > 0, "RotaryEmbedding: head_dim ", config.head_dim, " must be positive");
  check(0 < dim && dim <= config.head_dim, "RotaryEmbedding: rotary_dim ", dim, " does not fit in head_dim ",
        config.head_dim);
  check(dim % 2 == 0, "RotaryEmbedding: rotary_dim ", dim, " of head_dim ", config.head_dim,
        " is odd and does not divide into pairs");
  return dim;
}

inline void check_rope_numbers(const RopeConfig& config, Index dim) {
  const RopeScaling& s = config.scaling;
  const auto check_number = [](bool ok, const char* name, double value, const char* what) {
    check<std::invalid_argument>(ok, "RotaryEmbedding: ", name, " ", value, " must be ", what);
  };
  const auto is_positive = [](double x) { return x > 0 && std::isfinite(x); };
  check_number(is_positive(config.base), "base", config.base, "a positive finite number");
  if (s.kind == RopeScalingKind::none) return;
  check_number(is_positive(s.factor), "scaling.factor", s.factor, "a positive finite number");
  if (s.kind == RopeScalingKind::ntk)
    check(dim > 2, "RotaryEmbedding: rotary_dim ", dim, " has one pair, and ntk scaling needs two");
  if (s.kind != RopeScalingKind::yarn && s.kind != RopeScalingKind::llama3) return;
  check<std::invalid_argument>(s.original_max_len > 0, "RotaryEmbedding: scaling.original_max_len ",
                               s.original_max_len, " must be positive");
  if (s.kind == RopeScalingKind::llama3) {
    check_number(is_positive(s.low_freq_factor), "scaling.low_freq_factor", s.low_freq_factor,
                 "a positive finite number");
    check_number(s.high_freq_factor > s.low_freq_factor && std::isfinite(s.high_freq_factor),
                 "scaling.high_freq_factor", s.high_freq_factor, "finite and above low_freq_factor");
    return;
  }
  check_number(config.base > 1, "base", config.base, "above 1 for yarn scaling");
  check_number(is_positive(s.beta_slow), "scaling.beta_slow", s.beta_slow, "a positive finite number");
  check_number(s.beta_fast >= s.beta_slow && std::isfinite(s.beta_fast), "scaling.beta_fast", s.beta_fast,
               "finite and not below beta_slow");
  if (s.attention_factor)
    check_number(is_positive(*s.attention_factor), "scaling.attention_factor", *s.attention_factor,
                 "a positive finite number");
}

inline constexpr double two_pi = 6.28318530717958648;

inline void scale_by_yarn(const RopeConfig& config, std::vector<double>& frequencies) {
  const RopeScaling& s = config.scaling;
  const double dim = 2 * static_cast<double>(frequencies.size());
  const auto len = static_cast<double>(s.original_max_len);
  const auto pair_that_turns = [&](double times) {
    return dim * std::log(len / (times * two_pi)) / (2 * std::log(config.base));
  };
  double first = pair_that_turns(s.beta_fast), last = pair_that_turns(s.beta_slow);
  if (s.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, dim - 1);
  if (first == last) last += 0.001;  // a step
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double slow = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    frequencies[i] *= slow / s.factor + (1 - slow);
  }
}

inline void scale_by_llama3(const RopeScaling& s, std::vector<double>& frequencies) {
  for (double& frequency : frequencies) {
    const double turns = static_cast<double>(s.original_max_len) * frequency / two_pi;
    const double fast =
        std::clamp((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
    frequency *= (1 - fast) / s.factor + fast;
  }
}

/// Radians per position of each pair.
/// @throws ShapeError if dimensions do not fit; std::invalid_argument if a number is out of its range.
inline std::vector<double> rope_frequencies(const RopeConfig& config) {
  const Index dim = checked_rotary_dim(config);
  check_rope_numbers(config, dim);
  const RopeScaling& s = config.scaling;
  const auto size = static_cast<double>(dim);
  const double base =
      s.kind == RopeScalingKind::ntk ? config.base * std::pow(s.factor, size / (size - 2)) : config.base;
  std::vector<double> frequencies;
  for (Index i = 0; i < dim; i += 2) frequencies.push_back(std::pow(base, -static_cast<double>(i) / size));
  if (s.kind == RopeScalingKind::linear)
    for (double& frequency : frequencies) frequency /= s.factor;
  if (s.kind == RopeScalingKind::yarn) scale_by_yarn(config, frequencies);
  if (s.kind == RopeScalingKind::llama3) scale_by_llama3(s, frequencies);
  return frequencies;
}

/// What YaRN multiplies cos and sin by; 1 for other kinds.
inline double rope_attention_factor(const RopeScaling& s) {
  if (s.kind != RopeScalingKind::yarn) return 1;
  if (s.attention_factor) return *s.attention_factor;
  const auto m = [&](double scale) { return s.factor <= 1 ? 1 : 0.1 * scale * std::log(s.factor) + 1; };
  return s.mscale != 0 && s.mscale_all_dim != 0 ? m(s.mscale) / m(s.mscale_all_dim) : m(1);
}

}  // namespace detail
ATTN_NAMESPACE_END
