#include "attn/io/json.hpp"

#include <gtest/gtest.h>

#include <string>

#include "support/error_text.hpp"

namespace {

using attn::FormatError;
using attn_test::error_text;

std::string parse_error(const std::string& text, const attn::JsonLimits& limits = {}) {
  return error_text<FormatError>([&] { attn::parse_json(text, "it", limits); });
}

TEST(Json, GivesTheValue) {
  const auto value = attn::parse_json(R"({"a":[1,-2.5,"x",null,true],"b":{"a":{}}})", "it");
  EXPECT_EQ(value["a"][1], -2.5);
  EXPECT_TRUE(value["b"]["a"].is_object());
}

TEST(Json, AKeyMayComeAgainInAnotherObjectOnly) {
  EXPECT_EQ(parse_error(R"([{"a":1},{"a":{"a":1}}])"), "no error");
  EXPECT_EQ(parse_error(R"([{"b":{"a":1,"c":{},"a":2}}])"), "attn: it: the key 'a' is there twice");
}

TEST(Json, NeitherDepthNorCommentsNorTailsPass) {
  EXPECT_EQ(parse_error("[[[]]]", {.depth = 3}), "no error");
  EXPECT_EQ(parse_error("[[[]]]", {.depth = 2}), "attn: it: is nested more than 2 levels deep");
  EXPECT_EQ(parse_error(std::string(1000000, '[')), "attn: it: is nested more than 32 levels deep");
  EXPECT_EQ(parse_error(R"([1,{"a":[1,2]},3])", {.array_length = 3}), "no error");
  EXPECT_EQ(parse_error("[1,[],{},4]", {.array_length = 3}), "attn: it: an array has more than 3 elements");
  EXPECT_EQ(parse_error("[1] /* */"), "attn: it: is not JSON, as byte 5 shows");
  EXPECT_EQ(parse_error("[1,]"), "attn: it: is not JSON, as byte 4 shows");
  EXPECT_EQ(parse_error("[NaN]"), "attn: it: is not JSON, as byte 2 shows");
}

}  // namespace
