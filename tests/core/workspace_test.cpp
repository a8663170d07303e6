#include "attn/core/workspace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/counting_new.hpp"

namespace {

using attn::Index;
using attn::Workspace;

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

TEST(Workspace, GivesAlignedMemory) {
  Workspace workspace;
  Workspace::Frame frame(workspace);
  for (const Index count : {1, 3, 64, 1000}) {
    EXPECT_EQ(address(frame.take<char>(count).data()) % 64, 0u);
    EXPECT_EQ(address(frame.take<double>(count).data()) % 64, 0u);
  }
}

TEST(Workspace, GivesEachRequestItsOwnMemory) {
  Workspace workspace;
  Workspace::Frame frame(workspace);
  std::vector<std::span<int>> parts;
  for (int part = 0; part < 20; ++part) {
    parts.push_back(frame.take<int>(37 * (part + 1)));
    std::fill(parts.back().begin(), parts.back().end(), part);
  }
  for (int part = 0; part < 20; ++part) {
    EXPECT_EQ(parts[static_cast<std::size_t>(part)].size(), static_cast<std::size_t>(37 * (part + 1)));
    for (const int value : parts[static_cast<std::size_t>(part)]) ASSERT_EQ(value, part);
  }
}

TEST(Workspace, InnerFramesLeaveTheMemoryOfOuterOnesAlone) {
  Workspace workspace;
  Workspace::Frame outer(workspace);
  const auto kept = outer.take<int>(100);
  std::fill(kept.begin(), kept.end(), 7);
  for (int repeat = 0; repeat < 3; ++repeat) {
    Workspace::Frame inner(workspace);
    const auto scratch = inner.take<int>(5000);
    std::fill(scratch.begin(), scratch.end(), -1);
  }
  EXPECT_TRUE(std::all_of(kept.begin(), kept.end(), [](int value) { return value == 7; }));
}

TEST(Workspace, ReusesTheMemoryOfAFrameThatHasEnded) {
  Workspace workspace;
  const auto first_address = [&] {
    Workspace::Frame frame(workspace);
    return frame.take<float>(100).data();
  };
  EXPECT_EQ(first_address(), first_address());
}

TEST(Workspace, AllocatesNothingTheSecondTime) {
  Workspace workspace;
  const auto call = [&] {
    Workspace::Frame frame(workspace);
    frame.take<float>(1000);
    Workspace::Frame inner(workspace);
    inner.take<double>(3000);
    inner.take<char>(1);
  };
  call();
  EXPECT_EQ(attn_test::allocations_in(call), 0u);
}

TEST(Workspace, AllocatesNothingOnceItHasReservedEnough) {
  Workspace workspace;
  workspace.reserve(64 * 1024);
  EXPECT_GE(workspace.capacity(), 64u * 1024u);
  EXPECT_EQ(attn_test::allocations_in([&] {
              Workspace::Frame frame(workspace);
              frame.take<float>(8 * 1024);
              frame.take<float>(8 * 1024);
            }),
            0u);
}

TEST(Workspace, DoesNotShrinkUntilItIsReleased) {
  Workspace workspace;
  {
    Workspace::Frame frame(workspace);
    frame.take<float>(1000);
  }
  const std::size_t held = workspace.capacity();
  EXPECT_GE(held, 4000u);
  {
    Workspace::Frame frame(workspace);
    frame.take<float>(10);
  }
  EXPECT_GE(workspace.capacity(), held);
  workspace.release();
  EXPECT_EQ(workspace.capacity(), 0u);
}

TEST(Workspace, GivesAnEmptySpanForNothing) {
  Workspace workspace;
  Workspace::Frame frame(workspace);
  EXPECT_TRUE(frame.take<float>(0).empty());
}

}  // namespace
