// tests/modules/fused_qkv_test.cpp - rows of fused projections go to the heads that the layout says.
#include "attn/modules/fused_qkv.hpp"

#include <gtest/gtest.h>

#include "support/error_text.hpp"

namespace {

using attn::Index;
using attn::QkvLayout;
using attn_test::error_text;

/// Row r of a fused weight is filled with r.
attn::Matrix<float> numbered_rows(Index rows, Index columns) {
  attn::Matrix<float> x(rows, columns);
  for (Index r = 0; r < rows; ++r) x.row(r).setConstant(static_cast<float>(r));
  return x;
}
float first_row(const attn::Linear<float>& projection, Index head, Index dim) {
  return projection.weight().view()(head * dim, 0);
}

TEST(FusedQkv, OfTwoHeadsStartsHeadOneWhereTheLayoutPutsIt) {
  attn::MultiHeadAttention<float> module({.embed_dim = 8, .num_heads = 2, .head_dim = 4});
  const attn::Matrix<float> fused = numbered_rows(24, 8);
  attn::assign_fused_qkv(module, fused, QkvLayout::blocks);
  EXPECT_EQ(first_row(module.q_proj(), 1, 4), 4);
  EXPECT_EQ(first_row(module.k_proj(), 1, 4), 12);
  EXPECT_EQ(first_row(module.v_proj(), 1, 4), 20);
  attn::assign_fused_qkv(module, fused, QkvLayout::per_head);
  EXPECT_EQ(first_row(module.q_proj(), 1, 4), 12);
  EXPECT_EQ(first_row(module.k_proj(), 1, 4), 16);
  EXPECT_EQ(first_row(module.v_proj(), 1, 4), 20);
}

TEST(FusedQkv, OfGroupedHeadsStartsEachGroupWithItsQueries) {
  attn::MultiHeadAttention<float> module(
      {.embed_dim = 16, .num_heads = 4, .num_kv_heads = 2, .value_dim = 3});
  const attn::Matrix<float> fused = numbered_rows(16 + 8 + 6, 16);
  attn::assign_fused_qkv(module, fused, QkvLayout::blocks);
  EXPECT_EQ(first_row(module.q_proj(), 2, 4), 8);
  attn::assign_fused_qkv(module, fused, QkvLayout::per_group);
  EXPECT_EQ(first_row(module.q_proj(), 1, 4), 4);
  EXPECT_EQ(first_row(module.q_proj(), 2, 4), 15);
  EXPECT_EQ(first_row(module.k_proj(), 1, 4), 23);
  EXPECT_EQ(first_row(module.v_proj(), 1, 3), 27);
}

TEST(FusedQkv, TakesBiasesAndTransposedWeights) {
  attn::MultiHeadAttention<float> module({.embed_dim = 8, .num_heads = 2});
  const attn::Matrix<float> stored = numbered_rows(24, 8).transpose();
  attn::assign_fused_qkv(module, attn::TensorView<const float, 2>(stored.data(), {24, 8}, {1, 24}),
                         QkvLayout::blocks);
  EXPECT_EQ(first_row(module.v_proj(), 0, 4), 16);
  attn::Tensor<float, 1> bias({24});
  for (Index i = 0; i < 24; ++i) bias(i) = static_cast<float>(i);
  attn::assign_fused_qkv(module, bias, QkvLayout::per_head);
  EXPECT_EQ(module.k_proj().bias().view()(4), 16);
}

TEST(FusedQkv, NamesWhatDoesNotFit) {
  attn::MultiHeadAttention<float> module(
      {.embed_dim = 8, .num_heads = 2, .num_kv_heads = 1, .v_bias = false});
  EXPECT_EQ(error_text<attn::ShapeError>(
                [&] { attn::assign_fused_qkv(module, numbered_rows(24, 8), QkvLayout::blocks); }),
            "attn: assign_fused_qkv: [24, 8] does not have 8 + 4 + 4 rows for queries, keys and values");
  EXPECT_EQ(error_text<attn::ShapeError>(
                [&] { attn::assign_fused_qkv(module, numbered_rows(16, 8), QkvLayout::per_head); }),
            "attn: assign_fused_qkv: the layout per_head needs as many key-value heads as query heads, not 1 "
            "and 2");
  EXPECT_EQ(error_text<attn::ShapeError>(
                [&] { attn::assign_fused_qkv(module, numbered_rows(16, 7), QkvLayout::blocks); }),
            "attn: assign_fused_qkv: weight [16, 7] does not fit inputs of 8, 8 and 8");
  EXPECT_EQ(error_text<attn::ShapeError>(
                [&] { attn::assign_fused_qkv(module, attn::Tensor<float, 1>({16}), QkvLayout::blocks); }),
            "attn: assign_fused_qkv: bias [16] is for q, k and v, but the module has q_bias 1, k_bias 1 and "
            "v_bias 0");
}

}  // namespace
