// tests/property/sdpa_case.hpp - one randomly drawn call of sdpa, and its comparison with the formula in
// double.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "attn/ops/build_info.hpp"
#include "support/attention.hpp"
#include "support/draw.hpp"

namespace attn_property {

using attn::Index;
using attn::ScoreStage;

/// A user's filter that reads positions and has no hooks.
struct EveryThirdDiagonal {
  static constexpr bool uses_positions = true;
  static bool allows(const attn::Site& s, const attn::Problem& p) {
    return (s.k - s.q - p.query_offset(s.batch)) % 3 != 0;
  }
};
/// A user's score change.
struct Falling {
  template <class A>
  static A score(A s, const attn::Site& at, const attn::Problem&) {
    return s - static_cast<A>(at.k % 8) / 4;
  }
};
/// A user's weight change.
struct HalfForOddKeys {
  template <class A>
  static A weight(A w, const attn::Site& at, const attn::Problem&) {
    return at.k % 2 == 0 ? w : w / 2;
  }
};

/// Three workers that run the tasks from the last to the first.
struct Backwards {
  static Index concurrency() { return 3; }
  static void parallel_for(Index count, attn::TaskRef task) {
    for (Index i = count; i-- > 0;) task(i, i % 3);
  }
};

/// Everything that one call is made of.
template <class T>
struct Case {
  attn_test::Draw draw;
  Index batch = 0, num_heads = 0, num_kv_heads = 0, q_len = 0, kv_len = 0, head_dim = 0, value_dim = 0;
  attn_test::StridedTensor<T> q, k, v, out;
  std::vector<Index> offsets, lengths;
  std::vector<double> sinks;
  attn_test::StridedTensor<unsigned char> flags;
  attn_test::StridedTensor<float> bias;
  attn::SdpaOptions options;
  ScoreStage stage = ScoreStage::weights;

  explicit Case(std::uint64_t seed) : draw(seed) {
    draw_shape();
    q = draw.tensor<T>({batch, num_heads, q_len, head_dim});
    k = draw.tensor<T>({batch, num_kv_heads, kv_len, head_dim});
    v = draw.tensor<T>({batch, num_kv_heads, kv_len, value_dim});
    out = draw.tensor<T>({batch, num_heads, q_len, value_dim});
    draw_options();
    draw_masks();
  }

  /// Calls f with a mask or a composition of masks; `Few` for the more expensive element types to compile.
  template <bool Few, class F>
  void with_mask(F f) {
    const attn::KeyPadding padding{lengths};
    const attn::KeepMask keep(flags.read());
    const attn::AdditiveBias added(bias.read());
    const Index kind = Few ? draw.between(0, 2) : draw.between(0, 9);
    if (kind == 0) return f(attn::NoMask{});
    if (kind == 1) return f(attn::Causal{} & with_poison(padding));
    if (kind == 2) return f(added & keep);
    if constexpr (!Few) {
      if (kind == 3) return f(keep);
      if (kind == 4) return f(attn::DropMask(flags.read()));
      if (kind == 5) return f(added);
      if (kind == 6) return f(attn::Causal{} & with_poison(padding) & HalfForOddKeys{});
      if (kind == 7) return f(attn::all_of(Falling{}, EveryThirdDiagonal{}));
      if (kind == 8) return f(attn::Causal{});
      return f(attn::all_of(added, Falling{}, keep, attn::Causal{}, with_poison(padding)));
    }
  }

 private:
  Index length() { return draw.one_in(8) ? draw.between(0, 1) : draw.between(2, draw.one_in(3) ? 200 : 40); }

  void draw_shape() {
    num_kv_heads = draw.one_in(40) ? 0 : draw.between(1, 3);
    num_heads = num_kv_heads * (draw.one_in(40) ? 0 : draw.between(1, 3));
    batch = draw.one_in(40) ? 0 : draw.between(1, 3);
    q_len = length();
    kv_len = draw.one_in(2) ? q_len : length();
    head_dim = draw.between(1, draw.one_in(3) ? 100 : 20);
    value_dim = draw.one_in(2) ? head_dim : draw.between(0, draw.one_in(3) ? 100 : 20);
    constexpr Index most = 200000;  // multiply-adds: a case takes about a millisecond
    while (batch * num_heads * q_len * kv_len * (2 * head_dim + value_dim) > most) {
      if (batch > 1) {
        batch = 1;
      } else if (num_heads > num_kv_heads) {
        num_heads = num_kv_heads;
      } else if (num_kv_heads > 1) {
        num_heads = num_kv_heads = 1;
      } else if (head_dim + value_dim > 8) {
        head_dim = (head_dim + 1) / 2;
        value_dim /= 2;
      } else {
        (q_len > kv_len ? q_len : kv_len) /= 2;
      }
    }
  }

