// tests/ops/heads_test.cpp - heads are views: nothing is copied, and the way back gives the same memory.
#include "attn/ops/heads.hpp"

#include <gtest/gtest.h>

#include "attn/core/tensor.hpp"
#include "support/attention.hpp"
#include "support/error_text.hpp"

namespace {

using attn::Index;
using attn_test::error_text;
using attn_test::fill;

TEST(SplitHeads, PutsColumnsOfHeadHAtHTimesDim) {
  Eigen::MatrixXf column_major = Eigen::MatrixXf::Random(5, 12);
  const attn::Matrix<float> row_major = column_major;
  const auto check = [](const auto& x) {
    const auto heads = attn::split_heads(x, 3);
    EXPECT_EQ(heads.extents(), (attn::Dims<3>{3, 5, 4}));
    for (Index h = 0; h < 3; ++h)
      for (Index i = 0; i < 5; ++i)
        for (Index c = 0; c < 4; ++c) EXPECT_EQ(&heads(h, i, c), &x(i, 4 * h + c));
  };
  check(column_major);
  check(row_major);
}

TEST(SplitHeads, KeepsTheBatchInFront) {
  auto x = fill<float, 3>({2, 5, 12}, 5, 1);
  const auto heads = attn::split_heads(x, 3);
  EXPECT_EQ(heads.extents(), (attn::Dims<4>{2, 3, 5, 4}));
  heads(1, 2, 4, 3) = 99;
  EXPECT_EQ(x(1, 4, 11), 99);
}

TEST(ConcatHeads, UndoesSplitHeads) {
  auto x = fill<float, 3>({2, 5, 12}, 5, 1);
  for (const Index heads : {1, 2, 3, 12}) {
    const auto back = attn::concat_heads(attn::split_heads(x, heads));
    EXPECT_EQ(back.data(), x.data());
    EXPECT_EQ(back.extents(), x.extents());
    EXPECT_EQ(back.strides(), x.view().strides());
    const auto matrix = attn::concat_heads(attn::split_heads(x.view()[1], heads));
    EXPECT_EQ(matrix.data(), x.view()[1].data());
    EXPECT_EQ(matrix.strides(), x.view()[1].strides());
  }
}

TEST(SplitHeads, OfEmptyInputsAreEmpty) {
  const attn::Tensor<float, 3> none({0, 5, 12}), no_columns({2, 5, 0});
  EXPECT_EQ(attn::split_heads(none, 4).extents(), (attn::Dims<4>{0, 4, 5, 3}));
  EXPECT_EQ(attn::split_heads(no_columns, 4).extents(), (attn::Dims<4>{2, 4, 5, 0}));
}

TEST(SplitHeads, NamesHeadCountsThatDoNotDivide) {
  attn::Tensor<float, 2> x({5, 12});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)attn::split_heads(x, 5); }),
            "attn: split_heads: the last extent of [5, 12] does not divide into num_heads 5");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)attn::split_heads(x, 0); }),
            "attn: split_heads: the last extent of [5, 12] does not divide into num_heads 0");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)attn::split_heads(x, -3); }),
            "attn: split_heads: the last extent of [5, 12] does not divide into num_heads -3");
}

TEST(ConcatHeads, RefusesHeadsThatAreNotAdjacentWithinAToken) {
  attn::Tensor<float, 3> separate({3, 5, 4});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)attn::concat_heads(separate); }),
            "attn: concat_heads: the heads of [3, 5, 4] are not adjacent within a token: strides [20, 4, 1]");
}

}  // namespace
