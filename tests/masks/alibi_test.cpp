#include "attn/masks/alibi.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "attn/ops/sdpa.hpp"
#include "masks/consistency.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Alibi;
using attn::AlibiForm;
using attn::Index;
using attn::Problem;
using attn_test::Draw;
using attn_test::error_text;

TEST(AlibiSlopes, AreThePapersForAPowerOfTwo) {
  EXPECT_EQ(attn::alibi_slopes(8),
            (std::vector<double>{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625}));
  EXPECT_EQ(attn::alibi_slopes(1), std::vector<double>{0.00390625});
}

// As in the authors' code: the slopes of 4 heads, then every other one of 8.
TEST(AlibiSlopes, AreInterleavedForOtherNumbersOfHeads) {
  EXPECT_EQ(attn::alibi_slopes(6), (std::vector<double>{0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}));
  const std::vector<double> twelve = attn::alibi_slopes(12);
  ASSERT_EQ(twelve.size(), 12U);
  const double last[] = {0.707107, 0.353553, 0.176777, 0.088388};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(twelve[8 + i], last[i], 5e-7);
}

TEST(AlibiSlopes, NeedAHead) {
  EXPECT_EQ(error_text<std::invalid_argument>([] { static_cast<void>(attn::alibi_slopes(0)); }),
            "attn: alibi_slopes: num_heads 0 must be at least 1");
}

TEST(Alibi, IsConsistent) {
  attn_test::expect_consistent([](Draw&, const Problem&) { return Alibi(4); });
  attn_test::expect_consistent([](Draw&, const Problem&) { return Alibi(4, AlibiForm::symmetric); });
}

TEST(Alibi, AddsTheSlopeTimesTheSignedDistance) {
  const Problem p{.num_heads = 8, .q_len = 6, .kv_len = 6};
  const Alibi alibi(8);
  EXPECT_EQ(alibi.score(1.0, {.head = 0, .q = 5, .k = 2}, p), 1.0 - 1.5);
  EXPECT_EQ(alibi.score(1.0, {.head = 1, .q = 2, .k = 5}, p), 1.0 + 0.75);
  EXPECT_EQ(alibi.score(1.0F, {.head = 1, .q = 3, .k = 3}, p), 1.0F);
}

TEST(Alibi, InItsSymmetricFormPenalisesBothSides) {
  const Problem p{.num_heads = 8, .q_len = 6, .kv_len = 6};
  const Alibi alibi(8, AlibiForm::symmetric);
  EXPECT_EQ(alibi.score(0.0, {.head = 1, .q = 2, .k = 5}, p), -0.75);
  EXPECT_EQ(alibi.score(0.0, {.head = 1, .q = 5, .k = 2}, p), -0.75);
}

TEST(Alibi, HasOneFormUnderACausalMask) {
  const auto x = attn_test::random_tensor<float, 3>({4, 90, 8}, 1);
  EXPECT_EQ(attn::sdpa(x, x, x, Alibi(4) & attn::Causal{}),
            attn::sdpa(x, x, x, Alibi(4, AlibiForm::symmetric) & attn::Causal{}));
}

TEST(Alibi, GivesADecodedQueryTheBiasItHadInThePrompt) {
  const auto x = attn_test::random_tensor<double, 3>({4, 33, 8}, 2);
  const auto mask = Alibi(4) & attn::Causal{};
  const auto prompt = attn::sdpa(x, x, x, mask);
  const auto last = x.view().slice(1, {32, 33});
  const auto decoded = attn::sdpa(last, x, x, mask, {.query_offset = 32});
  const attn::Tensor<double, 3> expected(prompt.view().slice(1, {32, 33}));
  EXPECT_LT(attn_test::largest_difference(decoded, expected), 1e-14);
}

TEST(Alibi, TakesOwnSlopesOnePerQueryHead) {
  const Problem p{.num_heads = 2, .num_kv_heads = 1, .q_len = 3, .kv_len = 3};
  const Alibi alibi(std::vector<double>{1, 0.125});
  alibi.validate(p);
  EXPECT_EQ(alibi.score(0.0, {.head = 1, .q = 2, .k = 0}, p), -0.25);
  EXPECT_EQ(error_text<attn::ShapeError>([&] { Alibi(8).validate(p); }),
            "attn: Alibi: 8 slopes for 2 query heads");
}

TEST(Alibi, IsTheBiasThatItAdds) {
  const auto x = attn_test::random_tensor<double, 3>({3, 40, 8}, 3);
  attn::Tensor<double, 3> bias({3, 40, 40});
  const std::vector<double> slopes = attn::alibi_slopes(3);
  for (Index h = 0; h < 3; ++h)
    for (Index q = 0; q < 40; ++q)
      for (Index k = 0; k < 40; ++k)
        bias(h, q, k) = slopes[static_cast<std::size_t>(h)] * static_cast<double>(k - q);
  EXPECT_LT(attn_test::largest_difference(attn::sdpa(x, x, x, Alibi(3)),
                                          attn::sdpa(x, x, x, attn::AdditiveBias(bias))),
            1e-13);
}

}  // namespace
