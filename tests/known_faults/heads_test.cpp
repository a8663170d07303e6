// Faults that users of other libraries have reported about heads, shapes and strides, one test per report.
// Expected numbers (six digits) come from a float64 evaluation of the formula outside this project.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "attn/masks/alibi.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "attn/masks/window.hpp"
#include "attn/ops/heads.hpp"
#include "support/attention.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::distance;
using attn_test::fill;
using attn_test::random_tensor;
using attn_test::same_bits;
using Numbers = attn::Matrix<double>;

constexpr double printed = 1e-6;

template <class T>
class HeadFault : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(HeadFault, Scalars);

TYPED_TEST(HeadFault, B22_QueryHeadsAreGroupedAndNotTiled) {
  const auto q = fill<TypeParam, 4>({1, 4, 1, 4}, 5, 1), k = fill<TypeParam, 4>({1, 2, 3, 4}, 7, 2),
             v = fill<TypeParam, 4>({1, 2, 3, 2}, 3, 4);
  const auto out = attn::sdpa(q, k, v);
  const Numbers heads{
      {0.151424, -0.213325}, {0.033718, -0.001335}, {-0.54659, -0.17159}, {-0.51482, -0.13982}};
  for (Index h = 0; h < 4; ++h)
    EXPECT_LT(distance(out.view()[0][h], Numbers(heads.row(h))), printed) << "head " << h;
}

TYPED_TEST(HeadFault, B24_HeadCountsThatDoNotDivideAreNamedAndNoneIsNoDivisor) {
  using Tensor4 = attn::Tensor<TypeParam, 4>;
  const auto text = [](Index num_heads, Index num_kv_heads) {
    const Tensor4 q({1, num_heads, 2, 4}), kv({1, num_kv_heads, 3, 4});
    return attn_test::error_text<attn::ShapeError>([&] { (void)attn::sdpa(q, kv, kv); });
  };
  EXPECT_NE(text(3, 2).find("has 3 heads, which is no multiple of the 2 key-value heads"), std::string::npos);
  EXPECT_NE(text(3, 0).find("has 3 heads, which is no multiple of the 0 key-value heads"), std::string::npos);
  EXPECT_EQ(text(0, 0), "no error");
  EXPECT_EQ(text(0, 2), "no error");
}

TYPED_TEST(HeadFault, B25_ValuesMayBeWiderThanKeysAndTheScaleIsThatOfTheKeys) {
  const auto q = fill<TypeParam, 4>({1, 2, 3, 4}, 5, 1), k = fill<TypeParam, 4>({1, 2, 3, 4}, 7, 2),
             v = fill<TypeParam, 4>({1, 2, 3, 6}, 3, 4);
  const auto out = attn::sdpa(q, k, v);
  EXPECT_EQ(out.extents(), (attn::Dims<4>{1, 2, 3, 6}));
  EXPECT_LT(distance(out.view()[0][0].slice(0, {0, 1}),
                     Numbers{{-0.391429, -0.016429, 0.358571, 0.733571, 0.002619, -0.641429}}),
            printed);
}

TYPED_TEST(HeadFault, B66_EveryHeadSizeIsRight) {
  for (const Index dim : {1, 3, 5, 7, 9, 17, 33, 65, 80, 96, 100})
    for (const Index kv_len : {1, 7, 8, 9, 63, 64, 65}) {
      const auto q = random_tensor<TypeParam, 2>({3, dim}, 1),
                 k = random_tensor<TypeParam, 2>({kv_len, dim}, 2),
                 v = random_tensor<TypeParam, 2>({kv_len, dim}, 3);
      const auto expected = attn_test::reference_attention(q, k, v).out;
      EXPECT_LT(distance(attn::sdpa(q, k, v), expected), 2e-6 * attn_test::largest(expected, 1))
          << dim << " x " << kv_len;
    }
}

