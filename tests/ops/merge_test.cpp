// tests/ops/merge_test.cpp - attention over several sets of keys, joined: the laws of the merge.
#include "attn/ops/merge.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "support/attention.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::distance;
using attn_test::random_tensor;
using attn_test::same_bits;

template <class T>
class Merge : public testing::Test {
 protected:
  const attn::Tensor<T, 4> q = random_tensor<T, 4>({2, 4, 5, 8}, 1),
                           k = random_tensor<T, 4>({2, 2, 23, 8}, 2),
                           v = random_tensor<T, 4>({2, 2, 23, 6}, 3);
  const double tolerance = std::is_same_v<T, double>        ? 1e-14
                           : std::is_same_v<T, float>       ? 16 * 0x1p-23
                           : std::is_same_v<T, Eigen::half> ? 4 * 0x1p-10
                                                            : 4 * 0x1p-7;

  /// Attention over the keys [begin, end).
  auto over(Index begin, Index end) const {
    const attn::Range keys{begin, end};
    return attn::sdpa_with_logsumexp(q, k.view().slice(2, keys), v.view().slice(2, keys));
  }
};
using Elements = testing::Types<float, double, Eigen::half, Eigen::bfloat16>;
TYPED_TEST_SUITE(Merge, Elements);

TYPED_TEST(Merge, PartsOfTheKeysGiveTheAttentionOverAllOfThem) {
  const auto whole = attn_test::reference_attention(this->q, this->k, this->v);
  for (const Index cut : {0, 1, 7, 22, 23}) {
    const auto merged = attn::merge_attention(this->over(0, cut), this->over(cut, 23));
    EXPECT_LT(distance(merged.out, whole.out), this->tolerance) << cut;
    EXPECT_LT(distance(merged.logsumexp, whole.logsumexp),
              16 * std::numeric_limits<attn::Accumulator<TypeParam>>::epsilon())
        << cut;
  }
}

TYPED_TEST(Merge, ManyPartsAreAsTwoAtATimeInAnyOrder) {
  const auto a = this->over(0, 3), b = this->over(3, 4), c = this->over(4, 17), d = this->over(17, 23);
  auto at_once = a, backwards = a;
  attn::merge_attention_into(
      {{a.out, a.logsumexp}, {b.out, b.logsumexp}, {c.out, c.logsumexp}, {d.out, d.logsumexp}}, at_once.out,
      at_once.logsumexp);
  const std::vector<attn::AttentionPart<TypeParam>> parts{
      {d.out, d.logsumexp}, {c.out, c.logsumexp}, {b.out, b.logsumexp}, {a.out, a.logsumexp}};
  attn::merge_attention_into(parts, backwards.out, backwards.logsumexp);
  const auto left = attn::merge_attention(attn::merge_attention(attn::merge_attention(a, b), c), d);
  const auto right = attn::merge_attention(a, attn::merge_attention(b, attn::merge_attention(c, d)));
  for (const auto* other : {&std::as_const(backwards), &left, &right}) {
    EXPECT_LT(distance(at_once.out, other->out), this->tolerance);
    EXPECT_LT(distance(at_once.logsumexp, other->logsumexp),
              16 * std::numeric_limits<attn::Accumulator<TypeParam>>::epsilon());
  }
}

TYPED_TEST(Merge, APartWithoutKeysChangesNoBit) {
  const auto some = this->over(0, 9), none = this->over(4, 4);
  EXPECT_EQ(none.logsumexp(0, 0, 0), -std::numeric_limits<attn::Accumulator<TypeParam>>::infinity());
  for (const auto& merged : {attn::merge_attention(some, none), attn::merge_attention(none, some)}) {
    EXPECT_TRUE(same_bits(merged.out, some.out));
    EXPECT_TRUE(same_bits(merged.logsumexp, some.logsumexp));
  }
  const auto still_none = attn::merge_attention(none, none);
  EXPECT_TRUE(same_bits(still_none.out, none.out));
  EXPECT_TRUE(same_bits(still_none.logsumexp, none.logsumexp));
}

TYPED_TEST(Merge, WhatStandsInAPartWithoutKeysIsNotLookedAt) {
  const auto some = this->over(0, 9);
  auto none = this->over(4, 4);
  for (Index i = 0; i < none.out.size(); ++i)
    none.out.data()[i] = static_cast<TypeParam>(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(same_bits(attn::merge_attention(none, some).out, some.out));
}

TYPED_TEST(Merge, RowsOfOneCallMayHaveKeysInOneAnotherOrNoPart) {
  const auto causal = [&](Index begin, Index end) {
    const attn::Range keys{begin, end};
    return attn::sdpa_with_logsumexp(this->q, this->k.view().slice(2, keys), this->v.view().slice(2, keys),
                                     attn::Causal{}, {.query_offset = 2 - begin});
  };
  const auto merged = attn::merge_attention(causal(0, 4), causal(4, 23));
  const auto whole =
      attn_test::reference_attention(this->q, this->k, this->v, attn::Causal{}, {.query_offset = 2});
  EXPECT_LT(distance(merged.out, whole.out), this->tolerance);
}

TYPED_TEST(Merge, ASinkIsAPartWithoutValue) {
  const std::vector<double> sinks{0.5, -1, 2, 0};
  const auto with_sinks =
      attn::sdpa_with_logsumexp(this->q, this->k, this->v, attn::NoMask{}, {.sinks = sinks});
  auto sink = this->over(0, 0);
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 4; ++h)
      for (Index i = 0; i < 5; ++i)
        sink.logsumexp(b, h, i) =
            static_cast<attn::Accumulator<TypeParam>>(sinks[static_cast<std::size_t>(h)]);
  const auto merged = attn::merge_attention(this->over(0, 23), sink);
  EXPECT_LT(distance(merged.out, with_sinks.out), this->tolerance);
}

