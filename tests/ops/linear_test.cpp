// tests/ops/linear_test.cpp - the product on a packed weight against a plain sum in double.
#include "attn/ops/linear.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "attn/core/thread_pool.hpp"
#include "support/attention.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Activation;
using attn::Index;
using attn_test::distance;
using attn_test::error_text;
using attn_test::random_tensor;
using attn_test::same_bits;

template <class T>
attn::TensorView<const T, 2> read(const attn::Tensor<T, 2>& x) {
  return x.view();
}
template <class T>
attn::TensorView<const T, 1> read(const attn::Tensor<T, 1>& x) {
  return x.view();
}

/// x W^T + bias in double.
template <class T>
attn::Tensor<double, 2> plain_product(const attn::Tensor<T, 2>& x, const attn::Tensor<T, 2>& weight,
                                      const attn::Tensor<T, 1>& bias) {
  attn::Tensor<double, 2> y({x.extent(0), weight.extent(0)});
  for (Index t = 0; t < x.extent(0); ++t)
    for (Index o = 0; o < weight.extent(0); ++o) {
      y(t, o) = bias.size() > 0 ? static_cast<double>(bias(o)) : 0;
      for (Index i = 0; i < x.extent(1); ++i)
        y(t, o) += static_cast<double>(x(t, i)) * static_cast<double>(weight(o, i));
    }
  return y;
}

template <class T>
class LinearInto : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(LinearInto, Scalars);

TYPED_TEST(LinearInto, IsTheProductForEveryShape) {
  using T = TypeParam;
  constexpr auto eps = static_cast<double>(std::numeric_limits<T>::epsilon());
  for (const Index tokens : {0, 1, 3, 4, 97, 200})
    for (const Index in : {0, 1, 7, 513})
      for (const Index out : {0, 1, 8, 23, 24, 25, 49}) {
        const auto x = random_tensor<T, 2>({tokens, in}, 1), weight = random_tensor<T, 2>({out, in}, 2);
        const auto bias = random_tensor<T, 1>({out}, 3);
        attn::Tensor<T, 2> y({tokens, out}), without_bias({tokens, out});
        attn::linear_into(read(x), attn::pack_linear(read(weight), read(bias)), y.view());
        attn::linear_into(read(x), attn::pack_linear(read(weight)), without_bias.view());
        const double tolerance = 8 * eps * (1 + std::sqrt(static_cast<double>(in)) * 4);
        EXPECT_LT(distance(y, plain_product(x, weight, bias)), tolerance)
            << tokens << " " << in << " " << out;
        EXPECT_LT(distance(without_bias, plain_product(x, weight, attn::Tensor<T, 1>{})), tolerance);
      }
}

TYPED_TEST(LinearInto, AddsTheResidualBeforeTheActivation) {
  using T = TypeParam;
  const auto x = random_tensor<T, 2>({9, 600}, 1), weight = random_tensor<T, 2>({30, 600}, 2);
  const auto residual = random_tensor<T, 2>({9, 30}, 4);
  const auto packed = attn::pack_linear(read(weight));
  attn::Tensor<T, 2> sum({9, 30}), in_place = residual, rectified({9, 30});
  attn::linear_into(read(x), packed, sum.view(), {}, read(residual));
  const auto product = plain_product(x, weight, attn::Tensor<T, 1>{});
  for (Index i = 0; i < sum.size(); ++i)
    EXPECT_NEAR(static_cast<double>(sum.data()[i]),
                product.data()[i] + static_cast<double>(residual.data()[i]),
                800 * static_cast<double>(std::numeric_limits<T>::epsilon()));
  attn::linear_into(read(x), packed, in_place.view(), {}, read(in_place));
  EXPECT_TRUE(same_bits(in_place, sum));
  attn::linear_into(read(x), packed, rectified.view(), {.activation = Activation::relu}, read(residual));
  for (Index i = 0; i < sum.size(); ++i) EXPECT_EQ(rectified.data()[i], std::max(sum.data()[i], T(0)));
}

TYPED_TEST(LinearInto, GivesARowTheSameBitsWhateverItsNeighboursAre) {
  using T = TypeParam;
  const auto x = random_tensor<T, 2>({200, 40}, 1), weight = random_tensor<T, 2>({50, 40}, 2);
  const auto packed = attn::pack_linear(read(weight));
  attn::Tensor<T, 2> all({200, 50}), some({3, 50});
  attn::linear_into(read(x), packed, all.view());
  attn::linear_into(read(x).slice(0, {101, 104}), packed, some.view());
  EXPECT_TRUE(same_bits(some, all.view().slice(0, {101, 104})));
}