TYPED_TEST(HeadFault, B27_AnInnerStrideThatIsNotOneIsHonouredByEveryArgument) {
  using Map = Eigen::Map<Eigen::Matrix<TypeParam, Eigen::Dynamic, Eigen::Dynamic>, 0,
                         Eigen::Stride<Eigen::Dynamic, 2>>;
  const auto matrix = [](Index rows, Index columns, std::uint64_t seed) {
    const auto values = random_tensor<TypeParam, 2>({rows, columns}, seed);
    return attn::Matrix<TypeParam>(Eigen::Map<const attn::Matrix<TypeParam>>(values.data(), rows, columns));
  };
  const auto q = matrix(5, 4, 1), k = matrix(9, 4, 2), v = matrix(9, 3, 3), bias = matrix(5, 9, 4);
  std::vector<std::vector<TypeParam>> memory;
  const auto spread = [&](const attn::Matrix<TypeParam>& x) {
    memory.emplace_back(static_cast<std::size_t>(2 * x.size()), std::numeric_limits<TypeParam>::quiet_NaN());
    Map map(memory.back().data(), x.rows(), x.cols(), Eigen::Stride<Eigen::Dynamic, 2>(2 * x.rows(), 2));
    map = x;
    return map;
  };
  const attn::Matrix<TypeParam> expected = attn::sdpa(q, k, v, attn::AdditiveBias(bias));
  Map out = spread(attn::Matrix<TypeParam>::Zero(5, 3));
  const Map query = spread(q), key = spread(k), value = spread(v), added = spread(bias);
  attn::sdpa_into(query, key, value, out, attn::AdditiveBias(added));
  EXPECT_TRUE(same_bits(out, expected));
}

TEST(HeadFault64Bit, B28_OffsetsAreProductsOf64Bits) {
  static_assert(sizeof(Index) == 8);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that is not read
  const auto* const base = reinterpret_cast<const char*>(std::uintptr_t{4096});
  const attn::TensorView<const char, 2> wide(base, {Index{1} << 22, 1024}, {1024, 1});
  const auto range = attn::address_range(wide.slice(0, {(Index{1} << 21) + 1, (Index{1} << 21) + 2}));
  EXPECT_EQ(range.begin, 4096u + 2147484672u);
  EXPECT_EQ(wide.size(), Index{1} << 32);
}

TYPED_TEST(HeadFault, B28_AFusedProjectionIsReadThroughItsStrides) {
  const auto fused = random_tensor<TypeParam, 2>({7, 3 * 2 * 4}, 1);
  const auto part = [&](Index i) { return attn::split_heads(fused.view().slice(1, {8 * i, 8 * i + 8}), 2); };
  const attn::Tensor<TypeParam, 3> q(part(0)), k(part(1)), v(part(2));
  EXPECT_TRUE(same_bits(attn::sdpa(part(0), part(1), part(2)), attn::sdpa(q, k, v)));
}

TYPED_TEST(HeadFault, B29_EmptyInputsGiveEmptyOrZeroOutputs) {
  using Tensor4 = attn::Tensor<TypeParam, 4>;
  const auto extents = [](const Tensor4& q, const Tensor4& kv) { return attn::sdpa(q, kv, kv).extents(); };
  EXPECT_EQ(extents(Tensor4({0, 2, 3, 4}), Tensor4({0, 2, 5, 4})), (attn::Dims<4>{0, 2, 3, 4}));
  EXPECT_EQ(extents(Tensor4({1, 0, 3, 4}), Tensor4({1, 0, 5, 4})), (attn::Dims<4>{1, 0, 3, 4}));
  EXPECT_EQ(extents(Tensor4({1, 2, 0, 4}), Tensor4({1, 2, 5, 4})), (attn::Dims<4>{1, 2, 0, 4}));
  for (const Index q_len : {1, 40}) {
    const auto q = random_tensor<TypeParam, 4>({1, 2, q_len, 4}, 1);
    const auto none = attn::sdpa_with_logsumexp(q, Tensor4({1, 2, 0, 4}), Tensor4({1, 2, 0, 4}));
    EXPECT_EQ(attn_test::largest(none.out), 0);
    EXPECT_EQ(none.logsumexp(0, 1, q_len - 1), attn::masked_score<TypeParam>);
  }
  EXPECT_THROW((void)attn::sdpa(Tensor4({1, 2, 3, 0}), Tensor4({1, 2, 5, 0}), Tensor4({1, 2, 5, 4})),
               attn::ShapeError);
}