  void draw_options() {
    if (draw.one_in(2)) options.scale = static_cast<double>(draw.between(-8, 16)) / 16;
    if (draw.one_in(3)) options.soft_cap = static_cast<double>(draw.between(1, 40)) / 4;
    if (draw.one_in(3)) {
      for (Index h = 0; h < num_heads; ++h) sinks.push_back(static_cast<double>(draw.between(-20, 20)) / 4);
      options.sinks = sinks;
    }
    const auto offset = [&] { return draw.between(-q_len - 1, kv_len + 1); };
    if (batch > 0 && draw.one_in(3)) {
      for (Index b = 0; b < batch; ++b) offsets.push_back(offset());
      options.query_offset = attn::QueryOffset(std::span<const Index>(offsets));
    } else {
      options.query_offset = draw.one_in(2) ? kv_len - q_len : offset();
    }
    stage = static_cast<ScoreStage>(draw.between(0, 3));
  }

  void draw_masks() {
    for (Index b = 0; b < batch; ++b) lengths.push_back(draw.between(0, kv_len));
    attn::Dims<4> extents{batch, num_heads, q_len, kv_len};
    for (int axis = 0; axis < 4; ++axis)
      if (draw.one_in(3)) extents[axis] = 1;
    flags = draw.tensor<unsigned char>(extents);
    bias = draw.tensor<float>(extents);
    bias.for_each([&](float& value) {
      if (draw.one_in(20)) value = -std::numeric_limits<float>::infinity();
    });
  }

