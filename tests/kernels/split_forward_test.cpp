// tests/kernels/split_forward_test.cpp - few queries and many keys: ranges of keys as tasks of their own,
// merged.
#include "attn/kernels/split_forward.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "attn/masks/window.hpp"
#include "support/attention.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::kernels::KeyRanges;
using attn_test::distance;
using attn_test::largest;
using attn_test::random_tensor;
using attn_test::same_bits;

TEST(KeyRanges, CoverAllKeysOnceInOrder) {
  for (const Index tasks : {0, 1, 2, 3, 4, 5, 8, 100})
    for (const Index kv_len : {0, 1, 511, 512, 1023, 1024, 1025, 4096, 5000, 100000}) {
      const KeyRanges ranges(tasks, kv_len, 128);
      Index next = 0;
      for (Index i = 0; i < ranges.count(); ++i) {
        EXPECT_EQ(ranges[i].begin, next);
        EXPECT_TRUE(ranges.count() == 1 || !ranges[i].empty());
        next = ranges[i].end;
      }
      EXPECT_EQ(next, kv_len) << tasks;
      EXPECT_LE(tasks * ranges.count(), std::max<Index>(tasks, 8));
    }
}

template <class T>
class SplitForward : public testing::Test {
 protected:
  static constexpr double tolerance = std::is_same_v<T, double> ? 1e-14 : 2e-6;
  /// One, some and many rows a key-value head; odd sizes.
  template <class F>
  void for_each_shape(F f) {
    for (const Index q_len : {1, 3, 40})
      for (const Index heads : {1, 4})
        f(random_tensor<T, 4>({1, heads, q_len, 20}, 1), random_tensor<T, 4>({1, 1, 2500, 20}, 2),
          random_tensor<T, 4>({1, 1, 2500, 13}, 3));
  }
  template <attn::Mask M = attn::NoMask>
  void expect_formula(const attn::Tensor<T, 4>& q, const attn::Tensor<T, 4>& k, const attn::Tensor<T, 4>& v,
                      const M& mask = {}, const attn::SdpaOptions& options = {}) {
    const auto result = attn::sdpa_with_logsumexp(q, k, v, mask, options);
    const auto expected = attn_test::reference_attention(q, k, v, mask, options);
    EXPECT_LE(distance(result.out, expected.out), tolerance * largest(expected.out, 1));
    EXPECT_LE(distance(result.logsumexp, expected.logsumexp), tolerance * largest(expected.logsumexp, 1));
  }
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(SplitForward, Scalars);

TYPED_TEST(SplitForward, EqualsTheFormula) {
  this->for_each_shape([&](const auto& q, const auto& k, const auto& v) {
    const Index offset = 2500 - q.extent(2);
    const std::vector<double> sinks(attn::as_size(q.extent(1)), 5.0);
    this->expect_formula(q, k, v);
    this->expect_formula(q, k, v, attn::NoMask{}, {.scale = 3.0, .soft_cap = 2.0, .sinks = sinks});
    this->expect_formula(q, k, v, attn::Causal{}, {.sinks = sinks, .query_offset = 700});
    this->expect_formula(q, k, v, attn::SlidingWindow{.left = 30, .right = 0}, {.query_offset = offset});
  });
}

TYPED_TEST(SplitForward, AQueryThatSeesNoKeyGivesZero) {
  this->for_each_shape([&](const auto& q, const auto& k, const auto& v) {
    const std::vector<Index> lengths = {0};
    const auto result = attn::sdpa_with_logsumexp(q, k, v, attn::KeyPadding{lengths});
    EXPECT_EQ(largest(result.out), 0);
    for (Index i = 0; i < result.logsumexp.size(); ++i)
      EXPECT_EQ(result.logsumexp.data()[i], -std::numeric_limits<TypeParam>::infinity());
  });
}

// A logsumexp near -1e9 cannot tell a range of 640 keys from one of 580; maximum and sum can.
TYPED_TEST(SplitForward, AHugeBiasOfAllKeysChangesNothing) {
  this->for_each_shape([&](const auto& q, const auto& k, const auto& v) {
    attn::Tensor<TypeParam, 4> bias({1, 1, 1, 2500});
    std::fill_n(bias.data(), bias.size(), TypeParam(-1e9));
    attn::SdpaOptions scoreless;
    scoreless.scale = 0.0;
    const auto with_bias = attn::sdpa(q, k, v, attn::AdditiveBias(bias), scoreless);
    const auto mean = attn_test::reference_attention(q, k, v, attn::NoMask{}, scoreless);
    EXPECT_LE(distance(with_bias, mean.out), this->tolerance * largest(mean.out, 1));
  });
}

TYPED_TEST(SplitForward, ThreadsAndLogsumexpChangeNoBit) {
  this->for_each_shape([&](const auto& q, const auto& k, const auto& v) {
    attn::ThreadPool pool(3);
    const auto alone = attn::sdpa(q, k, v);
    EXPECT_TRUE(same_bits(attn::sdpa(q, k, v, attn::NoMask{}, {.executor = pool}), alone));
    EXPECT_TRUE(same_bits(attn::sdpa_with_logsumexp(q, k, v).out, alone));
  });
}

TYPED_TEST(SplitForward, NoNaNOfAHiddenKeyComesOut) {
  this->for_each_shape([&](const auto& q, auto k, auto v) {
    const attn::SdpaOptions options{.query_offset = 1400};
    const auto expected = attn::sdpa(q, k, v, attn::Causal{}, options);
    for (Index j = 1400 + q.extent(2); j < 2500; ++j)
      k(0, 0, j, 3) = v(0, 0, j, 5) = std::numeric_limits<TypeParam>::quiet_NaN();
    EXPECT_TRUE(same_bits(attn::sdpa(q, k, v, attn::Causal{}, options), expected));
  });
}

}  // namespace
