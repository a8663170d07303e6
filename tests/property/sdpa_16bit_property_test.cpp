// As sdpa_property_test.cpp, for elements of 16 bits: sums in float, results rounded once.
#include "property/sdpa_case.hpp"

namespace {

TEST(SdpaProperty, HalfEqualsTheFormulaRounded) {
  attn_property::expect_formula_in_random_cases<Eigen::half, true>(8);
}
TEST(SdpaProperty, Bfloat16EqualsTheFormulaRounded) {
  attn_property::expect_formula_in_random_cases<Eigen::bfloat16, true>(8);
}

}  // namespace
