#include "attn/masks/mask.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "support/error_text.hpp"

namespace {

using attn::Index;
using attn::Problem;
using attn::Site;
using attn_test::error_text;
using Flags = Eigen::Matrix<bool, Eigen::Dynamic, Eigen::Dynamic>;

struct Doubles {
  template <class A>
  A score(A s, const Site&, const Problem&) const {
    return 2 * s;
  }
};
struct AddsOne {
  template <class A>
  A score(A s, const Site&, const Problem&) const {
    return s + 1;
  }
};
struct Halves {
  template <class A>
  A weight(A w, const Site&, const Problem&) const {
    return w / 2;
  }
};

TEST(Mask, IsWhatStatesAtLeastOneStage) {
  EXPECT_TRUE(attn::Mask<attn::Causal>);
  EXPECT_TRUE(attn::Mask<Doubles>);
  EXPECT_TRUE(attn::Mask<Halves>);
  EXPECT_FALSE(attn::Mask<Flags>);
  EXPECT_FALSE(attn::Mask<Eigen::MatrixXf>);
  EXPECT_FALSE(attn::Mask<bool>);
}

TEST(AllOf, ChangesScoresFromLeftToRight) {
  EXPECT_EQ(attn::all_of(Doubles{}, AddsOne{}).score(3.0, {}, {}), 7.0);
  EXPECT_EQ(attn::all_of(AddsOne{}, Doubles{}).score(3.0, {}, {}), 8.0);
}

TEST(AllOf, HasOnlyTheStagesOfItsParts) {
  using Filters = decltype(attn::Causal{} & attn::NoMask{});
  using Scores = decltype(attn::all_of(Doubles{}, AddsOne{}));
  EXPECT_FALSE(attn::ChangesScores<Filters>);
  EXPECT_FALSE(attn::FiltersPairs<Scores>);
  EXPECT_TRUE((attn::ChangesWeights<decltype(attn::all_of(Doubles{}, Halves{}))>));
}

TEST(AllOf, UsesPositionsIfAPartDoes) {
  EXPECT_TRUE((attn::uses_positions<decltype(attn::NoMask{} & attn::Causal{})>));
  EXPECT_FALSE((attn::uses_positions<decltype(attn::all_of(Doubles{}, attn::NoMask{}))>));
}

TEST(Causal, SeesKeysUpToTheQuerysOwnPosition) {
  Problem p{.q_len = 2, .kv_len = 4};
  p.offset = 2;  // bottom-right: query 0 stands at key 2
  EXPECT_TRUE(attn::Causal::allows({.q = 0, .k = 2}, p));
  EXPECT_FALSE(attn::Causal::allows({.q = 0, .k = 3}, p));
  EXPECT_TRUE(attn::Causal::allows({.q = 1, .k = 3}, p));
  p.offset = -1;  // query 0 stands before key 0
  EXPECT_FALSE(attn::Causal::allows({.q = 0, .k = 0}, p));
  EXPECT_TRUE(attn::Causal::allows({.q = 1, .k = 0}, p));
}

TEST(Causal, MayHaveAnOffsetPerBatchEntry) {
  const std::array<Index, 2> offsets{0, 3};
  Problem p{.batch = 2, .q_len = 1, .kv_len = 4};
  p.offset = attn::QueryOffset(std::span<const Index>(offsets));
  EXPECT_FALSE(attn::Causal::allows({.batch = 0, .q = 0, .k = 3}, p));
  EXPECT_TRUE(attn::Causal::allows({.batch = 1, .q = 0, .k = 3}, p));
}

TEST(KeyPadding, NamesLengthsThatDoNotFit) {
  const Problem p{.batch = 2, .q_len = 3, .kv_len = 5};
  const std::vector<Index> one{5}, long_one{5, 6}, negative{-1, 5};
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::KeyPadding{one}.validate(p); }),
            "attn: KeyPadding: 1 lengths for a batch of 2");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::KeyPadding{long_one}.validate(p); }),
            "attn: KeyPadding: length 6 is not within [0, kv_len 5]");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::KeyPadding{negative}.validate(p); }),
            "attn: KeyPadding: length -1 is not within [0, kv_len 5]");
}

