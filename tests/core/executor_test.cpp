#include "attn/core/executor.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "support/counting_new.hpp"

namespace {

using attn::ExecutorRef;
using attn::Index;

/// A pool of a user: two members suffice.
struct CountingPool {
  Index loops = 0;
  static Index concurrency() { return 3; }
  void parallel_for(Index count, attn::TaskRef task) {
    ++loops;
    for (Index i = 0; i < count; ++i) task(i, i % concurrency());
  }
};

std::vector<std::pair<Index, Index>> tasks_of(const ExecutorRef& executor, Index count) {
  std::vector<std::pair<Index, Index>> seen;
  executor.parallel_for(count, [&](Index task, Index worker) { seen.emplace_back(task, worker); });
  return seen;
}

TEST(ExecutorRef, RunsOnTheCallingThreadInOrderByDefault) {
  const std::vector<std::pair<Index, Index>> expected{{0, 0}, {1, 0}, {2, 0}};
  EXPECT_EQ(tasks_of({}, 3), expected);
  EXPECT_EQ(ExecutorRef().concurrency(), 1);
}

TEST(ExecutorRef, PassesEveryTaskToAUsersExecutor) {
  CountingPool pool;
  const std::vector<std::pair<Index, Index>> expected{{0, 0}, {1, 1}, {2, 2}, {3, 0}};
  EXPECT_EQ(tasks_of(pool, 4), expected);
  EXPECT_EQ(ExecutorRef(pool).concurrency(), 3);
  EXPECT_EQ(pool.loops, 1);
}

TEST(ExecutorRef, DoesNotBotherTheExecutorWithNoTask) {
  CountingPool pool;
  EXPECT_TRUE(tasks_of(pool, 0).empty());
  EXPECT_EQ(pool.loops, 0);
}

TEST(ExecutorRef, CopiesReferToTheSameExecutor) {
  CountingPool pool;
  const ExecutorRef first(pool);
  const ExecutorRef second = first;  // NOLINT(performance-unnecessary-copy-initialization)
  second.parallel_for(1, [](Index, Index) {});
  EXPECT_EQ(pool.loops, 1);
}

TEST(ExecutorRef, AllocatesNothing) {
  CountingPool pool;
  Index sum = 0;
  EXPECT_EQ(attn_test::allocations_in(
                [&] { ExecutorRef(pool).parallel_for(10, [&](Index task, Index) { sum += task; }); }),
            0u);
  EXPECT_EQ(sum, 45);
}

}  // namespace
