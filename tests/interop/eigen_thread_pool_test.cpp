#include "attn/interop/eigen_thread_pool.hpp"

#include <gtest/gtest.h>

#if __has_include(<Eigen/ThreadPool>)
#include <Eigen/ThreadPool>
#else
#include <unsupported/Eigen/CXX11/ThreadPool>
#endif

#include <thread>
#include <vector>

#include "interop/executor_laws.hpp"

namespace {

using attn::EigenThreadPool;
using attn::Index;

TEST(EigenThreadPool, KeepsThePromisesOfAnExecutor) {
  for (const int threads : {1, 3}) {
    Eigen::ThreadPool pool(threads);
    EigenThreadPool executor(pool);
    EXPECT_EQ(executor.concurrency(), threads + 1);
    attn_test::expect_executor_laws(executor);
  }
}

TEST(EigenThreadPool, TakesThePoolByItsInterface) {
  Eigen::ThreadPool pool(2);
  EigenThreadPool<Eigen::ThreadPoolInterface> executor(pool);
  attn_test::expect_executor_laws(executor);
}

TEST(EigenThreadPool, ServesSeveralCallersAtOnce) {
  Eigen::ThreadPool pool(2);
  EigenThreadPool executor(pool);
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i)
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 50; ++repeat)
        attn_test::expect_every_task_once_with_a_worker_of_its_own(executor, 20);
    });
  for (std::thread& caller : callers) caller.join();
}

// A pool whose threads are all taken must not hold up the caller, who can do the work alone.
TEST(EigenThreadPool, DoesNotWaitForABusyPool) {
  Eigen::ThreadPool pool(1);
  std::atomic<bool> release{false};
  pool.Schedule([&] {
    while (!release.load()) std::this_thread::yield();
  });
  EigenThreadPool executor(pool);
  attn_test::expect_every_task_once_with_a_worker_of_its_own(executor, 100);
  release.store(true);
}

TEST(EigenThreadPool, RunsOnItsOwnThreadWhenCalledFromThere) {
  Eigen::ThreadPool pool(1);
  EigenThreadPool executor(pool);
  std::atomic<Index> sum{-1};
  pool.Schedule([&] {
    Index total = 0;
    executor.parallel_for(10, [&](Index task, Index) { total += task; });
    sum.store(total);
  });
  while (sum.load() < 0) std::this_thread::yield();
  EXPECT_EQ(sum.load(), 45);
}

}  // namespace
