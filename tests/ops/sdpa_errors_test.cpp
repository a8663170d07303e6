// tests/ops/sdpa_errors_test.cpp - what sdpa refuses, and that the text names the function, the argument and
// both sides.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "attn/ops/sdpa.hpp"
#include "support/error_text.hpp"

namespace {

using attn::Index;
using Tensor4 = attn::Tensor<float, 4>;
using attn_test::error_text;

class SdpaErrors : public testing::Test {
 protected:
  static std::string shapes(const attn::Dims<4>& q, const attn::Dims<4>& k, const attn::Dims<4>& v) {
    return error_text<attn::ShapeError>([&] { (void)attn::sdpa(Tensor4(q), Tensor4(k), Tensor4(v)); });
  }
  template <class Error = attn::ShapeError, attn::Mask M = attn::NoMask>
  std::string options(const attn::SdpaOptions& wrong, const M& mask = {}) const {
    return error_text<Error>([&] { (void)attn::sdpa(q, k, v, mask, wrong); });
  }
  Tensor4 q{{2, 4, 3, 8}}, k{{2, 2, 5, 8}}, v{{2, 2, 5, 6}};
};

TEST_F(SdpaErrors, NameExtentsThatDoNotFit) {
  EXPECT_EQ(shapes({1, 1, 6, 8}, {1, 1, 9, 4}, {1, 1, 9, 4}),
            "attn: sdpa: q [1, 1, 6, 8] and k [1, 1, 9, 4] differ in head_dim (last extent)");
  EXPECT_EQ(shapes({1, 1, 6, 0}, {1, 1, 9, 0}, {1, 1, 9, 4}), "attn: sdpa: q [1, 1, 6, 0] has head_dim 0");
  EXPECT_EQ(shapes({2, 1, 6, 8}, {1, 1, 9, 8}, {2, 1, 9, 4}),
            "attn: sdpa: q [2, 1, 6, 8], k [1, 1, 9, 8] and v [2, 1, 9, 4] differ in batch (first extent)");
  EXPECT_EQ(shapes({2, 1, 6, 8}, {2, 1, 9, 8}, {3, 1, 9, 4}),
            "attn: sdpa: q [2, 1, 6, 8], k [2, 1, 9, 8] and v [3, 1, 9, 4] differ in batch (first extent)");
  EXPECT_EQ(
      shapes({1, 2, 6, 8}, {1, 2, 9, 8}, {1, 1, 9, 8}),
      "attn: sdpa: k [1, 2, 9, 8] and v [1, 1, 9, 8] differ in heads or length (second and third extent)");
  EXPECT_EQ(
      shapes({1, 2, 6, 8}, {1, 2, 9, 8}, {1, 2, 7, 8}),
      "attn: sdpa: k [1, 2, 9, 8] and v [1, 2, 7, 8] differ in heads or length (second and third extent)");
}

TEST_F(SdpaErrors, NameHeadCountsThatDoNotDivide) {
  EXPECT_EQ(shapes({1, 3, 6, 8}, {1, 2, 9, 8}, {1, 2, 9, 8}),
            "attn: sdpa: q [1, 3, 6, 8] has 3 heads, which is no multiple of the 2 key-value heads of k "
            "[1, 2, 9, 8]");
  EXPECT_EQ(shapes({1, 3, 6, 8}, {1, 0, 9, 8}, {1, 0, 9, 8}),
            "attn: sdpa: q [1, 3, 6, 8] has 3 heads, which is no multiple of the 0 key-value heads of k "
            "[1, 0, 9, 8]");
}

TEST_F(SdpaErrors, NameLengthsBeyondThePositionsOfMasks) {
  const float element = 0;
  const attn::TensorView<const float, 2> one(&element, {1, 1}),
      endless(&element, {Index{1} << 30, 1}, {0, 0});
  EXPECT_EQ(error_text<std::length_error>([&] { (void)attn::sdpa(one, endless, endless); }),
            "attn: sdpa: q [1, 1, 1, 1] or k [1, 1, 1073741824, 1] is longer than 2^30 positions");
}

TEST_F(SdpaErrors, NameAnOutputOfTheWrongShape) {
  Tensor4 out({2, 4, 3, 8});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::sdpa_into(q, k, v, out); }),
            "attn: sdpa: out [2, 4, 3, 8] should be [2, 4, 3, 6] for q [2, 4, 3, 8] and v [2, 2, 5, 6]");
  Tensor4 right({2, 4, 3, 6});
  attn::Tensor<float, 3> logsumexp({2, 4, 5});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::sdpa_with_logsumexp_into(q, k, v, right, logsumexp); }),
            "attn: sdpa_with_logsumexp_into: logsumexp [2, 4, 5] should be [2, 4, 3]");
  Tensor4 weights({2, 2, 3, 5});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::sdpa_with_weights_into(q, k, v, right, weights); }),
            "attn: sdpa_with_weights_into: weights [2, 2, 3, 5] should be [2, 4, 3, 5]");
}

