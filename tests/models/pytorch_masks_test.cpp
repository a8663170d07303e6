// tests/models/pytorch_masks_test.cpp - the polarity and layout of PyTorch's mask arguments.
#include "attn/models/pytorch_masks.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "attn/ops/sdpa.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using Bools = Eigen::Matrix<bool, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct PyTorchMasks : testing::Test {
  attn::Tensor<double, 4> q = attn_test::random_tensor<double, 4>({2, 3, 4, 5}, 1);
  attn::Tensor<double, 4> k = attn_test::random_tensor<double, 4>({2, 3, 6, 5}, 2);
  attn::Tensor<double, 4> v = attn_test::random_tensor<double, 4>({2, 3, 6, 5}, 3);
  template <class M>
  attn::Tensor<double, 4> weights(const M& mask) const {
    return attn::sdpa_with_weights(q, k, v, mask).weights;
  }
};

TEST_F(PyTorchMasks, TrueMeansAttendForSdpaAndDoNotAttendForModules) {
  Bools mask = Bools::Constant(4, 6, false);
  mask(1, 2) = mask(1, 4) = true;
  const auto keep = weights(attn::pytorch_sdpa_mask(mask)), drop = weights(attn::pytorch_attn_mask(mask, 3));
  for (Index j = 0; j < 6; ++j) {
    EXPECT_EQ(keep(1, 2, 1, j) > 0, mask(1, j));
    EXPECT_EQ(drop(1, 2, 1, j) > 0, !mask(1, j));
  }
}

TEST_F(PyTorchMasks, RankThreeHoldsTheHeadsOfABatchEntrySideBySide) {
  const Index batch = 1, head = 2;
  std::unique_ptr<bool[]> values(new bool[6 * 4 * 6]());
  const attn::TensorView<bool, 3> mask(values.get(), {6, 4, 6});
  mask(batch * 3 + head, 0, 5) = true;
  const auto seen = weights(attn::pytorch_attn_mask(mask, 3));
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 3; ++h) EXPECT_EQ(seen(b, h, 0, 5) == 0, b == batch && h == head);
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([&] { attn::pytorch_attn_mask(mask, 4); }),
            "attn: pytorch_attn_mask: the first extent of [6, 4, 6] is no multiple of num_heads 4");
}

TEST_F(PyTorchMasks, KeyPaddingHidesKeysFromEveryQueryAndHeadOfItsSequence) {
  Bools mask = Bools::Constant(2, 6, false);
  mask(1, 4) = mask(1, 5) = true;
  const auto seen = weights(attn::pytorch_key_padding_mask(mask));
  for (Index h = 0; h < 3; ++h)
    for (Index i = 0; i < 4; ++i)
      for (Index j = 0; j < 6; ++j) {
        EXPECT_GT(seen(0, h, i, j), 0);
        EXPECT_EQ(seen(1, h, i, j) == 0, j >= 4);
      }
}

TEST_F(PyTorchMasks, NumbersAreAddedToTheScores) {
  const auto pairs = attn_test::random_tensor<double, 2>({4, 6}, 4),
             keys = attn_test::random_tensor<double, 2>({2, 6}, 5);
  attn::Tensor<double, 4> sum({2, 3, 4, 6});
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 3; ++h)
      for (Index i = 0; i < 4; ++i)
        for (Index j = 0; j < 6; ++j) sum(b, h, i, j) = pairs(i, j) + keys(b, j);
  const auto apart = weights(attn::pytorch_attn_mask(pairs, 3) & attn::pytorch_key_padding_mask(keys));
  EXPECT_LT(attn_test::largest_difference(apart, weights(attn::pytorch_sdpa_mask(sum))), 1e-14);
}

}  // namespace
