#include "attn/core/error.hpp"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "attn/core/tensor_view.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"

namespace {

using attn_test::error_text;

TEST(Check, ThrowsItsPartsAsOneText) {
  const std::string text = error_text<attn::ShapeError>([] {
    attn::check(false, "sdpa: q ", attn::Dims<2>{{3, 4}}, " and k ", attn::Dims<2>{{5, 8}}, " differ");
  });
  EXPECT_EQ(text, "attn: sdpa: q [3, 4] and k [5, 8] differ");
}

TEST(Check, ThrowsTheErrorItIsAskedFor) {
  EXPECT_EQ(error_text<attn::FormatError>(
                [] { attn::check<attn::FormatError>(false, "file.safetensors: no header"); }),
            "attn: file.safetensors: no header");
}

TEST(Check, FormatsNothingWhenTheConditionHolds) {
  EXPECT_EQ(attn_test::allocations_in([] { attn::check(true, "text ", 42, std::string_view("more text")); }),
            0u);
}

TEST(Errors, CanBeCaughtAsTheStandardTypesTheyDeriveFrom) {
  EXPECT_TRUE((std::is_base_of_v<std::invalid_argument, attn::ShapeError>));
  EXPECT_TRUE((std::is_base_of_v<std::runtime_error, attn::FormatError>));
}

}  // namespace
