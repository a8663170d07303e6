#include "attn/core/thread_pool.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/counting_new.hpp"
#include "support/error_text.hpp"

namespace {

using attn::Index;
using attn::ThreadPool;

std::vector<int> runs_of_each_task(ThreadPool& pool, Index count) {
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
  pool.parallel_for(count, [&](Index task, Index) { ++runs[static_cast<std::size_t>(task)]; });
  return {runs.begin(), runs.end()};
}

TEST(ThreadPool, RunsEachTaskOnce) {
  for (const Index threads : {1, 2, 7}) {
    ThreadPool pool(threads);
    for (const Index count : {0, 1, 2, 5, 1000})
      EXPECT_EQ(runs_of_each_task(pool, count), std::vector<int>(static_cast<std::size_t>(count), 1))
          << threads << " threads, " << count << " tasks";
  }
}

TEST(ThreadPool, RunsEachTaskOnceInThousandsOfShortLoops) {
  ThreadPool pool(3);
  for (int loop = 0; loop < 5000; ++loop) {
    std::array<std::atomic<int>, 4> runs{};
    pool.parallel_for(4, [&](Index task, Index) { ++runs[static_cast<std::size_t>(task)]; });
    for (const auto& count : runs) ASSERT_EQ(count.load(), 1) << "loop " << loop;
  }
}

TEST(ThreadPool, WakesWorkersThatHaveFallenAsleep) {
  ThreadPool pool(2);
  std::atomic<bool> both_inside{false};
  for (int loop = 0; loop < 3; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::atomic<int> inside{0};
    // Each of the two tasks waits for the other: that only ends if the sleeping worker takes one of them.
    pool.parallel_for(2, [&](Index, Index) {
      ++inside;
      const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (inside.load() < 2 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
      if (inside.load() == 2) both_inside = true;
    });
    EXPECT_TRUE(both_inside.exchange(false));
  }
}

TEST(ThreadPool, NeverGivesOneWorkerToTwoTasksAtATime) {
  ThreadPool pool(4);
  std::array<std::atomic<int>, 4> busy{};
  std::atomic<bool> shared{false};
  pool.parallel_for(2000, [&](Index, Index worker) {
    auto& mine = busy.at(static_cast<std::size_t>(worker));
    if (++mine != 1) shared = true;
    --mine;
  });
  EXPECT_FALSE(shared.load());
}

TEST(ThreadPool, OfOneCreatesNoThread) {
  ThreadPool pool(1);
  EXPECT_EQ(pool.concurrency(), 1);
  std::set<std::thread::id> threads;
  pool.parallel_for(100, [&](Index, Index worker) {
    threads.insert(std::this_thread::get_id());
    EXPECT_EQ(worker, 0);
  });
  EXPECT_EQ(threads, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST(ThreadPool, CountsTheCallingThread) {
  ThreadPool pool(3);
  EXPECT_EQ(pool.concurrency(), 3);
}

TEST(ThreadPool, RunsNestedLoopsInlineOnTheSameThread) {
  ThreadPool pool(3);
  std::atomic<int> inner_runs{0};
  std::atomic<bool> left_the_thread{false};
  pool.parallel_for(6, [&](Index, Index) {
    const auto outer = std::this_thread::get_id();
    pool.parallel_for(5, [&](Index, Index worker) {
      ++inner_runs;
      if (std::this_thread::get_id() != outer || worker != 0) left_the_thread = true;
    });
  });
  EXPECT_EQ(inner_runs.load(), 30);
  EXPECT_FALSE(left_the_thread.load());
}

TEST(ThreadPool, GivesAnExceptionOfATaskToTheCaller) {
  for (const Index threads : {1, 3}) {
    ThreadPool pool(threads);
    EXPECT_EQ(attn_test::error_text<std::runtime_error>([&] {
                pool.parallel_for(100, [](Index task, Index) {
                  if (task == 42) throw std::runtime_error("task 42");
                });
              }),
              "task 42");
  }
}

TEST(ThreadPool, GivesOneExceptionWhenEveryTaskThrows) {
  ThreadPool pool(3);
  EXPECT_EQ(attn_test::error_text<std::runtime_error>(
                [&] { pool.parallel_for(100, [](Index, Index) { throw std::runtime_error("each"); }); }),
            "each");
}

TEST(ThreadPool, HandsOutNoMoreTasksAfterAnException) {
  ThreadPool pool(1);
  int runs = 0;
  EXPECT_THROW(pool.parallel_for(100,
                                 [&](Index task, Index) {
                                   ++runs;
                                   if (task == 9) throw std::runtime_error("stop");
                                 }),
               std::runtime_error);
  EXPECT_EQ(runs, 10);
}

TEST(ThreadPool, WorksAfterAnException) {
  ThreadPool pool(3);
  for (int loop = 0; loop < 100; ++loop) {
    EXPECT_THROW(pool.parallel_for(10, [](Index, Index) { throw std::logic_error("again"); }),
                 std::logic_error);
    EXPECT_EQ(runs_of_each_task(pool, 20), std::vector<int>(20, 1));
  }
}

TEST(ThreadPool, MayBeCalledByManyThreadsAtOnce) {
  ThreadPool pool(3);
  std::atomic<int> runs{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int loop = 0; loop < 200; ++loop) pool.parallel_for(7, [&](Index, Index) { ++runs; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs.load(), 4 * 200 * 7);
}

TEST(ThreadPool, PublishesWhatTheTasksWrote) {
  ThreadPool pool(2);
  std::vector<Index> squares(1000);
  for (int loop = 0; loop < 50; ++loop) {
    pool.parallel_for(
        1000, [&](Index task, Index) { squares[static_cast<std::size_t>(task)] = task * task + loop; });
    for (Index i = 0; i < 1000; ++i) ASSERT_EQ(squares[static_cast<std::size_t>(i)], i * i + loop);
  }
}

TEST(ThreadPool, AllocatesNothingInALoop) {
  ThreadPool pool(2);
  std::atomic<Index> sum{0};
  EXPECT_EQ(
      attn_test::allocations_in([&] { pool.parallel_for(1000, [&](Index task, Index) { sum += task; }); }),
      0u);
  EXPECT_EQ(sum.load(), 499500);
}

TEST(ThreadPool, IsDestroyedWithoutHavingRun) {
  for (int repeat = 0; repeat < 50; ++repeat) ThreadPool pool(4);
}

TEST(ThreadPool, NeedsAtLeastTheCallingThread) {
  for (const Index threads : {0, -1})
    EXPECT_EQ(attn_test::error_text<std::invalid_argument>([&] { ThreadPool pool(threads); }),
              "attn: ThreadPool: num_threads " + std::to_string(threads) + " must be at least 1");
}

}  // namespace
