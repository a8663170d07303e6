// tests/modules/derived_copy_test.cpp - a derived value is built once, by one of many threads, and never
// stale.
#include "attn/modules/derived_copy.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace {

using Copy = attn::DerivedCopy<std::vector<int>, 2>;

TEST(DerivedCopy, IsBuiltAgainWhenAnyVersionDiffers) {
  const Copy copy;
  int builds = 0;
  const auto build = [&] { return std::vector<int>{++builds}; };
  EXPECT_EQ(copy.get({1, 0}, build), std::vector<int>{1});
  EXPECT_EQ(copy.get({1, 0}, build), std::vector<int>{1});
  EXPECT_EQ(copy.get({1, 2}, build), std::vector<int>{2});
  EXPECT_EQ(copy.get({3, 2}, build), std::vector<int>{3});
  EXPECT_EQ(copy.get({1, 2}, build), std::vector<int>{4});
}

TEST(DerivedCopy, MovesWithItsValueAndCopiesWithoutIt) {
  Copy copy;
  int builds = 0;
  const auto build = [&] { return std::vector<int>{++builds}; };
  copy.get({1, 1}, build);
  Copy moved = std::move(copy);
  EXPECT_EQ(moved.get({1, 1}, build), std::vector<int>{1});
  const Copy copied = moved;
  EXPECT_EQ(copied.get({1, 1}, build), std::vector<int>{2});
  moved = copied;
  EXPECT_EQ(moved.get({1, 1}, build), std::vector<int>{3});
}

TEST(DerivedCopy, IsBuiltByOneOfManyThreadsThatAskAtOnce) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    const Copy copy;
    std::atomic<int> builds{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        const auto& value = copy.get({7, 8}, [&] {
          ++builds;
          return std::vector<int>(1000, 42);
        });
        EXPECT_EQ(value[999], 42);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(builds, 1);
  }
}

TEST(DerivedCopy, SurvivesABuildThatThrows) {
  const Copy copy;
  EXPECT_THROW(copy.get({1, 1}, []() -> std::vector<int> { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_EQ(copy.get({1, 1}, [] { return std::vector<int>{5}; }), std::vector<int>{5});
}

}  // namespace