TYPED_TEST(LinearInto, GivesTheSameBitsForEveryStride) {
  using T = TypeParam;
  const auto x = random_tensor<T, 3>({4, 7, 10}, 1);
  const auto weight = random_tensor<T, 2>({9, 10}, 2);
  const auto packed = attn::pack_linear(read(weight));
  attn::Tensor<T, 3> expected({4, 7, 9}), storage({9, 7, 4}), turned({10, 7, 4});
  attn::linear_into(std::as_const(x).view(), packed, expected.view());
  const attn::TensorView<T, 3> from(turned.data(), {4, 7, 10}, {1, 4, 28}),
      to(storage.data(), {4, 7, 9}, {1, 4, 28});
  attn::copy(x.view(), from);
  attn::linear_into(attn::TensorView<const T, 3>(from), packed, to);
  EXPECT_TRUE(same_bits(to, expected));
  // The weight may be strided as well: here the transposed one.
  attn::Tensor<T, 2> transposed({10, 9});
  for (Index o = 0; o < 9; ++o)
    for (Index i = 0; i < 10; ++i) transposed(i, o) = weight(o, i);
  const attn::TensorView<const T, 2> back(transposed.data(), {9, 10}, {1, 9});
  attn::linear_into(std::as_const(x).view(), attn::pack_linear(back), to);
  EXPECT_TRUE(same_bits(to, expected));
}

TYPED_TEST(LinearInto, GivesTheSameBitsOnEveryExecutorAndAllocatesNothingOnceWarm) {
  using T = TypeParam;
  const auto x = random_tensor<T, 2>({300, 64}, 1), weight = random_tensor<T, 2>({100, 64}, 2);
  const auto packed = attn::pack_linear(read(weight));
  attn::Tensor<T, 2> expected({300, 100}), y({300, 100});
  attn::linear_into(read(x), packed, expected.view());
  for (const Index threads : {1, 2, 7}) {
    attn::ThreadPool pool(threads);
    attn::Workspace workspace;
    const attn::LinearOptions options{.executor = pool, .workspace = &workspace};
    attn::linear_into(read(x), packed, y.view(), options);
    EXPECT_TRUE(same_bits(y, expected));
    EXPECT_EQ(attn_test::allocations_in([&] { attn::linear_into(read(x), packed, y.view(), options); }), 0u);
  }
}

TEST(LinearIntoOf16Bits, RoundsTheFloatResultOnce) {
  using Half = Eigen::half;
  const auto x = random_tensor<Half, 2>({5, 20}, 1), weight = random_tensor<Half, 2>({7, 20}, 2);
  attn::Tensor<Half, 2> y({5, 7});
  attn::linear_into(read(x), attn::pack_linear(read(weight)), y.view());
  const auto expected = plain_product(x, weight, attn::Tensor<Half, 1>{});
  for (Index i = 0; i < y.size(); ++i)
    EXPECT_NEAR(static_cast<double>(y.data()[i]), expected.data()[i],
                std::abs(expected.data()[i]) * 0x1p-11 + 1e-5);
}

/// f(tokens, out, in) over sizes that fill blocks and leave rests, one and several runs of inputs.
template <class F>
void for_each_size(F f) {
  for (const Index tokens : {1, 2, 5, 8, 97})
    for (const Index out : {1, 7, 24, 50})
      for (const Index in : {1, 30, 37, 600}) f(tokens, out, in);
}

template <class T>
class LinearIntoOf : public testing::Test {};
using SixteenBits = testing::Types<Eigen::half, Eigen::bfloat16>;
TYPED_TEST_SUITE(LinearIntoOf, SixteenBits);

TYPED_TEST(LinearIntoOf, EqualsTheProductOfFloatsRounded) {
  const double rounding = std::is_same_v<TypeParam, Eigen::half> ? 0x1p-11 : 0x1p-8;
  for_each_size([&](Index tokens, Index out, Index in) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << out << " outputs, " << in << " inputs");
    const auto x = random_tensor<TypeParam, 2>({tokens, in}, 1),
               weight = random_tensor<TypeParam, 2>({out, in}, 2),
               residual = random_tensor<TypeParam, 2>({tokens, out}, 3);
    const auto bias = random_tensor<TypeParam, 1>({out}, 4);
    const auto as_floats = [](const auto& from) {
      attn::Tensor<float, 2> to(from.extents());
      attn::copy(read(from), to.view());
      return to;
    };
    const attn::LinearOptions options{.activation = attn::Activation::relu};
    const auto packed = attn::pack_linear(read(weight), read(bias));
    attn::Tensor<float, 2> expected({tokens, out});
    attn::linear_into(read(as_floats(x)), packed, expected.view(), options, read(as_floats(residual)));
    attn::Tensor<TypeParam, 2> y({tokens, out}), in_place = residual;
    attn::linear_into(read(x), packed, y.view(), options, read(residual));
    attn::linear_into(read(x), packed, in_place.view(), options, read(in_place));
    EXPECT_TRUE(same_bits(y, in_place));
    for (Index i = 0; i < y.size(); ++i)
      ASSERT_NEAR(
          static_cast<double>(y.data()[i]), static_cast<double>(expected.data()[i]),
          static_cast<double>(expected.data()[i]) * rounding + 1e-6 * std::sqrt(static_cast<double>(in)));
    // Rows apart are read, and nothing beside them is written.
    attn::Tensor<TypeParam, 2> wide({tokens, out + 3});
    std::fill_n(wide.data(), wide.size(), TypeParam(7));
    attn::linear_into(read(x), packed, wide.view().slice(1, {0, out}), options, read(residual));
    EXPECT_TRUE(same_bits(wide.view().slice(1, {0, out}), y.view()));
    for (Index t = 0; t < tokens; ++t)
      for (Index o = out; o < out + 3; ++o) EXPECT_EQ(wide(t, o), TypeParam(7));
  });
}

