#include "attn/masks/score_mod.hpp"

#include <gtest/gtest.h>

#include <type_traits>

#include "attn/masks/causal.hpp"
#include "attn/ops/sdpa.hpp"
#include "masks/consistency.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Filter;
using attn::Problem;
using attn::ScoreMod;
using attn::Site;
using attn_test::Draw;

const auto penalty = [](auto s, const Site& at) { return s - decltype(s)(at.q - at.k) / 4; };
const auto same_parity = [](const Site& at) { return (at.q - at.k) % 2 == 0; };

TEST(ScoreMod, IsConsistent) {
  attn_test::expect_consistent([](Draw&, const Problem&) { return ScoreMod{penalty}; });
}
TEST(Filter, IsConsistent) {
  attn_test::expect_consistent([](Draw&, const Problem&) { return Filter{same_parity}; });
}

TEST(ScoreMod, ComputesInTheTypeOfTheScores) {
  const ScoreMod mod{[](auto s, const Site&) {
    EXPECT_TRUE((std::is_same_v<decltype(s), double>));
    return s;
  }};
  EXPECT_EQ(mod.score(1.0 / 3, {}, {}), 1.0 / 3);
}

TEST(ScoreMod, MayReadTheProblem) {
  const ScoreMod mod{[](auto s, const Site& at, const Problem& p) {
    return s + static_cast<decltype(s)>(at.q + p.query_offset(at.batch));
  }};
  Problem p;
  p.offset = 40;
  EXPECT_EQ(mod.score(0.5, {.q = 2}, p), 42.5);
}

TEST(Filter, MayReadTheProblem) {
  const Filter last_key_only{[](const Site& at, const Problem& p) { return at.k == p.kv_len - 1; }};
  EXPECT_TRUE(last_key_only.allows({.k = 4}, {.kv_len = 5}));
  EXPECT_FALSE(last_key_only.allows({.k = 3}, {.kv_len = 5}));
}

TEST(ScoreMod, MayHaveItsDerivativeBesideIt) {
  const ScoreMod square{[](auto s, const Site&) { return s * s; }, [](auto s, const Site&) { return 2 * s; }};
  EXPECT_EQ(square.score(3.0, {}, {}), 9.0);
  EXPECT_EQ(square.score_derivative(3.0, {}, {}), 6.0);
}

template <class M>
concept Differentiable = requires(const M& m) {
  m.score_derivative(1.0F, Site{}, Problem{});
};

TEST(ScoreMod, HasNoDerivativeUnlessGiven) {
  const ScoreMod identity{[](auto s, const Site&) { return s; }, [](auto, const Site&) { return 1; }};
  EXPECT_TRUE(Differentiable<decltype(identity)>);
  EXPECT_FALSE(Differentiable<decltype(ScoreMod{penalty})>);
}

TEST(ScoreModAndFilter, AreMasksOfOneStageEach) {
  EXPECT_TRUE(attn::Mask<decltype(ScoreMod{penalty})>);
  EXPECT_FALSE(attn::FiltersPairs<decltype(ScoreMod{penalty})>);
  EXPECT_TRUE(attn::Mask<decltype(Filter{same_parity})>);
  EXPECT_FALSE(attn::ChangesScores<decltype(Filter{same_parity})>);
  EXPECT_FALSE(attn::Mask<Filter<int>>);
  EXPECT_FALSE(attn::Mask<ScoreMod<int>>);
}

TEST(Filter, OfTheCausalConditionIsCausal) {
  const auto x = attn_test::random_tensor<float, 3>({2, 150, 8}, 1);
  const Filter causal{[](const Site& at) { return at.k <= at.q; }};
  EXPECT_EQ(attn::sdpa(x, x, x, causal), attn::sdpa(x, x, x, attn::Causal{}));
}

}  // namespace
