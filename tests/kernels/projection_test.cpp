// tests/kernels/projection_test.cpp - the tasks of a product cover it once, and touch nothing else.
#include "attn/kernels/projection.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::random_tensor;
namespace kernels = attn::kernels;

template <class T>
class Projection : public testing::Test {
 protected:
  static constexpr T untouched = T(-12345);

  /// Product of `tokens` rows, each written into a longer row; checks what lies beside.
  static std::vector<T> product(Index tokens, const kernels::PackedWeight<T>& weight,
                                const attn::Tensor<T, 2>& x) {
    const Index stride = weight.out() + 5;
    std::vector<T> y(static_cast<std::size_t>(tokens * stride + 64), untouched);
    kernels::ProjectionArguments<T> arguments;
    arguments.x = kernels::Rows<const T>{x.data(), x.extent(1)};
    arguments.y = kernels::Rows<T>{y.data(), stride};
    arguments.tokens = tokens;
    arguments.weight = &weight;
    const kernels::Projection<T> projection(arguments);
    std::vector<T> scratch(static_cast<std::size_t>(projection.scratch_size()));
    for (Index task = projection.task_count(); task-- > 0;) projection.run(task, scratch.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const bool inside =
          static_cast<Index>(i) / stride < tokens && static_cast<Index>(i) % stride < weight.out();
      EXPECT_EQ(y[i] == untouched, !inside) << "element " << i;
    }
    return y;
  }
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Projection, Scalars);

TYPED_TEST(Projection, WritesEveryOutputAndNothingElse) {
  for (const Index tokens : {1, 5, 127, 128, 129, 257})
    for (const Index out : {1, 5, 8, 24, 31, 48, 100}) {
      const auto x = random_tensor<TypeParam, 2>({tokens, 3}, 1),
                 weight = random_tensor<TypeParam, 2>({out, 3}, 2);
      const kernels::PackedWeight<TypeParam> packed(std::type_identity<TypeParam>{},
                                                    std::as_const(weight).view(),
                                                    attn::TensorView<const TypeParam, 1>{});
      EXPECT_EQ(packed.out(), out);
      const auto y = this->product(tokens, packed, x);
      for (Index t = 0; t < tokens; ++t)
        for (Index o = 0; o < out; ++o) {
          double expected = 0;
          for (Index i = 0; i < 3; ++i)
            expected += static_cast<double>(x(t, i)) * static_cast<double>(weight(o, i));
          ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(t * (out + 5) + o)]), expected,
                      100 * static_cast<double>(std::numeric_limits<TypeParam>::epsilon()));
        }
    }
}

TYPED_TEST(Projection, StartsAtTheBiasWhateverTheDepth) {
  for (const Index in : {0, 1, 639, 640, 641, 1300}) {
    attn::Tensor<TypeParam, 2> x({3, in}), weight({10, in});
    std::fill(x.data(), x.data() + x.size(), TypeParam(1));
    std::fill(weight.data(), weight.data() + weight.size(), TypeParam(2));
    const auto bias = random_tensor<TypeParam, 1>({10}, 2);
    const kernels::PackedWeight<TypeParam> packed(std::type_identity<TypeParam>{},
                                                  std::as_const(weight).view(), std::as_const(bias).view());
    const auto y = this->product(3, packed, x);
    for (Index o = 0; o < 10; ++o)
      EXPECT_NEAR(static_cast<double>(y[static_cast<std::size_t>(15 + o)]),
                  2 * static_cast<double>(in) + static_cast<double>(bias(o)),
                  static_cast<double>(in + 1) * 4 *
                      static_cast<double>(std::numeric_limits<TypeParam>::epsilon()) * 10);
  }
}

/// Tokens are in blocks of one size and another, weights in one slice and in several: the order of the sum is
/// the same.
TYPED_TEST(Projection, GivesATokenTheSameBitsAloneAndAmongOthers) {
  for (const Index in : {100, 640, 1300}) {
    const auto x = random_tensor<TypeParam, 2>({41, in}, 1),
               weight = random_tensor<TypeParam, 2>({60, in}, 2);
    const kernels::PackedWeight<TypeParam> packed(std::type_identity<TypeParam>{},
                                                  std::as_const(weight).view(),
                                                  attn::TensorView<const TypeParam, 1>{});
    const auto all = this->product(41, packed, x);
    for (const Index t : {0, 17, 40}) {
      attn::Tensor<TypeParam, 2> row({1, in});
      copy(std::as_const(x).view().slice(0, {t, t + 1}), row.view());
      const auto alone = this->product(1, packed, row);
      for (Index o = 0; o < 60; ++o)
        EXPECT_EQ(all[static_cast<std::size_t>(t * 65 + o)], alone[static_cast<std::size_t>(o)]) << in;
    }
  }
}

TYPED_TEST(Projection, PacksFeaturesBeyondTheLastAsZeros) {
  const auto weight = random_tensor<TypeParam, 2>({5, 3}, 1);
  const auto bias = random_tensor<TypeParam, 1>({5}, 2);
  const kernels::PackedWeight<TypeParam> packed(std::type_identity<TypeParam>{}, std::as_const(weight).view(),
                                                std::as_const(bias).view());
  for (Index o = 0; o < packed.panel_count() * packed.lanes; ++o) {
    const Index panel = o / packed.lanes, lane = o % packed.lanes;
    const auto slice = packed.slice(panel, 0);
    const auto* const weights = reinterpret_cast<const TypeParam*>(slice.weights);
    EXPECT_EQ(slice.bias[lane], o < 5 ? bias(o) : 0);
    for (Index i = 0; i < 3; ++i) EXPECT_EQ(weights[i * packed.lanes + lane], o < 5 ? weight(o, i) : 0);
  }
}

}  // namespace
