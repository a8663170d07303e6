#include "attn/core/tensor.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/error_text.hpp"

namespace {

using attn::Dims;
using attn::Index;
using attn::Tensor;
using attn::TensorView;

template <class T>
class TensorOf : public testing::Test {};
using Elements = testing::Types<float, double, Eigen::half, Eigen::bfloat16>;
TYPED_TEST_SUITE(TensorOf, Elements);

TYPED_TEST(TensorOf, StartsAtZeroAndAligned) {
  const Tensor<TypeParam, 3> tensor({2, 3, 5});
  EXPECT_EQ(tensor.size(), 30);
  for (Index i = 0; i < tensor.size(); ++i) EXPECT_EQ(tensor.data()[i], TypeParam(0));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0u);
}

TYPED_TEST(TensorOf, IsAValue) {
  Tensor<TypeParam, 2> original({2, 2});
  original(1, 1) = TypeParam(1);
  Tensor<TypeParam, 2> copy = original;
  EXPECT_EQ(copy, original);
  copy(0, 0) = TypeParam(2);
  EXPECT_EQ(original(0, 0), TypeParam(0)) << "a copy shares no element";
  EXPECT_NE(copy, original);
}

TYPED_TEST(TensorOf, CopiesAViewOfAnyStrides) {
  std::vector<TypeParam> values;
  for (int i = 0; i < 12; ++i) values.push_back(static_cast<TypeParam>(i));
  const TensorView<const TypeParam, 2> transposed(values.data(), {4, 3}, {1, 4});
  const Tensor<TypeParam, 2> copy(transposed);
  EXPECT_TRUE(copy.view().is_contiguous());
  for (Index i = 0; i < 4; ++i)
    for (Index j = 0; j < 3; ++j) EXPECT_EQ(copy(i, j), values[static_cast<std::size_t>(i + 4 * j)]);
}

TEST(Tensor, OfDifferentExtentsIsDifferent) {
  EXPECT_NE((Tensor<float, 2>({2, 3})), (Tensor<float, 2>({3, 2})));
  EXPECT_EQ((Tensor<float, 2>({2, 0})), (Tensor<float, 2>({2, 0})));
}

TEST(Tensor, RefusesANegativeExtent) {
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([] {
              Tensor<float, 2>({-1, 3});
            }),
            "attn: Tensor: extents [-1, 3] must not be negative");
}

TEST(Tensor, NamesTheSizeThatNoAddressSpaceHolds) {
  constexpr Index large = Index{1} << 40;
  EXPECT_EQ(attn_test::error_text<std::length_error>([] { Tensor<double, 1>({Index{1} << 60}); }),
            "attn: Tensor: extents [1152921504606846976] of elements of 8 bytes exceed the address space");
  EXPECT_EQ(attn_test::error_text<std::length_error>([] {
              Tensor<float, 2>({large, large});
            }),
            "attn: Tensor: extents [1099511627776, 1099511627776] have more elements than can be counted");
  constexpr std::size_t count = std::numeric_limits<std::size_t>::max() / 8;
  EXPECT_EQ(attn_test::error_text<std::length_error>(
                [] { attn::detail::CacheLineAllocator<double>().allocate(count); }),
            "attn: Tensor: " + std::to_string(count) + " elements of 8 bytes exceed the address space");
}

TEST(Tensor, HandsOutReadOnlyViewsWhenItIsConst) {
  const Tensor<float, 1> constant({3});
  EXPECT_TRUE((std::same_as<decltype(constant.view()), TensorView<const float, 1>>));
  EXPECT_FALSE((attn::WritableTensor<const Tensor<float, 1>>));
  EXPECT_TRUE((attn::WritableTensor<Tensor<float, 1>>));
}

TEST(Copy, ConvertsElements) {
  Tensor<double, 2> from({2, 2});
  from(0, 1) = 0.1;
  Tensor<float, 2> to({2, 2});
  attn::copy(from.view(), to.view());
  EXPECT_EQ(to(0, 1), 0.1F);
}

}  // namespace
