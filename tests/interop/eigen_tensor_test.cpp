// Built where Eigen has its Tensor module: packages of Eigen without `unsupported` exist.
#include "attn/interop/eigen_tensor.hpp"

#include <gtest/gtest.h>

#if __has_include(<unsupported/Eigen/CXX11/Tensor>)
#include <concepts>
#include <unsupported/Eigen/CXX11/Tensor>
#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/ops/sdpa.hpp"
#include "support/random_values.hpp"

namespace {

using attn::as_view;
using attn::Index;
using ColumnMajor = Eigen::Tensor<float, 3>;
using RowMajor = Eigen::Tensor<float, 3, Eigen::RowMajor>;

/// Every element of the view is the element of the tensor of rank 3, in the same memory.
template <class X>
void expect_sees(X& x) {
  using Number = typename X::Index;
  const auto view = as_view(x);
  ASSERT_EQ(view.extents(), (attn::Dims<3>{x.dimension(0), x.dimension(1), x.dimension(2)}));
  for (Index i = 0; i < view.extent(0); ++i)
    for (Index j = 0; j < view.extent(1); ++j)
      for (Index k = 0; k < view.extent(2); ++k)
        EXPECT_EQ(&view(i, j, k), &x(static_cast<Number>(i), static_cast<Number>(j), static_cast<Number>(k)));
}

TEST(EigenTensor, IsSeenInEitherLayout) {
  ColumnMajor columns(2, 3, 4);
  RowMajor rows(2, 3, 4);
  Eigen::TensorFixedSize<double, Eigen::Sizes<2, 3, 4>> fixed;
  Eigen::Tensor<Eigen::half, 3, Eigen::RowMajor, int> half(2, 3, 4);
  expect_sees(columns);
  expect_sees(rows);
  expect_sees(fixed);
  expect_sees(half);
}

TEST(EigenTensor, IsSeenThroughAMap) {
  std::vector<float> memory(24);
  Eigen::TensorMap<ColumnMajor> columns(memory.data(), 2, 3, 4);
  Eigen::TensorMap<RowMajor> rows(memory.data(), 2, 3, 4);
  expect_sees(columns);
  expect_sees(rows);
}

TEST(EigenTensor, IsReadOnlyIfConst) {
  const RowMajor rows(2, 3, 4);
  Eigen::TensorMap<const RowMajor> map(rows.data(), 2, 3, 4);
  EXPECT_TRUE((std::same_as<decltype(as_view(rows)), attn::TensorView<const float, 3>>));
  EXPECT_TRUE((std::same_as<decltype(as_view(map)), attn::TensorView<const float, 3>>));
  EXPECT_TRUE(attn::WritableTensor<RowMajor>);
  EXPECT_FALSE(attn::WritableTensor<Eigen::TensorMap<const RowMajor>>);
}

TEST(EigenTensor, ExpressionsAreNotSeen) {
  RowMajor a(2, 3, 4), b(2, 3, 4);
  EXPECT_FALSE((attn::TensorLike<decltype(a + b)>));
  EXPECT_FALSE((attn::TensorLike<Eigen::TensorRef<RowMajor>>));
}

TEST(EigenTensor, IsAttendedAsAnyOtherTensor) {
  const auto x = attn_test::random_tensor<float, 3>({2, 50, 8}, 1);
  ColumnMajor in(2, 50, 8);
  RowMajor out(2, 50, 8);
  for (Index h = 0; h < 2; ++h)
    for (Index i = 0; i < 50; ++i)
      for (Index c = 0; c < 8; ++c) in(h, i, c) = x(h, i, c);
  attn::sdpa_into(in, in, in, out, attn::Causal{});
  const attn::Tensor<float, 3> result(as_view(out));
  EXPECT_EQ(result, attn::sdpa(x, x, x, attn::Causal{}));
}

}  // namespace
#endif
