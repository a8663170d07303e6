#include "attn/core/tensor_view.hpp"

#include <gtest/gtest.h>

#include <concepts>
#include <numeric>
#include <sstream>
#include <vector>

#include "support/error_text.hpp"

namespace {

using attn::Dims;
using attn::Index;
using attn::TensorView;
using attn_test::error_text;

std::vector<int> count_up(int size) {
  std::vector<int> values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(Dims, PrintAsAList) {
  std::ostringstream text;
  text << Dims<4>{2, 8, 5, 64};
  EXPECT_EQ(text.str(), "[2, 8, 5, 64]");
}

TEST(Dims, OfAContiguousTensorHaveTheLastAxisFastest) {
  EXPECT_EQ(attn::contiguous_strides(Dims<3>{2, 3, 4}), (Dims<3>{12, 4, 1}));
  EXPECT_EQ(attn::product(Dims<3>{2, 3, 4}), 24);
}

TEST(TensorView, IsEmptyByDefault) {
  const TensorView<float, 3> view;
  EXPECT_EQ(view.size(), 0);
  EXPECT_EQ(view.data(), nullptr);
}

TEST(TensorView, ReachesEveryElementByRowMajorIndex) {
  std::vector<int> values = count_up(24);
  const TensorView<int, 3> view(values.data(), {2, 3, 4});
  int expected = 0;
  for (Index i = 0; i < 2; ++i)
    for (Index j = 0; j < 3; ++j)
      for (Index k = 0; k < 4; ++k) EXPECT_EQ(view(i, j, k), expected++);
}

TEST(TensorView, WritesThroughToTheMemoryItWasGiven) {
  std::vector<int> values = count_up(6);
  const TensorView<int, 2> view(values.data(), {2, 3});
  view(1, 2) = 42;
  EXPECT_EQ(values[5], 42);
}

TEST(TensorView, ReadsANegativeStrideBackwards) {
  std::vector<int> values = count_up(4);
  const TensorView<int, 1> reversed(values.data() + 3, {4}, {-1});
  for (Index i = 0; i < 4; ++i) EXPECT_EQ(reversed(i), 3 - i);
}

TEST(TensorView, RepeatsAnAxisOfStrideZero) {
  std::vector<int> values = count_up(3);
  const TensorView<int, 2> repeated(values.data(), {5, 3}, {0, 1});
  for (Index i = 0; i < 5; ++i) EXPECT_EQ(repeated(i, 2), 2);
}

TEST(TensorView, OfOneIndexHasOneRankLess) {
  std::vector<int> values = count_up(24);
  const TensorView<int, 3> view(values.data(), {2, 3, 4});
  const TensorView<int, 2> part = view[1];
  EXPECT_EQ(part.extents(), (Dims<2>{3, 4}));
  EXPECT_EQ(part(2, 3), view(1, 2, 3));
}

TEST(TensorView, SliceIsTheSameMemory) {
  std::vector<int> values = count_up(24);
  const TensorView<int, 3> view(values.data(), {2, 3, 4});
  const TensorView<int, 3> part = view.slice(1, {1, 3}).slice(2, {2, 3});
  EXPECT_EQ(part.extents(), (Dims<3>{2, 2, 1}));
  EXPECT_EQ(&part(1, 0, 0), &view(1, 1, 2));
}

TEST(TensorView, SliceMayBeEmpty) {
  std::vector<int> values = count_up(6);
  EXPECT_EQ((TensorView<int, 2>(values.data(), {2, 3}).slice(1, {3, 3}).extents()), (Dims<2>{2, 0}));
}

TEST(TensorView, SliceThatLeavesTheAxisNamesAxisRangeAndExtents) {
  std::vector<int> values = count_up(6);
  const TensorView<int, 2> view(values.data(), {2, 3});
  EXPECT_EQ(error_text<attn::ShapeError>([&] {
              view.slice(1, {1, 4});
            }),
            "attn: TensorView::slice: [1, 4) leaves axis 1 of [2, 3]");
  EXPECT_EQ(error_text<attn::ShapeError>([&] {
              view.slice(0, {-1, 1});
            }),
            "attn: TensorView::slice: [-1, 1) leaves axis 0 of [2, 3]");
  EXPECT_EQ(error_text<attn::ShapeError>([&] {
              view.slice(0, {2, 1});
            }),
            "attn: TensorView::slice: [2, 1) leaves axis 0 of [2, 3]");
}

TEST(TensorView, OfASpanMustFillItsExtents) {
  std::vector<int> values = count_up(6);
  EXPECT_EQ((TensorView<int, 2>(std::span<int>(values), {2, 3})(1, 2)), 5);
  EXPECT_EQ(error_text<attn::ShapeError>([&] {
              TensorView<int, 2>(std::span<int>(values), {2, 4});
            }),
            "attn: TensorView: span of 6 elements does not fill [2, 4]");
}

TEST(TensorView, RefusesANegativeExtent) {
  EXPECT_EQ(error_text<attn::ShapeError>([] {
              TensorView<int, 2>(nullptr, {2, -1});
            }),
            "attn: TensorView: extents [2, -1] must not be negative");
}

// The product of these extents is 2^64, which is 0 in 64 bits: as many elements as an empty span has.
TEST(TensorView, RefusesExtentsWhoseProductOverflows) {
  constexpr Index large = Index{1} << 32;
  const std::string text =
      "attn: TensorView: extents [4294967296, 4294967296] have more elements than can be counted";
  EXPECT_EQ(error_text<std::length_error>([] {
              TensorView<int, 2>(std::span<int>(), {large, large});
            }),
            text);
  EXPECT_EQ(error_text<std::length_error>([] { TensorView<int, 2>(nullptr, {large, large}, {0, 0}); }), text);
  EXPECT_EQ((TensorView<int, 3>(nullptr, {large, 0, 5}).size()), 0);
}

TEST(TensorView, ConvertsToReadOnlyAndNotBack) {
  EXPECT_TRUE((std::convertible_to<TensorView<int, 2>, TensorView<const int, 2>>));
  EXPECT_FALSE((std::convertible_to<TensorView<const int, 2>, TensorView<int, 2>>));
  EXPECT_FALSE((std::convertible_to<TensorView<int, 2>, TensorView<const long, 2>>));
}

TEST(TensorView, KnowsWhetherItIsContiguous) {
  std::vector<int> values = count_up(24);
  const TensorView<int, 2> view(values.data(), {4, 6});
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_TRUE(view.slice(0, {1, 3}).is_contiguous());
  EXPECT_FALSE(view.slice(1, {1, 3}).is_contiguous());
  EXPECT_FALSE((TensorView<int, 2>(values.data(), {4, 6}, {1, 4}).is_contiguous()));
  EXPECT_TRUE((TensorView<int, 2>(values.data(), {1, 6}, {99, 1}).is_contiguous()))
      << "an axis of 1 has no stride";
}

// A pointer of an offset that 32 bits cannot hold must not be formed by 32-bit arithmetic; the memory is not
// touched, only the address is computed.
TEST(TensorView, ComputesOffsetsBeyond32Bits) {
  float origin = 0;
  const Index rows = Index{1} << 22, stride = 1024;
  const TensorView<float, 2> view(&origin, {rows, 1}, {stride, 1});
  const auto range = attn::address_range(view);
  EXPECT_EQ(range.end - range.begin,
            static_cast<std::uintptr_t>(((rows - 1) * stride + 1) * Index{sizeof(float)}));
  EXPECT_GT((rows - 1) * stride, Index{1} << 31);
}

TEST(AddressRange, CoversNegativeStrides) {
  std::vector<int> values = count_up(12);
  const TensorView<int, 2> forwards(values.data(), {3, 4});
  const TensorView<int, 2> backwards(values.data() + 11, {3, 4}, {-4, -1});
  EXPECT_EQ(attn::address_range(backwards).begin, attn::address_range(forwards).begin);
  EXPECT_EQ(attn::address_range(backwards).end, attn::address_range(forwards).end);
}

TEST(AddressRange, OfAViewWithoutElementsIsEmpty) {
  std::vector<int> values = count_up(12);
  const auto range = attn::address_range(TensorView<int, 2>(values.data(), {3, 0}));
  EXPECT_EQ(range.begin, range.end);
}

}  // namespace