// Other libraries disagree on what true means; here the type says it.
TEST(KeepMaskAndDropMask, OfOppositeFlagsSeeTheSamePairs) {
  Flags keep(1, 4), drop(1, 4);
  keep << true, true, true, false;
  drop << false, false, false, true;
  const attn::KeepMask kept(keep);
  const attn::DropMask dropped(drop);
  for (attn::Position k = 0; k < 4; ++k) {
    EXPECT_EQ(kept.allows({.k = k}, {}), k < 3);
    EXPECT_EQ(dropped.allows({.k = k}, {}), k < 3);
  }
}

TEST(TensorMasks, RepeatAxesOfExtentOne) {
  Flags keys(1, 3);
  keys << true, false, true;
  const attn::KeepMask mask(keys);
  for (Index batch = 0; batch < 2; ++batch)
    for (attn::Position q = 0; q < 5; ++q)
      EXPECT_FALSE(mask.allows({.batch = batch, .head = 3, .q = q, .k = 1}, {}));
}

TEST(TensorMasks, OfRankThreeStartWithTheHeads) {
  const std::array<unsigned char, 2> per_head{1, 0};
  const attn::KeepMask mask(attn::TensorView<const unsigned char, 3>(per_head.data(), {2, 1, 1}));
  EXPECT_TRUE(mask.allows({.batch = 1, .head = 0, .q = 4, .k = 4}, {}));
  EXPECT_FALSE(mask.allows({.batch = 1, .head = 1, .q = 4, .k = 4}, {}));
}

TEST(TensorMasks, NameBothShapesWhenTheyDoNotFit) {
  const Problem p{.batch = 2, .num_heads = 4, .num_kv_heads = 4, .q_len = 3, .kv_len = 5};
  const Flags flags = Flags::Constant(3, 4, true);
  const Eigen::MatrixXf bias = Eigen::MatrixXf::Zero(2, 5);
  const std::string fits =
      " do not fit [batch, num_heads, q_len, kv_len] = [2, 4, 3, 5] (an extent may also be 1)";
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::KeepMask(flags).validate(p); }),
            "attn: KeepMask: extents [1, 1, 3, 4]" + fits);
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::DropMask(flags).validate(p); }),
            "attn: DropMask: extents [1, 1, 3, 4]" + fits);
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::AdditiveBias(bias).validate(p); }),
            "attn: AdditiveBias: extents [1, 1, 2, 5]" + fits);
}

TEST(AdditiveBias, AddsWhatItHoldsOfAnyNumberType) {
  const Eigen::Matrix<int, 1, 2> integers(1, -2);
  Eigen::Matrix<Eigen::half, 1, 2> halves;
  halves << Eigen::half(0.5F), Eigen::half(-1.5F);
  EXPECT_EQ(attn::AdditiveBias(integers).score(1.0, {.k = 1}, {}), -1.0);
  EXPECT_EQ(attn::AdditiveBias(halves).score(1.0F, {.k = 1}, {}), -0.5F);
}

TEST(QueryOffset, IsOneNumberOrOnePerBatchEntry) {
  std::vector<Index> vector{3, 4};
  const std::array<Index, 2> array{3, 4};
  const std::span<Index> span(vector);
  using Option = std::optional<attn::QueryOffset>;
  for (const Option& offset : {Option(vector), Option(array), Option(span)}) {
    EXPECT_TRUE(offset->is_per_batch());
    EXPECT_EQ((*offset)(1), 4);
  }
  const Option one = 7;
  EXPECT_FALSE(one->is_per_batch());
  EXPECT_EQ((*one)(1), 7);
}

TEST(QueryOffset, OfNoBatchEntryIsNotZero) {
  EXPECT_TRUE(attn::QueryOffset(std::span<const Index>()).is_per_batch());
  EXPECT_FALSE(attn::QueryOffset().is_per_batch());
}

TEST(QueryOffset, DoesNotBorrowFromATemporary) {
  EXPECT_FALSE((std::is_convertible_v<std::vector<Index>, std::optional<attn::QueryOffset>>));
  EXPECT_TRUE((std::is_convertible_v<std::vector<Index>&, std::optional<attn::QueryOffset>>));
}

}  // namespace
