#include "conformance/comparison.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace {

using attn::DType;
using attn_conformance::Case;
using attn_conformance::Comparison;
using attn_conformance::TensorView;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// What is said of results, if these are right.
std::string failures(const std::vector<double>& right, const std::vector<double>& got,
                     DType type = DType::float64, bool may_be_nan = false) {
  const auto size = static_cast<attn::Index>(right.size());
  Case c{"case", "kind", {}, attn::WeightMap(), {type}, may_be_nan};
  c.tensors.add("out.y", TensorView<const double, 1>(right, {size}));
  Comparison comparison(c, type);
  comparison.expect("y", TensorView<const double, 1>(got.data(), {static_cast<attn::Index>(got.size())}));
  return comparison.failures();
}

TEST(Comparison, AllowsTheBaseErrorTimesTheLargestValue) {
  EXPECT_EQ(failures({-100, 1}, {-100, 1 + 0.9e-10}), "");
  EXPECT_EQ(failures({-100, 1}, {-100, 1 + 1.1e-10}).substr(0, 26), "  float64: y: largest erro");
  EXPECT_EQ(failures({100, 1}, {100, 1 + 1.9e-4}, DType::float32), "");
  EXPECT_NE(failures({100, 1}, {100, 1 + 2.1e-4}, DType::float32), "");
  EXPECT_EQ(failures({1}, {1 + 1.9e-3}, DType::float16), "");
  EXPECT_NE(failures({1}, {1 + 2.1e-3}, DType::float16), "");
  EXPECT_EQ(failures({1}, {1 + 1.5e-2}, DType::bfloat16), "");
  EXPECT_NE(failures({1}, {1 + 1.7e-2}, DType::bfloat16), "");
}

TEST(Comparison, SaysWhereTheLargestErrorIs) {
  EXPECT_EQ(failures({1, 2, 3}, {1, 2.5, 3.25}),
            "  float64: y: largest error 0.5 at [1] (got 2.5, right is 2), allowed 3e-12\n");
  EXPECT_EQ(failures({1, 2}, {1, 2, 3}), "  float64: y: has shape [3], not [2]\n");
}

TEST(Comparison, ZerosInfinitiesAndNaNMustBeExact) {
  EXPECT_EQ(failures({0, 0}, {0, 0}), "");
  EXPECT_NE(failures({0, 0}, {0, 1e-300}), "");
  EXPECT_EQ(failures({-inf, 1}, {-inf, 1}), "");
  for (const double wrong : {-1e300, inf, nan}) EXPECT_NE(failures({-inf, 1}, {wrong, 1}), "") << wrong;
  for (const double wrong : {inf, -inf, nan}) EXPECT_NE(failures({2, 1}, {wrong, 1}), "") << wrong;
  EXPECT_NE(failures({nan, 1}, {nan, 1}), "") << "nothing is promised to be NaN";
}

TEST(Comparison, WhereTheAnswerMayBeNaNAnyFiniteResultStands) {
  EXPECT_EQ(failures({nan, 1}, {7, 1}, DType::float64, true), "");
  EXPECT_NE(failures({nan, 1}, {nan, 1}, DType::float64, true), "");
  EXPECT_NE(failures({nan, 1}, {7, 2}, DType::float64, true), "") << "the other elements are compared";
}

TEST(Comparison, FactorsWidenWhatIsAllowed) {
  const std::vector<double> right{1}, got{1 + 1.4e-11};
  Case c{"case", "kind", {}, attn::WeightMap(), {DType::float64}};
  c.tensors.add("out.y", TensorView<const double, 1>(right, {1}));
  const auto passes = [&](double score, bool deep) {
    Comparison comparison(c, DType::float64);
    comparison.note_largest_score(score);
    if (deep) comparison.note_deep_stack();
    comparison.expect("y", TensorView<const double, 1>(got, {1}));
    return comparison.failures().empty();
  };
  EXPECT_FALSE(passes(130, false));
  EXPECT_TRUE(passes(150, false));
  EXPECT_FALSE(passes(5, true)) << "small scores narrow nothing and widen nothing";
  EXPECT_TRUE(passes(30, true));
}

TEST(Comparison, KnowsWhatWasNotCompared) {
  const std::vector<double> values{1};
  Case c{"case", "kind", {}, attn::WeightMap(), {DType::float64}};
  for (const char* name : {"in.x", "out.a", "out.b"})
    c.tensors.add(name, TensorView<const double, 1>(values, {1}));
  Comparison comparison(c, DType::float64);
  EXPECT_FALSE(comparison.compared_anything());
  comparison.expect("a", TensorView<const double, 1>(values, {1}));
  EXPECT_TRUE(comparison.compared_anything());
  EXPECT_EQ(comparison.ignored(), (std::vector<std::string>{"b"}));
}

}  // namespace
