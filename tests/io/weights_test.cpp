#include "attn/io/weights.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/error_text.hpp"

namespace {

using attn::FormatError;
using attn::Tensor;
using attn::TensorView;
using attn::WeightMap;
using attn_test::error_text;

TEST(WeightMap, TakesWhateverTheCallerHas) {
  Eigen::MatrixXf column_major(2, 3);
  column_major << 1, 2, 3, 4, 5, 6;
  const attn::Matrix<double> row_major = column_major.cast<double>();
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  WeightMap weights;
  weights.add("eigen", column_major).add("rows", row_major).add("block", row_major.block(0, 1, 2, 2));
  weights.add("vector", TensorView<const float, 2>(values, {2, 3}));
  for (const char* name : {"eigen", "rows", "vector"}) {
    const auto w = weights.get<float, 2>(name, {2, 3});
    for (int i = 0; i < 6; ++i) EXPECT_EQ(w.data()[i], values[static_cast<std::size_t>(i)]) << name;
  }
  EXPECT_EQ((weights.get<float, 2>("block")(1, 0)), 5);
}

TEST(WeightMap, BorrowsAndDoesNotCopy) {
  Eigen::MatrixXf matrix = Eigen::MatrixXf::Zero(2, 2);
  const WeightMap weights = WeightMap().add("w", matrix);
  matrix(1, 0) = 7;
  EXPECT_EQ((weights.view<float, 2>("w")(1, 0)), 7);
  EXPECT_EQ((weights.view<float, 2>("w").data()), matrix.data());
}

TEST(WeightMap, ConvertsBetweenFloatingTypes) {
  const std::vector<double> doubles{1.0 / 3, -2, 70000, std::numeric_limits<double>::quiet_NaN()};
  const WeightMap weights = WeightMap().add("w", TensorView<const double, 1>(doubles, {4}));
  const auto f = weights.get<float, 1>("w");
  const auto h = weights.get<Eigen::half, 1>("w");
  const auto b = weights.get<Eigen::bfloat16, 1>("w");
  EXPECT_EQ(f(0), 1.0f / 3);
  EXPECT_EQ(h(1), Eigen::half(-2));
  EXPECT_EQ(b(1), Eigen::bfloat16(-2));
  EXPECT_TRUE(std::isinf(static_cast<float>(h(2)))) << "as every conversion to half";
  EXPECT_TRUE(std::isnan(f(3)));
}

TEST(WeightMap, IntegersAreCopiedOnlyWhereTheyFit) {
  const std::vector<std::int64_t> wide{1, 300, -1};
  const WeightMap weights = WeightMap("ids.npz").add("w", TensorView<const std::int64_t, 1>(wide, {3}));
  std::vector<std::int32_t> int32(3);
  weights.copy_to("w", TensorView<std::int32_t, 1>(int32.data(), {3}));
  EXPECT_EQ(int32, (std::vector<std::int32_t>{1, 300, -1}));
  std::vector<std::uint16_t> uint16(3);
  EXPECT_EQ(
      (error_text<FormatError>([&] { weights.copy_to("w", TensorView<std::uint16_t, 1>(uint16, {3})); })),
      "attn: ids.npz: weight 'w' holds a value that does not fit uint16");
  EXPECT_EQ((error_text<FormatError>([&] { weights.get<float, 1>("w"); })),
            "attn: ids.npz: weight 'w' has type int64, which does not convert to float32");
}

TEST(WeightMap, ErrorsNameTheWeightAndBothSides) {
  const Tensor<float, 2> w({2, 3});
  const WeightMap weights = WeightMap("model.safetensors").add("a.w", w);
  const std::string start = "attn: model.safetensors: weight 'a.w' ";
  EXPECT_EQ((error_text<FormatError>([&] { weights.at("b"); })),
            "attn: model.safetensors: weight 'b' is missing");
  EXPECT_EQ((error_text<FormatError>([&] {
              weights.get<float, 2>("a.w", {3, 2});
            })),
            start + "has shape [2, 3], not [3, 2]");
  EXPECT_EQ((error_text<FormatError>([&] { weights.get<float, 1>("a.w"); })),
            start + "has shape [2, 3], not one of rank 1");
  EXPECT_EQ((error_text<FormatError>([&] { weights.view<double, 2>("a.w"); })),
            start + "has type float32, not float64");
  std::vector<int> ints(6);
  EXPECT_EQ((error_text<FormatError>([&] {
              weights.copy_to("a.w", TensorView<int, 2>(ints, {2, 3}));
            })),
            start + "has type float32, which does not convert to int32");
  EXPECT_EQ((error_text<FormatError>([&] { weights.under("a.").at("v"); })),
            "attn: model.safetensors under 'a.': weight 'v' is missing");
  EXPECT_EQ((error_text<FormatError>([&] { weights.under("a.").get<float, 1>("w"); })),
            start + "has shape [2, 3], not one of rank 1")
      << "the full name, as the file has it";
}

TEST(WeightMap, ANameIsThereOnce) {
  const Tensor<float, 1> w({2});
  EXPECT_EQ((error_text<FormatError>([&] { WeightMap("m").add("w", w).add("w", w); })),
            "attn: m: weight 'w' is there twice");
  const WeightMap other = WeightMap("n").add("w", w);
  EXPECT_EQ((error_text<FormatError>([&] { WeightMap("m").add("w", w).merge(other); })),
            "attn: m: weight 'w' is there twice");
  EXPECT_EQ(WeightMap("m").add("v", w).merge(other).names(), (std::vector<std::string>{"v", "w"}));
}

TEST(WeightMap, UnderTakesExactlyThePrefix) {
  const Tensor<float, 1> w({2});
  WeightMap weights;
  for (const char* name : {"l.1", "l.10.x", "l.1.x", "l.1.y", "l.2.x"}) weights.add(name, w);
  EXPECT_EQ(weights.under("l.1.").names(), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(weights.under("none.").size(), 0);
  EXPECT_EQ(weights.under("").names(), weights.names());
}

TEST(WeightMap, AnExtentOfZeroCopiesNothingHoweverLargeTheOthers) {
  const TensorView<const float, 2> huge(nullptr, {attn::Index{1} << 60, 0});
  const WeightMap weights = WeightMap().add("w", huge);
  EXPECT_EQ((weights.get<double, 2>("w").size()), 0);
}

}  // namespace
