#include "attn/masks/prefix.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/ops/sdpa.hpp"
#include "masks/consistency.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::PrefixLm;
using attn::Problem;
using attn_test::Draw;
using attn_test::error_text;

TEST(PrefixLm, IsConsistentAndItsHintsAreExact) {
  std::vector<Index> lengths;
  attn_test::expect_consistent(
      [&](Draw& draw, const Problem& p) {
        lengths.clear();
        for (Index b = 0; b < p.batch; ++b) lengths.push_back(draw.between(0, p.kv_len));
        return PrefixLm{lengths};
      },
      attn_test::Hints::are_exact);
}

TEST(PrefixLm, SeesThePrefixOfItsBatchEntryAndTheKeysUpToItself) {
  const std::vector<Index> lengths{3, 0};
  const PrefixLm mask{lengths};
  const Problem p{.batch = 2, .q_len = 5, .kv_len = 5};
  EXPECT_TRUE(mask.allows({.batch = 0, .q = 0, .k = 2}, p));
  EXPECT_FALSE(mask.allows({.batch = 0, .q = 0, .k = 3}, p));
  EXPECT_TRUE(mask.allows({.batch = 0, .q = 4, .k = 4}, p));
  EXPECT_FALSE(mask.allows({.batch = 1, .q = 0, .k = 1}, p));
}

TEST(PrefixLm, WithoutAPrefixIsCausalAndWithNothingElseSeesAll) {
  const auto x = attn_test::random_tensor<float, 3>({2, 90, 8}, 1);
  const std::vector<Index> none{0}, all{90};
  EXPECT_EQ(attn::sdpa(x, x, x, PrefixLm{none}), attn::sdpa(x, x, x, attn::Causal{}));
  EXPECT_EQ(attn::sdpa(x, x, x, PrefixLm{all}), attn::sdpa(x, x, x));
}

TEST(PrefixLm, NamesLengthsThatDoNotFit) {
  const std::vector<Index> one{5}, long_one{5, 6};
  const Problem p{.batch = 2, .q_len = 3, .kv_len = 5};
  EXPECT_EQ(error_text<attn::ShapeError>([&] { PrefixLm{one}.validate(p); }),
            "attn: PrefixLm: 1 prefix lengths for a batch of 2");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { PrefixLm{long_one}.validate(p); }),
            "attn: PrefixLm: prefix length 6 is not within [0, kv_len 5]");
}

}  // namespace