TYPED_TEST(HeadFault, B32_ALengthBeyondTheKeysIsAnError) {
  const attn::Tensor<TypeParam, 3> x({1, 4, 2});
  const std::array<Index, 1> lengths{5};
  EXPECT_EQ(
      attn_test::error_text<attn::ShapeError>([&] { (void)attn::sdpa(x, x, x, attn::KeyPadding{lengths}); }),
      "attn: KeyPadding: length 5 is not within [0, kv_len 4]");
}

TYPED_TEST(HeadFault, B33_AWindowIsGivenByDistancesAndHoldsTheCurrentKey) {
  const auto q = fill<TypeParam, 2>({6, 4}, 5, 1), k = fill<TypeParam, 2>({6, 4}, 7, 2),
             v = fill<TypeParam, 2>({6, 2}, 3, 4);
  const auto mask = attn::Causal{} & attn::SlidingWindow{.left = 1};
  const auto result = attn::sdpa_with_weights(q, k, v, mask);
  EXPECT_LT(distance(result.out, Numbers{{-0.5, -0.125},
                                         {-0.197325, 0.177675},
                                         {0.71822, -0.233404},
                                         {0.58873, -0.525671},
                                         {0.189009, 0.564009},
                                         {0.01774, 0.39274}}),
            printed);
  for (Index i = 0; i < 6; ++i) EXPECT_EQ((result.weights.row(i).array() > 0).count(), i == 0 ? 1 : 2);
}

TEST(MaskFaultSlopes, B40_AlibiSlopesAreRightForEveryHeadCount) {
  const auto expect = [](Index heads, std::size_t first, const std::vector<double>& expected) {
    const std::vector<double> slopes = attn::alibi_slopes(heads);
    ASSERT_EQ(static_cast<Index>(slopes.size()), heads);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(slopes[first + i], expected[i], 5e-7);
  };
  expect(8, 0, {0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625});
  expect(6, 0, {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125});
  expect(12, 8, {0.707107, 0.353553, 0.176777, 0.088388});
}

TYPED_TEST(HeadFault, B40_AlibiMeasuresFromThePositionThatTheOffsetGives) {
  const auto x = random_tensor<TypeParam, 3>({6, 9, 4}, 1);
  const attn::Alibi alibi(6);
  const auto whole = attn::sdpa(x, x, x, alibi & attn::Causal{});
  const auto last = attn::sdpa(x.view().slice(1, {5, 9}), x, x, alibi & attn::Causal{}, {.query_offset = 5});
  EXPECT_LT(distance(last, whole.view().slice(1, {5, 9})), printed);
}

// Two parts are joined by natural logarithms.
TYPED_TEST(HeadFault, B41_LogsumexpIsNaturalAndJoinsParts) {
  const auto q = fill<TypeParam, 2>({2, 4}, 5, 1), k = fill<TypeParam, 2>({4, 4}, 7, 2),
             v = fill<TypeParam, 2>({4, 2}, 3, 4);
  const auto part = [&](attn::Range keys) {
    return attn::sdpa_with_logsumexp(q, k.view().slice(0, keys), v.view().slice(0, keys));
  };
  const auto left = part({0, 3}), right = part({3, 4});
  EXPECT_LT(distance(left.logsumexp, Numbers{{1.109903, 1.39524}}), printed);
  EXPECT_LT(distance(right.logsumexp, Numbers{{0.359375, 0.6875}}), printed);
  Numbers merged(2, 2);
  for (Index i = 0; i < 2; ++i) {
    const double a = std::exp(static_cast<double>(left.logsumexp(i))),
                 b = std::exp(static_cast<double>(right.logsumexp(i)));
    for (Index c = 0; c < 2; ++c)
      merged(i, c) =
          (a * static_cast<double>(left.out(i, c)) + b * static_cast<double>(right.out(i, c))) / (a + b);
  }
  EXPECT_LT(distance(merged, Numbers{{-0.017403, -0.144911}, {-0.101199, -0.000894}}), printed);
}

}  // namespace
