// Attention on randomly drawn shapes, strides, masks and options equals the formula in double.
// ATTN_PROPERTY_CASES: how many (default 10000 over all types); a failure names its seed, and
// ATTN_PROPERTY_SEED=seed runs that case first.
#include "property/sdpa_case.hpp"

namespace {

TEST(SdpaProperty, FloatEqualsTheFormula) { attn_property::expect_formula_in_random_cases<float, false>(2); }
TEST(SdpaProperty, DoubleEqualsTheFormula) {
  attn_property::expect_formula_in_random_cases<double, false>(4);
}

}  // namespace