TEST(LinearIntoOfPackedStorage, WeightsThatBfloat16HoldsGiveTheBitsOfFloats) {
  for_each_size([](Index tokens, Index out, Index in) {
    attn::Tensor<float, 2> weight({out, in}), y({tokens, out}), expected({tokens, out});
    attn::copy(read(random_tensor<Eigen::bfloat16, 2>({out, in}, 1)), weight.view());
    const auto x = random_tensor<float, 2>({tokens, in}, 2),
               residual = random_tensor<float, 2>({tokens, out}, 3);
    const auto bias = random_tensor<float, 1>({out}, 4);
    const attn::LinearOptions options{.activation = attn::Activation::relu};
    attn::linear_into(read(x), attn::pack_linear(read(weight), read(bias)), expected.view(), options,
                      read(residual));
    const auto packed = attn::pack_linear(read(weight), read(bias), attn::WeightStorage::bfloat16);
    attn::linear_into(read(x), packed, y.view(), options, read(residual));
    EXPECT_TRUE(same_bits(y, expected));
  });
}

TEST(LinearIntoOfPackedStorage, EightBitWeightsAreWithinHalfTheirScale) {
  for_each_size([](Index tokens, Index out, Index in) {
    auto weight = random_tensor<float, 2>({out, in}, 1);
    std::fill_n(weight.data(), in, 0.0F);  // a feature without weights
    const auto x = random_tensor<float, 2>({tokens, in}, 2),
               residual = random_tensor<float, 2>({tokens, out}, 3);
    const auto bias = random_tensor<float, 1>({out}, 4);
    attn::Tensor<float, 2> y({tokens, out}), expected({tokens, out});
    attn::linear_into(read(x), attn::pack_linear(read(weight), read(bias)), expected.view(), {},
                      read(residual));
    const auto packed = attn::pack_linear(read(weight), read(bias), attn::WeightStorage::int8);
    attn::linear_into(read(x), packed, y.view(), {}, read(residual));
    for (Index t = 0; t < tokens; ++t)
      for (Index o = 0; o < out; ++o) {
        float largest = 0, bound = 1e-5F;
        for (Index i = 0; i < in; ++i) largest = std::max(largest, std::abs(weight(o, i)));
        for (Index i = 0; i < in; ++i) bound += std::abs(x(t, i)) * largest / 127 * 0.501F;
        ASSERT_NEAR(y(t, o), expected(t, o), bound);
        if (o == 0) {
          ASSERT_EQ(y(t, o), bias(o) + residual(t, o));
        }
      }
  });
}

/// An axis of one row may have any stride, and says nothing of where the next row is.
TEST(LinearIntoViews, WithAnAxisOfOneRowAreReadAndWrittenWhereTheyAre) {
  const auto weight = random_tensor<float, 2>({5, 7}, 1);
  const auto packed = attn::pack_linear(read(weight));
  auto x = random_tensor<float, 4>({2, 1, 6, 7}, 2), residual = random_tensor<float, 4>({2, 1, 6, 5}, 3);
  attn::Tensor<float, 4> y({2, 1, 6, 5});
  std::fill_n(y.data(), y.size(), -1.0F);
  attn::linear_into(std::as_const(x).view().slice(2, {0, 3}), packed, y.view().slice(2, {0, 3}), {},
                    std::as_const(residual).view().slice(2, {0, 3}));
  for (Index b = 0; b < 2; ++b)
    for (Index i = 0; i < 6; ++i)
      for (Index o = 0; o < 5; ++o) {
        double expected = i < 3 ? static_cast<double>(residual(b, 0, i, o)) : -1;
        for (Index c = 0; c < 7 && i < 3; ++c)
          expected += static_cast<double>(x(b, 0, i, c)) * static_cast<double>(weight(o, c));
        EXPECT_NEAR(y(b, 0, i, o), expected, 1e-6) << b << " " << i << " " << o;
      }
  // Rows that follow each other over all axes are still taken as one run.
  const attn::TensorView<const float, 4> turned(x.data(), {2, 1, 3, 7}, {7, 99, 14, 1});
  attn::Tensor<float, 4> out({2, 1, 3, 5});
  attn::linear_into(turned, packed, out.view());
  for (Index b = 0; b < 2; ++b)
    for (Index i = 0; i < 3; ++i)
      for (Index o = 0; o < 5; ++o) {
        double expected = 0;
        for (Index c = 0; c < 7; ++c)
          expected += static_cast<double>(turned(b, 0, i, c)) * static_cast<double>(weight(o, c));
        EXPECT_NEAR(out(b, 0, i, o), expected, 1e-6);
      }
}

