// Faults that users of other libraries have reported about rotary position embeddings, one test per report.
// Expected numbers (six digits) come from a float64 evaluation of the formula outside this project.
#include <gtest/gtest.h>

#include <cmath>

#include "attn/masks/causal.hpp"
#include "attn/ops/rope.hpp"
#include "support/attention.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::RopePairing;
using attn_test::distance;
using attn_test::random_tensor;
using attn_test::same_bits;
using Numbers = attn::Matrix<double>;

constexpr double printed = 1e-6;

template <class T>
class RopeFault : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(RopeFault, Scalars);

TYPED_TEST(RopeFault, B36_EarlierCallsDoNotChangeWhatAPositionMeans) {
  const attn::RotaryEmbedding rope({.pairing = RopePairing::half, .head_dim = 16});
  const auto x = random_tensor<TypeParam, 3>({2, 4, 16}, 1);
  const auto at = [&](Index position) {
    auto y = x;
    rope.apply(y, position);
    return y;
  };
  const auto first = at(3), zero = at(0), again = at(3);
  EXPECT_TRUE(same_bits(first, again));
  EXPECT_GT(distance(first, zero), 0.1);
}

TYPED_TEST(RopeFault, B36_PrefillAndDecodeStandAtThePositionsOfOnePass) {
  const attn::RotaryEmbedding rope({.pairing = RopePairing::half, .head_dim = 16});
  const auto q = random_tensor<TypeParam, 3>({2, 7, 16}, 1), k = random_tensor<TypeParam, 3>({2, 7, 16}, 2),
             v = random_tensor<TypeParam, 3>({2, 7, 16}, 3);
  auto queries = q, keys = k, cached = k;
  rope.apply(queries, 0);
  rope.apply(keys, 0);
  const auto at_once = attn::sdpa(queries, keys, v, attn::Causal{});
  for (const attn::Range rows : {attn::Range{0, 5}, {5, 6}, {6, 7}}) {
    auto some = q;
    const auto query = some.view().slice(1, rows);
    rope.apply(query, rows.begin);
    rope.apply(cached.view().slice(1, rows), rows.begin);
    const attn::Range seen{0, rows.end};
    const auto out = attn::sdpa(query, cached.view().slice(1, seen), v.view().slice(1, seen), attn::Causal{},
                                {.query_offset = rows.begin});
    EXPECT_LT(distance(out, at_once.view().slice(1, rows)), 1e-6) << rows.begin;
  }
}

TYPED_TEST(RopeFault, B38_InterleavedAndHalfPairingAreTwoThingsAndBothAreNamed) {
  const Numbers x{{1, 2, 3, 4}};
  const auto rotated = [&](RopePairing pairing, Index rotary_dim, Index position) {
    attn::Matrix<TypeParam> y = x.cast<TypeParam>();
    attn::RotaryEmbedding({.pairing = pairing, .head_dim = 4, .rotary_dim = rotary_dim}).apply(y, position);
    return y;
  };
  const Numbers interleaved{{-1.272233, -1.838865, 2.878668, 4.088187}},
      half{{-1.413353, 1.879118, -2.828857, 4.058191}}, first_two{{-1.272233, -1.838865, 3, 4}};
  EXPECT_LT(distance(rotated(RopePairing::interleaved, 4, 3), interleaved), printed);
  EXPECT_LT(distance(rotated(RopePairing::half, 4, 3), half), printed);
  EXPECT_LT(distance(rotated(RopePairing::half, 2, 3), first_two), printed);
  EXPECT_EQ(distance(rotated(RopePairing::interleaved, 4, 0), x), 0);
  EXPECT_EQ(distance(rotated(RopePairing::half, 4, 0), x), 0);
}

TYPED_TEST(RopeFault, B38_ProductsDependOnDistanceAlone) {
  const attn::Matrix<TypeParam> x{{1, 2, 3, 4}}, y{{4, -3, 2, -1}};
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::half}) {
    const attn::RotaryEmbedding rope({.pairing = pairing, .head_dim = 4});
    const auto product = [&](Index at_x, Index at_y) {
      attn::Matrix<TypeParam> a = x, b = y;
      rope.apply(a, at_x);
      rope.apply(b, at_y);
      return static_cast<double>(a.row(0).dot(b.row(0)));
    };
    EXPECT_NEAR(product(5, 2), product(103, 100), 1e-5);
  }
}

template <class T>
class RopeAngleFault : public testing::Test {};
using Elements = testing::Types<float, double, Eigen::half, Eigen::bfloat16>;
TYPED_TEST_SUITE(RopeAngleFault, Elements);

TYPED_TEST(RopeAngleFault, B39_AnglesAreInDoubleWhateverTheElements) {
  const attn::RotaryEmbedding rope({.pairing = RopePairing::interleaved, .head_dim = 32});
  attn::Matrix<TypeParam> x = attn::Matrix<TypeParam>::Zero(1, 32);
  x(0, 2) = TypeParam(1);
  rope.apply(x, 1857);
  const double rounding = std::is_same_v<TypeParam, Eigen::bfloat16> ? 0x1p-10
                          : std::is_same_v<TypeParam, Eigen::half>   ? 0x1p-13
                                                                     : printed;
  EXPECT_NEAR(static_cast<double>(x(0, 2)), 0.306693, rounding);
  EXPECT_NEAR(static_cast<double>(x(0, 3)), std::sin(1857 * std::pow(10000.0, -1.0 / 16)), 4 * rounding);
}

}  // namespace
