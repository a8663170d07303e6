#include "attn/version.hpp"

#include <gtest/gtest.h>

#include <string>

TEST(Version, IsTheOneTheBuildSystemInstalls) {
  const std::string version = std::to_string(ATTN_VERSION_MAJOR) + "." + std::to_string(ATTN_VERSION_MINOR) +
                              "." + std::to_string(ATTN_VERSION_PATCH);
  EXPECT_EQ(version, ATTN_TEST_PROJECT_VERSION);
}
