#include "attn/modules/norm.hpp"

#include <gtest/gtest.h>

#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn_test::random_tensor;

TEST(NormModule, StartsAsTheNormWithoutWeights) {
  const auto x = random_tensor<float, 3>({2, 3, 7}, 1);
  EXPECT_EQ(attn::Norm<float>({.dim = 7}).forward(x), attn::layer_norm(x));
  EXPECT_EQ(attn::Norm<float>({.dim = 7, .kind = attn::NormKind::rms}).forward(x), attn::rms_norm(x));
}

TEST(NormModule, AppliesItsOwnEpsWeightAndBias) {
  attn::Norm<double> norm({.dim = 7, .eps = 0.5});
  attn_test::randomize(norm, 1);
  const auto x = random_tensor<double, 2>({4, 7}, 2);
  EXPECT_EQ(norm.forward(x), attn::layer_norm(x, norm.weight().view(), norm.bias().view(), {.eps = 0.5}));
}

TEST(NormModule, HasABiasOnlyAsALayerNormThatWantsOne) {
  EXPECT_TRUE(attn::Norm<float>({.dim = 3}).bias());
  EXPECT_FALSE(attn::Norm<float>({.dim = 3, .bias = false}).bias());
  const attn::Norm<float> rms({.dim = 3, .kind = attn::NormKind::rms});
  EXPECT_FALSE(rms.bias());
  EXPECT_FALSE(rms.config().bias);
}

TEST(NormModule, NamesADimensionThatIsNotPositive) {
  EXPECT_EQ(attn_test::error_text<attn::ShapeError>([] { attn::Norm<float> norm({.dim = 0}); }),
            "attn: Norm: dim 0 must be positive");
}

}  // namespace
