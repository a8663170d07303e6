// tests/modules/parameter_test.cpp - versions of parameters tell stale copies from fresh ones.
#include "attn/modules/parameter.hpp"

#include <gtest/gtest.h>

#include "support/error_text.hpp"

namespace {

using Weight = attn::Parameter<float, 2>;

TEST(Parameter, EveryWriteTakesAVersionThatNoOtherParameterHas) {
  Weight a("weight", {2, 3}), b("weight", {2, 3});
  EXPECT_NE(a.version(), b.version());
  const auto before = a.version();
  a.edit([](attn::TensorView<float, 2> w) { w(1, 2) = 5; });
  EXPECT_NE(a.version(), before);
  EXPECT_NE(a.version(), b.version());
  EXPECT_EQ(a.view()(1, 2), 5);
  const auto edited = a.version();
  a.assign(Eigen::MatrixXd::Ones(2, 3).eval());
  EXPECT_NE(a.version(), edited);
  EXPECT_EQ(a.view()(0, 0), 1);
}

TEST(Parameter, EqualVersionsMeanEqualValuesAlsoAfterCopies) {
  Weight a("weight", {1, 1});
  Weight b = a;
  EXPECT_EQ(b.version(), a.version());
  a.edit([](attn::TensorView<float, 2> w) { w(0, 0) = 1; });
  b.edit([](attn::TensorView<float, 2> w) { w(0, 0) = 2; });
  EXPECT_NE(a.version(), b.version());
  a = b;
  EXPECT_EQ(a.version(), b.version());
  EXPECT_EQ(a.view()(0, 0), 2);
}

TEST(Parameter, IsAbsentByDefaultAndAfterAMove) {
  Weight a("weight", {2, 2});
  EXPECT_FALSE(Weight());
  const Weight b = std::move(a);
  EXPECT_TRUE(b);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): the state is documented
  EXPECT_EQ(a.size(), 0);
}

TEST(Parameter, OfRankOneTakesEigenVectors) {
  attn::Parameter<double, 1> bias("bias", {3});
  bias.assign(Eigen::Vector3f(1, 2, 3));
  EXPECT_EQ(bias.view()(2), 3);
  bias.assign(Eigen::RowVector3d(4, 5, 6));
  EXPECT_EQ(bias.view()(2), 6);
}

TEST(Parameter, NamesBothShapesWhenTheyDiffer) {
  Weight a("weight", {2, 3});
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([&] { a.assign(Eigen::MatrixXf::Zero(3, 2).eval()); }),
            "attn: Parameter weight: extents [2, 3] cannot take [3, 2]");
  attn::Parameter<float, 1> bias("bias", {4});
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([&] { bias.assign(Eigen::MatrixXf::Zero(2, 2).eval()); }),
            "attn: Parameter bias: extents [4] cannot take [2, 2]");
}

}  // namespace
