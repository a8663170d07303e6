#include "attn/core/tensor_traits.hpp"

#include <gtest/gtest.h>

#include <concepts>
#include <vector>

#include "attn/core/tensor.hpp"

namespace mine {

/// A container of a user: columns of a table, each contiguous.
struct Table {
  std::vector<float> values;
  attn::Index rows, columns;
};

}  // namespace mine

template <>
struct attn::TensorTraits<mine::Table> {
  static auto view(mine::Table& t) {
    return attn::TensorView<float, 2>(t.values.data(), {t.rows, t.columns}, {1, t.rows});
  }
  static auto view(const mine::Table& t) {
    return attn::TensorView<const float, 2>(t.values.data(), {t.rows, t.columns}, {1, t.rows});
  }
};

namespace {

using attn::as_view;
using attn::Index;
using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Strided = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;

/// Every element of the view is the element of the Eigen object, in the same memory.
template <class X>
void expect_sees(X& x) {
  const auto view = as_view(x);
  ASSERT_EQ(view.extents(), (attn::Dims<2>{x.rows(), x.cols()}));
  for (Index i = 0; i < x.rows(); ++i)
    for (Index j = 0; j < x.cols(); ++j) EXPECT_EQ(&view(i, j), &x.coeffRef(i, j)) << i << ", " << j;
}

TEST(TensorTraits, SeesMatricesOfEitherStorageOrder) {
  RowMatrix row_major(3, 4);
  Eigen::MatrixXd column_major(3, 4);
  Eigen::Matrix<float, 2, 5> fixed;
  expect_sees(row_major);
  expect_sees(column_major);
  expect_sees(fixed);
}

TEST(TensorTraits, SeesArraysAndVectors) {
  Eigen::ArrayXXf array(3, 4);
  Eigen::VectorXf column(5);
  Eigen::RowVectorXf row(5);
  expect_sees(array);
  expect_sees(column);
  expect_sees(row);
}

TEST(TensorTraits, SeesMatricesOfHalfAndOfBytes) {
  Eigen::Matrix<Eigen::half, Eigen::Dynamic, Eigen::Dynamic> half(3, 4);
  Eigen::Matrix<Eigen::bfloat16, Eigen::Dynamic, Eigen::Dynamic> bfloat16(3, 4);
  Eigen::Matrix<bool, Eigen::Dynamic, Eigen::Dynamic> keep(3, 4);
  expect_sees(half);
  expect_sees(bfloat16);
  expect_sees(keep);
}

TEST(TensorTraits, SeesMapsWithInnerAndOuterStrides) {
  std::vector<float> memory(100);
  Eigen::Map<Eigen::MatrixXf, 0, Strided> columns(memory.data(), 3, 4, Strided(12, 2));
  Eigen::Map<RowMatrix, 0, Strided> rows(memory.data(), 3, 4, Strided(20, 3));
  Eigen::Map<RowMatrix> plain(memory.data(), 3, 4);
  expect_sees(columns);
  expect_sees(rows);
  expect_sees(plain);
}

TEST(TensorTraits, SeesBlocksRefsAndTransposes) {
  Eigen::MatrixXf matrix(6, 7);
  auto block = matrix.block(1, 2, 3, 4);
  auto row = matrix.row(2);
  auto transposed = matrix.transpose();
  Eigen::Ref<Eigen::MatrixXf> reference(matrix);
  expect_sees(block);
  expect_sees(row);
  expect_sees(transposed);
  expect_sees(reference);
}

TEST(TensorTraits, GivesReadOnlyViewsOfConstObjects) {
  const Eigen::MatrixXf matrix = Eigen::MatrixXf::Random(3, 4);
  const float* const memory = matrix.data();
  const Eigen::Map<const Eigen::MatrixXf> map(memory, 3, 4);
  EXPECT_TRUE((std::same_as<decltype(as_view(matrix)), attn::TensorView<const float, 2>>));
  EXPECT_TRUE((std::same_as<decltype(as_view(map)), attn::TensorView<const float, 2>>));
  EXPECT_EQ(as_view(map)(2, 3), matrix(2, 3));
}

TEST(TensorTraits, SeesAMapOfConstAsReadOnlyEvenIfTheMapItselfIsNot) {
  const std::vector<float> memory(12, 1.0F);
  Eigen::Map<const Eigen::MatrixXf> map(memory.data(), 3, 4);
  EXPECT_FALSE((attn::WritableTensor<Eigen::Map<const Eigen::MatrixXf>>));
  EXPECT_EQ(as_view(map)(2, 3), 1.0F);
}

TEST(TensorTraits, DoesNotSeeExpressions) {
  Eigen::MatrixXf a(3, 3), b(3, 3);
  EXPECT_FALSE((attn::TensorLike<decltype(a + b)>));
  EXPECT_FALSE((attn::TensorLike<decltype(a * b)>));
  EXPECT_FALSE((attn::TensorLike<decltype(2.0F * a)>));
}

TEST(TensorTraits, SeesAUsersOwnContainer) {
  mine::Table table{{0, 1, 2, 3, 4, 5}, 3, 2};
  EXPECT_EQ(as_view(table)(2, 1), 5.0F);
  as_view(table)(0, 1) = 42;
  EXPECT_EQ(table.values[3], 42.0F);
}

TEST(WithRank, AddsLeadingAxesOfExtentOne) {
  std::vector<float> memory(12);
  const attn::TensorView<float, 2> matrix(memory.data(), {3, 4}, {1, 3});
  const auto bhld = attn::with_rank<4>(matrix);
  EXPECT_EQ(bhld.extents(), (attn::Dims<4>{1, 1, 3, 4}));
  EXPECT_EQ(&bhld(0, 0, 2, 1), &matrix(2, 1));
}

}  // namespace