TEST(LinearIntoErrors, NameAResidualThatTheOutputOverlapsInPart) {
  const attn::Tensor<float, 2> weight({4, 6}), x({3, 6});
  const auto packed = attn::pack_linear(read(weight));
  attn::Tensor<float, 2> rows({4, 4});
  const auto out = rows.view().slice(0, {1, 4});
  const auto text = [&](const attn::TensorView<const float, 2>& residual) {
    return error_text<std::invalid_argument>([&] { attn::linear_into(read(x), packed, out, {}, residual); });
  };
  const std::string overlap =
      "attn: linear_into: out overlaps residual [3, 4] in part; it may be residual itself or lie elsewhere";
  EXPECT_EQ(text(read(rows).slice(0, {0, 3})), overlap);
  EXPECT_EQ(text({rows.data() + 4, {3, 4}, {0, 1}}), overlap);
  attn::linear_into(read(x), packed, out, {}, read(rows).slice(0, {1, 4}));
}

TEST(LinearIntoOfPackedStorage, EightBitWeightsMayBeSubnormal) {
  attn::Tensor<float, 2> weight({1, 2}), x({1, 2}), y({1, 1});
  weight(0, 0) = 190 * std::numeric_limits<float>::denorm_min();
  weight(0, 1) = -weight(0, 0) / 2;
  x(0, 0) = 1;
  attn::linear_into(read(x), attn::pack_linear(read(weight), {}, attn::WeightStorage::int8), y.view());
  EXPECT_LE(std::abs(y(0, 0) - weight(0, 0)), std::numeric_limits<float>::min() / 2);
}

TEST(LinearIntoErrors, NameTheWeightThatEightBitsCannotHold) {
  attn::Tensor<float, 2> weight({2, 3});
  const auto text = [&] {
    return error_text<std::invalid_argument>(
        [&] { (void)attn::pack_linear(read(weight), {}, attn::WeightStorage::int8); });
  };
  weight(1, 2) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(text(), "attn: pack_linear: weight [2, 3] holds nan at [1, 2], which 8 bits cannot");
  weight(0, 1) = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(text(), "attn: pack_linear: weight [2, 3] holds -inf at [0, 1], which 8 bits cannot");
}

TEST(LinearIntoErrors, NameBothSides) {
  const attn::Tensor<float, 2> weight({4, 6});
  const attn::Tensor<float, 1> bias({5});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)attn::pack_linear(read(weight), read(bias)); }),
            "attn: pack_linear: bias [5] does not fit weight [4, 6]");
  const auto packed = attn::pack_linear(read(weight));
  attn::Tensor<float, 2> x({3, 6}), narrow({3, 5}), y({3, 4}), wrong({2, 4});
  const auto text = [&](const attn::Tensor<float, 2>& in, attn::Tensor<float, 2>& out,
                        const attn::TensorView<const float, 2>& residual = {}) {
    return error_text<std::invalid_argument>(
        [&] { attn::linear_into(read(in), packed, out.view(), {}, residual); });
  };
  EXPECT_EQ(text(narrow, y), "attn: linear_into: x [3, 5] does not have the 6 inputs of the weight [4, 6]");
  EXPECT_EQ(text(x, wrong), "attn: linear_into: out [2, 4] should be [3, 4] for x [3, 6]");
  EXPECT_EQ(text(x, y, read(wrong)), "attn: linear_into: residual [2, 4] should be [3, 4]");
  attn::Tensor<float, 2> square_weight({6, 6});
  const auto square = attn::pack_linear(read(square_weight));
  EXPECT_EQ(error_text<std::invalid_argument>([&] { attn::linear_into(read(x), square, x.view()); }),
            "attn: linear_into: out overlaps x [3, 6]");
}

}  // namespace