TYPED_TEST(Merge, HugeLogsumexpsDoNotOverflow) {
  using A = attn::Accumulator<TypeParam>;
  attn::Matrix<TypeParam> x(1, 3), y(1, 3), out(1, 3);
  for (Index c = 0; c < 3; ++c) {
    x(0, c) = TypeParam(1);
    y(0, c) = TypeParam(3);
  }
  for (const A size : {A(1e4), A(-1e4)}) {
    attn::Tensor<A, 1> left({1}), right({1}), all({1});
    left(0) = right(0) = size;
    attn::merge_attention_into({{x, left}, {y, right}}, out, all);
    EXPECT_EQ(static_cast<double>(out(0, 1)), 2);
    EXPECT_NEAR(all(0), size + std::log(A(2)), 1e-3);
  }
}

TYPED_TEST(Merge, ResultsMayStandInAPartAndDependNeitherOnStridesNorExecutor) {
  using A = attn::Accumulator<TypeParam>;
  const auto a = this->over(0, 3), b = this->over(3, 23), merged = attn::merge_attention(a, b);
  attn::ThreadPool pool(3);
  for (const bool into_first : {true, false}) {
    auto first = a, second = b;
    auto& target = into_first ? first : second;
    attn::merge_attention_into({{first.out, first.logsumexp}, {second.out, second.logsumexp}}, target.out,
                               target.logsumexp, {.executor = pool});
    EXPECT_TRUE(same_bits(target.out, merged.out));
    EXPECT_TRUE(same_bits(target.logsumexp, merged.logsumexp));
  }
  attn::Tensor<TypeParam, 4> rows({2, 5, 6, 4});  // batch, len, dim, heads
  attn::Tensor<A, 3> sums({5, 4, 2});
  const attn::TensorView<TypeParam, 4> out(rows.data(), {2, 4, 5, 6}, {120, 1, 24, 4});
  const attn::TensorView<A, 3> logsumexp(sums.data(), {2, 4, 5}, {1, 2, 8});
  attn::copy(a.out.view(), out);
  attn::merge_attention_into({{out, a.logsumexp}, {b.out, b.logsumexp}}, out, logsumexp);
  EXPECT_TRUE(same_bits(out, merged.out));
  EXPECT_TRUE(same_bits(attn::with_rank<4>(logsumexp), attn::with_rank<4>(merged.logsumexp.view())));
}

TYPED_TEST(Merge, NothingIsAllocatedWithAWorkspaceThatHasServedTheShape) {
  auto a = this->over(0, 3);
  const auto b = this->over(3, 23);
  attn::Workspace workspace;
  const auto merge = [&] {
    attn::merge_attention_into({{a.out, a.logsumexp}, {b.out, b.logsumexp}}, a.out, a.logsumexp,
                               {.workspace = &workspace});
  };
  merge();
  EXPECT_EQ(attn_test::allocations_in(merge), 0);
}

TEST(MergeErrors, WhatDoesNotFitIsNamed) {
  attn::Tensor<float, 4> out({1, 2, 3, 4}), other({1, 2, 3, 5});
  attn::Tensor<float, 3> logsumexp({1, 2, 3}), shorter({1, 2, 2});
  const auto text = [](auto&& f) { return attn_test::error_text<attn::ShapeError>(f); };
  EXPECT_EQ(text([&] { attn::merge_attention_into({}, out, logsumexp); }),
            "attn: merge_attention: there is no part for out [1, 2, 3, 4]");
  EXPECT_EQ(text([&] {
              attn::merge_attention_into({{other, logsumexp}}, out, logsumexp);
            }),
            "attn: merge_attention: out [1, 2, 3, 5] of a part and out [1, 2, 3, 4] differ in extents");
  EXPECT_EQ(text([&] {
              attn::merge_attention_into({{out, shorter}}, out, logsumexp);
            }),
            "attn: merge_attention: logsumexp [1, 2, 2] of a part should be [1, 2, 3] for out [1, 2, 3, 4]");
  EXPECT_EQ(text([&] {
              attn::merge_attention_into({{out, logsumexp}}, out, shorter);
            }),
            "attn: merge_attention: logsumexp [1, 2, 2] should be [1, 2, 3] for out [1, 2, 3, 4]");
}

TEST(MergeErrors, EmptyTensorsAreNone) {
  attn::Tensor<float, 4> no_rows({1, 2, 0, 4}), no_columns({1, 2, 1, 0});
  attn::Tensor<float, 3> none({1, 2, 0}), one({1, 2, 1});
  attn::merge_attention_into({{no_rows, none}}, no_rows, none);
  one(0, 0, 0) = 3;
  attn::merge_attention_into({{no_columns, one}, {no_columns, one}}, no_columns, one);
  EXPECT_FLOAT_EQ(one(0, 0, 0), 3 + std::log(2.0f));
}

}  // namespace