  /// What stands behind the lengths becomes NaN: nobody may read it. (All scores are asked for before a
  /// mask.)
  attn::KeyPadding with_poison(const attn::KeyPadding& padding) {
    if (stage < ScoreStage::biased) return padding;
    for (Index b = 0; b < batch; ++b)
      for (Index h = 0; h < num_kv_heads; ++h)
        for (Index j = padding.length(b); j < kv_len; ++j) {
          for (Index c = 0; c < head_dim; ++c) k.write()(b, h, j, c) = k.gap();
          for (Index c = 0; c < value_dim; ++c) v.write()(b, h, j, c) = v.gap();
        }
    return padding;
  }
};

/// Rounding of a result to its type, relative.
template <class T>
inline constexpr double unit_roundoff = std::is_same_v<T, Eigen::half>       ? 0x1p-11
                                        : std::is_same_v<T, Eigen::bfloat16> ? 0x1p-8
                                                                             : 0;

template <class T>
attn::Tensor<double, 4> in_double(const attn::TensorView<const T, 4>& x) {
  attn::Tensor<double, 4> result(x.extents());
  attn::copy(x, result.view());
  return result;
}

/// The scores of all pairs at a stage, by the formula.
template <attn::Mask M>
attn::Tensor<double, 4> reference_scores(const attn::Tensor<double, 4>& q, const attn::Tensor<double, 4>& k,
                                         const attn::Problem& p, const M& mask,
                                         const attn::kernels::ReferenceOptions& formula, ScoreStage stage,
                                         const attn::Tensor<double, 3>& logsumexp) {
  attn::Tensor<double, 4> scores({p.batch, p.num_heads, p.q_len, p.kv_len});
  const attn::TensorView<const double, 4> queries = q.view(), keys = k.view();
  attn::Site s;
  const auto score = [&] {
    auto parts = formula;
    if (stage == ScoreStage::scaled) parts.soft_cap = 0;
    if (stage < ScoreStage::biased)
      return attn::kernels::reference_score<double>(queries, keys, s, p, attn::NoMask{}, parts);
    const auto natural = attn::kernels::reference_score<double>(queries, keys, s, p, mask, parts);
    if (stage == ScoreStage::biased || natural == attn::masked_score<double>)
      return stage == ScoreStage::biased ? natural : 0;
    return std::exp(natural - logsumexp(s.batch, s.head, s.q));
  };
  for (s.batch = 0; s.batch < p.batch; ++s.batch)
    for (s.head = 0; s.head < p.num_heads; ++s.head)
      for (s.q = 0; s.q < p.q_len; ++s.q)
        for (s.k = 0; s.k < p.kv_len; ++s.k) scores(s.batch, s.head, s.q, s.k) = score();
  return scores;
}

/// The largest sum over |scale * q_i * k_i|: what the rounding of a score is relative to.
inline double sum_of_magnitudes(attn::Tensor<double, 4> q, attn::Tensor<double, 4> k, const attn::Problem& p,
                                attn::kernels::ReferenceOptions formula) {
  std::for_each(q.data(), q.data() + q.size(), [](double& x) { x = std::abs(x); });
  std::for_each(k.data(), k.data() + k.size(), [](double& x) { x = std::isnan(x) ? 0 : std::abs(x); });
  formula.scale = std::abs(formula.scale);
  return attn_test::largest(reference_scores(q, k, p, attn::NoMask{}, formula, ScoreStage::scaled, {}));
}

/// Runs a case and compares everything that it returns.
template <class T, attn::Mask M>
void expect_formula(Case<T>& c, const M& mask, attn::Workspace& workspace) {
  const auto q = in_double(c.q.read()), k = in_double(c.k.read()), v = in_double(c.v.read());
  const auto expected = attn_test::reference_attention(q, k, v, mask, c.options);
  const attn::Problem p = attn::detail::sdpa_problem(attn::as_view(q), attn::as_view(k), attn::as_view(v),
                                                     attn::uses_positions<M>, c.options);
  const attn::kernels::ReferenceOptions formula{
      c.options.scale.value_or(1 / std::sqrt(static_cast<double>(p.head_dim))), c.options.soft_cap,
      c.options.sinks};
  const auto scores = reference_scores(q, k, p, mask, formula, c.stage, expected.logsumexp);
  const auto biased = reference_scores(q, k, p, mask, formula, ScoreStage::biased, expected.logsumexp);
  const double eps = std::is_same_v<T, double> ? 1e-12 : 2e-6;
  const double unit =
      eps * std::max({1.0, attn_test::largest(biased) / 10, sum_of_magnitudes(q, k, p, formula) / 10});

  Backwards backwards;
  c.options.workspace = &workspace;
  attn::sdpa_into(c.q.read(), c.k.read(), c.v.read(), c.out.write(), mask, c.options);
  c.options.executor = backwards;
  const auto result = attn::sdpa_with_weights(c.q.read(), c.k.read(), c.v.read(), mask, c.options, c.stage);
  const auto rows = attn::sdpa_with_logsumexp(c.q.read(), c.k.read(), c.v.read(), mask, c.options);

  EXPECT_TRUE(attn_test::same_bits(c.out.read(), result.out)) << "out depends on strides or weights";
  EXPECT_TRUE(attn_test::same_bits(rows.out, result.out)) << "out depends on the logsumexp";
  double rounding = unit_roundoff<T> * attn_test::largest(expected.out);
  // Where the processor multiplies pairs of bfloat16, each weight is rounded as well.
  if (std::is_same_v<T, Eigen::bfloat16> && attn::build_info().has_16_bit_dots)
    rounding += unit_roundoff<T> * attn_test::largest(v);
  EXPECT_LE(attn_test::distance(result.out, expected.out), unit * attn_test::largest(v, 1) + rounding);
  EXPECT_LE(attn_test::distance(rows.logsumexp, expected.logsumexp),
            unit * attn_test::largest(expected.logsumexp, 1));
  // A weight is e^(score - logsumexp): it has the errors of two scores.
  EXPECT_LE(attn_test::distance(result.weights, scores), 2 * unit * attn_test::largest(scores, 1))
      << "stage " << static_cast<int>(c.stage);
}

inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Cases of one type: ATTN_PROPERTY_CASES (default 10000) divided by `share`, seeds from ATTN_PROPERTY_SEED.
template <class T, bool Few>
void expect_formula_in_random_cases(std::uint64_t share) {
  const std::uint64_t first = from_environment("ATTN_PROPERTY_SEED", 1);
  const std::uint64_t cases = from_environment("ATTN_PROPERTY_CASES", 10000) / share;
  attn::Workspace workspace;
  for (std::uint64_t seed = first; seed < first + std::max<std::uint64_t>(cases, 1); ++seed) {
    Case<T> c(seed);
    c.template with_mask<Few>([&](const auto& mask) {
      std::ostringstream text;
      text << "seed " << seed << ": q " << c.q.read() << " strides " << c.q.strides << ", k " << c.k.read()
           << " strides " << c.k.strides << ", v " << c.v.read() << " strides " << c.v.strides
           << ", soft_cap " << c.options.soft_cap << ", sinks " << c.sinks.size();
      SCOPED_TRACE(text.str());
      expect_formula(c, mask, workspace);
    });
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace attn_property
