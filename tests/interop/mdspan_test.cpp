#include "attn/interop/mdspan.hpp"

#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <numeric>
#include <vector>

#include "attn/ops/sdpa.hpp"
#include "support/random_values.hpp"

namespace mine {

/// The members of std::mdspan that count here, with its unsigned types; C++20 does not have the original.
template <class T, std::size_t Rank>
class Span {
 public:
  struct extents_type {  // NOLINT(readability-identifier-naming): as in std::mdspan
    std::array<std::uint32_t, Rank> values;
    std::uint32_t extent(std::size_t axis) const { return values[axis]; }
  };
  using element_type = T;

  Span(T* data, std::array<std::uint32_t, Rank> extents, std::array<std::uint32_t, Rank> strides)
      : data_(data), extents_{extents}, strides_(strides) {}
  static constexpr std::size_t rank() { return Rank; }
  const extents_type& extents() const { return extents_; }
  std::uint32_t stride(std::size_t axis) const { return strides_[axis]; }
  T* data_handle() const { return data_; }

 private:
  T* data_;
  extents_type extents_;
  std::array<std::uint32_t, Rank> strides_;
};

}  // namespace mine

namespace {

using attn::as_view;

TEST(Mdspan, IsSeenWithItsExtentsAndStrides) {
  std::vector<float> memory(200);
  const mine::Span<float, 3> span(memory.data(), {2, 3, 4}, {1, 50, 7});
  const auto view = as_view(span);
  EXPECT_EQ(view.extents(), (attn::Dims<3>{2, 3, 4}));
  EXPECT_EQ(&view(1, 2, 3), &memory[1 + 2 * 50 + 3 * 7]);
}

TEST(Mdspan, IsWritableAsItsElementTypeSays) {
  std::vector<float> memory(6);
  const mine::Span<float, 2> mutable_elements(memory.data(), {2, 3}, {3, 1});
  const mine::Span<const float, 2> const_elements(memory.data(), {2, 3}, {3, 1});
  EXPECT_TRUE((std::same_as<decltype(as_view(mutable_elements)), attn::TensorView<float, 2>>));
  EXPECT_TRUE((std::same_as<decltype(as_view(const_elements)), attn::TensorView<const float, 2>>));
}

TEST(Mdspan, IsNotEverythingWithData) {
  EXPECT_FALSE((attn::MdspanLike<std::vector<float>>));
  EXPECT_FALSE((attn::MdspanLike<Eigen::MatrixXf>));
  EXPECT_FALSE((attn::MdspanLike<attn::TensorView<float, 2>>));
}

TEST(Mdspan, IsAttendedAsAnyOtherTensor) {
  const auto x = attn_test::random_tensor<float, 3>({2, 50, 8}, 1);
  attn::Tensor<float, 3> out({2, 50, 8});
  const mine::Span<const float, 3> in(x.data(), {2, 50, 8}, {400, 8, 1});
  const mine::Span<float, 3> into(out.data(), {2, 50, 8}, {400, 8, 1});
  attn::sdpa_into(in, in, in, into);
  EXPECT_EQ(out, attn::sdpa(x, x, x));
}

TEST(StdVector, WithExtentsIsAView) {
  std::vector<float> vector(6);
  std::iota(vector.begin(), vector.end(), 0.0F);
  const attn::TensorView<const float, 2> view(vector, {2, 3});
  const attn::TensorView<float, 2> writable(vector, {3, 2});
  EXPECT_EQ(view(1, 2), 5.0F);
  writable(2, 1) = 42;
  EXPECT_EQ(view(1, 2), 42.0F);
  EXPECT_THROW((attn::TensorView<const float, 2>(vector, {2, 4})), attn::ShapeError);
}

}  // namespace
