// tests/kernels/bfloat16_products_test.cpp - the fused kernel on bfloat16 as such against the formula: on
// pairs, and on the matrix unit. Where a processor lacks the instructions it is the same code on
// multiply-adds.
#include "attn/kernels/matrix_products.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "attn/kernels/flash_forward.hpp"
#include "attn/kernels/run_tasks.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/document.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "attn/masks/window.hpp"
#include "support/attention.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::distance;
using attn_test::largest;
using attn_test::random_tensor;
using attn_test::same_bits;
using Bfloat16 = Eigen::bfloat16;
using Rows = attn::TensorView<const Bfloat16, 4>;

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Result {
  attn::Tensor<float, 4> out;
  attn::Tensor<float, 3> logsumexp;
};

template <class Products, class Q, class K, class V, attn::Mask M = attn::NoMask>
Result attend(const Q& query, const K& key, const V& value, const M& mask = {},
              const attn::SdpaOptions& options = {}) {
  const Rows q = attn::as_view(query), k = attn::as_view(key), v = attn::as_view(value);
  using Pass = attn::kernels::ForwardPass<float, attn::kernels::LaneGroup<Products>>;
  const attn::Problem p = attn::detail::sdpa_problem(q, k, v, attn::uses_positions<M>, options);
  Result result{attn::Tensor<float, 4>({p.batch, p.num_heads, p.q_len, p.value_dim}),
                attn::Tensor<float, 3>({p.batch, p.num_heads, p.q_len})};
  attn::kernels::ForwardArguments<float> arguments{.q = attn::StoredRows<Bfloat16>(q),
                                                   .k = attn::StoredRows<Bfloat16>(k),
                                                   .v = attn::StoredRows<Bfloat16>(v),
                                                   .out = result.out.view(),
                                                   .logsumexp = result.logsumexp.view()};
  arguments.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(p.head_dim)));
  arguments.soft_cap = options.soft_cap;
  attn::Workspace workspace;
  attn::kernels::run_tasks<float>(Pass(arguments, typename Pass::Hooks(mask, p)), options.executor,
                                  workspace);
  return result;
}

/// Scores are exact but for the order of the sum; a weight is off by up to 2^-8 of itself.
template <class Products, class X, attn::Mask M = attn::NoMask>
void expect_formula(const X& q, const X& k, const X& v, const M& mask = {},
                    const attn::SdpaOptions& options = {}) {
  const Result result = attend<Products>(q, k, v, mask, options);
  const auto expected = attn_test::reference_attention(q, k, v, mask, options);
  EXPECT_LE(distance(result.out, expected.out), 0x1p-8 * largest(v) + 2e-6);
  EXPECT_LE(distance(result.logsumexp, expected.logsumexp), 2e-6 * largest(expected.logsumexp, 1));
}

attn::Tensor<Bfloat16, 4> random_rows(Index heads, Index len, Index dim, std::uint64_t seed) {
  return random_tensor<Bfloat16, 4>({1, heads, len, dim}, seed);
}

struct Names {
  template <class Products>
  static std::string GetName(int) {
    return std::is_same_v<Products, attn::kernels::PairProducts> ? "Pairs" : "MatrixUnit";
  }
};
template <class Products>
class Bfloat16Products : public testing::Test {
  void SetUp() override {
#if ATTN_HAS_MATRIX_UNIT
    if (std::is_same_v<Products, attn::kernels::MatrixProducts> && !attn::kernels::matrix_unit_is_usable())
      GTEST_SKIP() << "the system does not give the matrix unit to this process";
#endif
  }
};
using BothProducts = testing::Types<attn::kernels::PairProducts, attn::kernels::MatrixProducts>;
TYPED_TEST_SUITE(Bfloat16Products, BothProducts, Names);

TYPED_TEST(Bfloat16Products, EqualTheFormulaForEveryShape) {
  std::uint64_t seed = 1;
  for (const Index q_len : {1, 13, 40})
    for (const Index head_dim : {1, 2, 7, 16, 33, 64})
      for (const Index value_dim : {1, 6, 17, 64})
        for (const Index kv_len : {1, 2, 31, 64, 129, 200}) {
          SCOPED_TRACE(testing::Message() << "q_len " << q_len << ", head_dim " << head_dim << ", value_dim "
                                          << value_dim << ", kv_len " << kv_len);
          const auto q = random_rows(1, q_len, head_dim, seed),
                     k = random_rows(1, kv_len, head_dim, seed + 1),
                     v = random_rows(1, kv_len, value_dim, seed + 2);
          expect_formula<TypeParam>(q, k, v);
          expect_formula<TypeParam>(q, k, v, attn::Causal{}, {.query_offset = kv_len - q_len});
          expect_formula<TypeParam>(q, k, v, attn::SlidingWindow{5, 3}, {.query_offset = kv_len / 3});
          seed += 3;
        }
}

TYPED_TEST(Bfloat16Products, EqualTheFormulaWhereLanesBeginAtTheSecondKeyOfAPair) {
  // Query i sees document i / 8; a lane group begins where the one before it ended, at an odd key.
  const Index q_len = 200, kv_len = 311;
  std::vector<Index> query_ids, key_ids;
  for (Index i = 0; i < q_len; ++i) query_ids.push_back(i / 8);
  for (Index j = 0; j < kv_len; ++j) key_ids.push_back(j / 13);
  const auto q = random_rows(1, q_len, 16, 1), k = random_rows(1, kv_len, 16, 2),
             v = random_rows(1, kv_len, 9, 3);
  expect_formula<TypeParam>(q, k, v, attn::Documents(query_ids, key_ids));
}