TEST_F(SdpaErrors, NameTheInputThatOutOverlaps) {
  const auto overlap = [](Tensor4& query, Tensor4& key, Tensor4& value,
                          const attn::TensorView<float, 4>& out) {
    return error_text<std::invalid_argument>([&] { attn::sdpa_into(query, key, value, out); });
  };
  Tensor4 a({1, 1, 5, 8}), b({1, 1, 5, 8}), c({1, 1, 5, 8});
  EXPECT_EQ(overlap(a, b, c, a.view()), "attn: sdpa: out overlaps q [1, 1, 5, 8]");
  EXPECT_EQ(overlap(a, b, c, b.view()), "attn: sdpa: out overlaps k [1, 1, 5, 8]");
  EXPECT_EQ(overlap(a, b, c, c.view()), "attn: sdpa: out overlaps v [1, 1, 5, 8]");
  std::vector<float> memory(80);
  const attn::TensorView<float, 4> lower(memory.data(), {1, 1, 5, 8}),
      shifted(memory.data() + 39, {1, 1, 5, 8}), beside(memory.data() + 40, {1, 1, 5, 8});
  EXPECT_EQ(error_text<std::invalid_argument>([&] { attn::sdpa_into(lower, b, c, shifted); }),
            "attn: sdpa: out overlaps q [1, 1, 5, 8]");
  EXPECT_NO_THROW(attn::sdpa_into(lower, b, c, beside));
}

TEST_F(SdpaErrors, NameAnOutputWhoseElementsCoincide) {
  const auto into = [&](const attn::Dims<4>& strides) {
    std::vector<float> memory(1000);
    const attn::TensorView<float, 4> out(memory.data(), {2, 4, 3, 6}, strides);
    return error_text<attn::ShapeError>([&] { attn::sdpa_into(q, k, v, out); });
  };
  EXPECT_EQ(into({72, 0, 6, 1}),
            "attn: sdpa: out [2, 4, 3, 6] with strides [72, 0, 6, 1] has elements that coincide in memory");
  EXPECT_EQ(into({72, 18, 5, 1}),
            "attn: sdpa: out [2, 4, 3, 6] with strides [72, 18, 5, 1] has elements that coincide in memory");
  EXPECT_EQ(into({72, 18, 6, 1}), "no error");
  Tensor4 out({2, 4, 3, 6});
  std::vector<float> memory(100);
  const attn::TensorView<float, 3> logsumexp(memory.data(), {2, 4, 3}, {12, 3, 0});
  const attn::TensorView<float, 4> weights(memory.data(), {2, 4, 3, 5}, {0, 15, 5, 1});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::sdpa_with_logsumexp_into(q, k, v, out, logsumexp); }),
            "attn: sdpa: logsumexp [2, 4, 3] with strides [12, 3, 0] has elements that coincide in memory");
  EXPECT_EQ(
      error_text<attn::ShapeError>([&] { attn::sdpa_with_weights_into(q, k, v, out, weights); }),
      "attn: sdpa: weights [2, 4, 3, 5] with strides [0, 15, 5, 1] has elements that coincide in memory");
}

TEST_F(SdpaErrors, NameTheFurtherResultThatOverlaps) {
  Tensor4 x({1, 1, 4, 4}), out({1, 1, 4, 4});
  EXPECT_EQ(error_text<std::invalid_argument>([&] { attn::sdpa_with_weights_into(x, x, x, out, x); }),
            "attn: sdpa: weights overlaps q [1, 1, 4, 4]");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { attn::sdpa_with_weights_into(x, x, x, out, out); }),
            "attn: sdpa: weights overlaps out [1, 1, 4, 4]");
  const attn::TensorView<float, 3> of_values(x.data(), {1, 1, 4}), of_out(out.data(), {1, 1, 4});
  EXPECT_EQ(
      error_text<std::invalid_argument>([&] { attn::sdpa_with_logsumexp_into(x, x, x, out, of_values); }),
      "attn: sdpa: logsumexp overlaps q [1, 1, 4, 4]");
  EXPECT_EQ(error_text<std::invalid_argument>([&] { attn::sdpa_with_logsumexp_into(x, x, x, out, of_out); }),
            "attn: sdpa: logsumexp overlaps out [1, 1, 4, 4]");
}

TEST_F(SdpaErrors, DemandAnOffsetWhereAMaskUsesPositionsAndLengthsDiffer) {
  EXPECT_EQ(options({}, attn::Causal{}),
            "attn: sdpa: q [2, 4, 3, 8] and k [2, 2, 5, 8] differ in length and the mask uses positions: set "
            "options.query_offset, the key position of query 0 (kv_len - q_len = 2 for decoding, 0 to align "
            "top-left)");
  EXPECT_EQ(options({.query_offset = 0}, attn::Causal{}), "no error");
  EXPECT_EQ(options({}), "no error");
}

