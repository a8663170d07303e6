#include "attn/ops/build_info.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace {

TEST(BuildInfo, NamesTheVersionsOfTheProjectAndOfEigen) {
  constexpr attn::BuildInfo info = attn::build_info();
  EXPECT_STREQ(info.version, ATTN_TEST_PROJECT_VERSION);
  EXPECT_STREQ(info.eigen_version, ATTN_TEST_EIGEN_VERSION);
}

TEST(BuildInfo, SaysWhatTheCompilersFlagsSay) {
  constexpr attn::BuildInfo info = attn::build_info();
#if defined(EIGEN_DONT_VECTORIZE)
  EXPECT_STREQ(info.instruction_set, "scalar");
  EXPECT_EQ(info.float_lanes, 1);
  EXPECT_FALSE(info.is_fast());
#elif defined(__AVX512DQ__)
#if defined(__AVX512BF16__) && (defined(__AMX_BF16__) || defined(__AMXBF16__))
  EXPECT_STREQ(info.instruction_set, "amxbf16");
  EXPECT_TRUE(info.has_16_bit_dots);
#elif defined(__AVX512BF16__)
  EXPECT_STREQ(info.instruction_set, "avx512bf16");
  EXPECT_TRUE(info.has_16_bit_dots);
#else
  EXPECT_STREQ(info.instruction_set, "avx512dq");
  EXPECT_FALSE(info.has_16_bit_dots);
#endif
  EXPECT_EQ(info.float_lanes, 16);
  EXPECT_TRUE(info.is_fast());
#elif defined(__AVX2__) && defined(__FMA__)
  EXPECT_STREQ(info.instruction_set, "avx2");
  EXPECT_FALSE(info.has_16_bit_dots);
  EXPECT_EQ(info.float_lanes, 8);
  EXPECT_TRUE(info.is_fast());
#elif defined(__aarch64__)
  EXPECT_EQ(info.float_lanes, 4);
  EXPECT_TRUE(info.is_fast());
#elif defined(__x86_64__) && !defined(__AVX__)
  EXPECT_EQ(info.float_lanes, 4);
  EXPECT_FALSE(info.is_fast());
#else
  EXPECT_EQ(info.is_fast(), info.has_fma && info.float_lanes >= 4);
#endif
}

TEST(BuildInfo, IsPrintedInALine) {
  std::ostringstream line;
  line << attn::BuildInfo{"1.2.3", "3.4.0", "avx2", 8, true, false};
  EXPECT_EQ(line.str(), "attn 1.2.3, Eigen 3.4.0, avx2, 8 floats per register, multiply-add");
}

}  // namespace