TYPED_TEST(Bfloat16Products, EqualTheFormulaForSharedHeadsBiasesAndSoftCaps) {
  const auto q = random_rows(6, 50, 24, 1), k = random_rows(2, 91, 24, 2), v = random_rows(2, 91, 10, 3);
  const auto bias = random_tensor<float, 4>({1, 6, 50, 91}, 4);
  expect_formula<TypeParam>(q, k, v, attn::AdditiveBias(bias));
  expect_formula<TypeParam>(q, k, v, attn::AdditiveBias(bias), {.soft_cap = 2});
  expect_formula<TypeParam>(q, k, v, attn::Causal{}, {.scale = 0.7, .query_offset = 20});
}

TYPED_TEST(Bfloat16Products, ReadRowsOfAnyStrides) {
  const auto q = random_rows(3, 40, 12, 1), k = random_rows(3, 77, 12, 2), v = random_rows(3, 77, 9, 3);
  const Result dense = attend<TypeParam>(q, k, v);
  // Every second element of every third row.
  attn::Tensor<Bfloat16, 4> k_apart({1, 3, 231, 24}), v_apart({1, 3, 231, 18});
  const auto spread = [](const attn::Tensor<Bfloat16, 4>& from, attn::Tensor<Bfloat16, 4>& to) {
    const Rows view(to.data(), from.extents(), {to.size(), to.view().stride(1), to.view().stride(2) * 3, 2});
    for (Index h = 0; h < from.extent(1); ++h)
      for (Index j = 0; j < from.extent(2); ++j)
        for (Index c = 0; c < from.extent(3); ++c) to(0, h, 3 * j, 2 * c) = from(0, h, j, c);
    return view;
  };
  EXPECT_TRUE(same_bits(attend<TypeParam>(q, spread(k, k_apart), spread(v, v_apart)).out, dense.out));
  // Rows of an odd number of elements: words of two elements are then not aligned.
  attn::Tensor<Bfloat16, 4> wide({1, 3, 77, 13});
  for (Index h = 0; h < 3; ++h)
    for (Index j = 0; j < 77; ++j)
      for (Index c = 0; c < 12; ++c) wide(0, h, j, c) = k(0, h, j, c);
  EXPECT_TRUE(same_bits(attend<TypeParam>(q, Rows(wide.view().slice(3, {0, 12})), v).out, dense.out));
}

TYPED_TEST(Bfloat16Products, NeverLetThroughWhatIsStoredAtMaskedKeys) {
  const auto q = random_rows(1, 40, 8, 1);
  const std::array<Index, 1> length{51};
  const auto expect_untouched = [&](const auto& mask, attn::Range hidden, const attn::SdpaOptions& options) {
    auto k = random_rows(1, 100, 8, 2), v = random_rows(1, 100, 5, 3);
    const Result expected = attend<TypeParam>(q, k, v, mask, options);
    for (const float stored : {nan, inf, -inf, 1e30F}) {
      for (Index j = hidden.begin; j < hidden.end; ++j)
        for (Index c = 0; c < 8; ++c) {
          k(0, 0, j, c) = Bfloat16(stored);
          v(0, 0, j, c % 5) = Bfloat16(stored);
        }
      const Result result = attend<TypeParam>(q, k, v, mask, options);
      EXPECT_TRUE(same_bits(result.out, expected.out)) << stored;
      EXPECT_TRUE(same_bits(result.logsumexp, expected.logsumexp)) << stored;
    }
  };
  expect_untouched(attn::KeyPadding{length}, {51, 100}, {});
  expect_untouched(attn::Causal{}, {65, 100}, {.query_offset = 25});
  expect_untouched(attn::SlidingWindow{6, 0}, {0, 25}, {.query_offset = 31});
  attn::Matrix<float> bias = attn::Matrix<float>::Zero(1, 100);
  for (Index j = 33; j < 36; ++j) bias(0, j) = -inf;
  expect_untouched(attn::AdditiveBias(bias), {33, 36}, {});
}

TYPED_TEST(Bfloat16Products, ShowWhatIsStoredAtVisibleKeysToThoseWhoSeeThem) {
  const auto q = random_rows(1, 30, 8, 1), k = random_rows(1, 100, 8, 2);
  auto v = random_rows(1, 100, 5, 3);
  v(0, 0, 77, 2) = Bfloat16(nan);
  const Result result = attend<TypeParam>(q, k, v, attn::Causal{}, {.query_offset = 60});
  for (Index i = 0; i < 30; ++i) {
    EXPECT_EQ(std::isnan(result.out(0, 0, i, 2)), i >= 17) << "row " << i;
    EXPECT_FALSE(std::isnan(result.out(0, 0, i, 1))) << "row " << i;
  }
}

TYPED_TEST(Bfloat16Products, FollowAMaximumThatRisesWithEveryKey) {
  for (const float step : {0.0625F, 1.0F, 8.0F}) {  // scores are exact
    attn::Tensor<Bfloat16, 4> q({1, 1, 30, 1}), k({1, 1, 256, 1});
    for (Index i = 0; i < 30; ++i) q(0, 0, i, 0) = Bfloat16(1.0F);
    for (Index j = 0; j < 256; ++j) k(0, 0, j, 0) = Bfloat16(step * static_cast<float>(j));
    const auto v = random_rows(1, 256, 9, 3);
    expect_formula<TypeParam>(q, k, v, attn::NoMask{}, {.scale = 1.0});
  }
}

}  // namespace