TEST_F(SdpaErrors, NameOptionsOfTheWrongSizeOrValue) {
  const std::vector<double> sinks{1, 2, 3};
  EXPECT_EQ(options({.sinks = sinks}), "attn: sdpa: options.sinks has 3 values for 4 query heads");
  const std::vector<Index> offsets{1, 2, 3}, none;
  EXPECT_EQ(options({.query_offset = offsets}),
            "attn: sdpa: options.query_offset has 3 values for a batch of 2");
  EXPECT_EQ(options({.query_offset = none}, attn::Causal{}),
            "attn: sdpa: options.query_offset has 0 values for a batch of 2");
  EXPECT_EQ(options({.query_offset = std::span<const Index>()}),
            "attn: sdpa: options.query_offset has 0 values for a batch of 2");
  const std::vector<Index> far{0, (Index{1} << 52)};
  EXPECT_EQ(options<std::length_error>({.query_offset = far}),
            "attn: sdpa: options.query_offset 4503599627370496 is not between -2^52 and 2^52");
  EXPECT_EQ(options<std::length_error>({.query_offset = std::numeric_limits<Index>::min()}),
            "attn: sdpa: options.query_offset -9223372036854775808 is not between -2^52 and 2^52");
  std::vector<double> no_numbers{0, 0, std::numeric_limits<double>::infinity(), 0};
  EXPECT_EQ(options<std::invalid_argument>({.sinks = no_numbers}),
            "attn: sdpa: options.sinks holds inf, which is no number below 3.4e38");
  no_numbers[2] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(options<std::invalid_argument>({.sinks = no_numbers}),
            "attn: sdpa: options.sinks holds nan, which is no number below 3.4e38");
  EXPECT_EQ(options<std::invalid_argument>({.soft_cap = -1}),
            "attn: sdpa: options.soft_cap -1 must be a finite number and not negative");
  constexpr double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(options<std::invalid_argument>({.scale = std::numeric_limits<double>::quiet_NaN()}),
            "attn: sdpa: options.scale nan must be a finite number");
  EXPECT_EQ(options<std::invalid_argument>({.scale = -inf}),
            "attn: sdpa: options.scale -inf must be a finite number");
  EXPECT_EQ(options<std::invalid_argument>({.soft_cap = inf}),
            "attn: sdpa: options.soft_cap inf must be a finite number and not negative");
  EXPECT_EQ(options<std::invalid_argument>({.soft_cap = std::numeric_limits<double>::quiet_NaN()}),
            "attn: sdpa: options.soft_cap nan must be a finite number and not negative");
}

TEST_F(SdpaErrors, NameMasksThatDoNotFit) {
  const std::vector<Index> one{5}, too_long{5, 6};
  EXPECT_EQ(options({}, attn::KeyPadding{one}), "attn: KeyPadding: 1 lengths for a batch of 2");
  EXPECT_EQ(options({}, attn::KeyPadding{too_long}),
            "attn: KeyPadding: length 6 is not within [0, kv_len 5]");
  const Tensor4 bias({2, 2, 3, 5});
  EXPECT_EQ(options({}, attn::AdditiveBias(bias)),
            "attn: AdditiveBias: extents [2, 2, 3, 5] do not fit [batch, num_heads, q_len, kv_len] = "
            "[2, 4, 3, 5] (an extent may also be 1)");
  const Eigen::Matrix<bool, 3, 4> flags = Eigen::Matrix<bool, 3, 4>::Constant(true);
  EXPECT_EQ(options({}, attn::Causal{} & attn::KeepMask(flags)),
            "attn: sdpa: q [2, 4, 3, 8] and k [2, 2, 5, 8] differ in length and the mask uses positions: set "
            "options.query_offset, the key position of query 0 (kv_len - q_len = 2 for decoding, 0 to align "
            "top-left)");
  EXPECT_EQ(
      options({.query_offset = 0}, attn::Causal{} & attn::DropMask(flags)),
      "attn: DropMask: extents [1, 1, 3, 4] do not fit [batch, num_heads, q_len, kv_len] = [2, 4, 3, 5] "
      "(an extent may also be 1)");
}

TEST_F(SdpaErrors, LeaveTheOutputUntouched) {
  Tensor4 out({2, 4, 3, 6});
  std::fill(out.data(), out.data() + out.size(), 7.f);
  EXPECT_THROW(attn::sdpa_into(q, k, v, out, attn::Causal{}), attn::ShapeError);
  EXPECT_EQ(std::count(out.data(), out.data() + out.size(), 7.f), out.size());
}

}  // namespace
