// tests/interop/executor_laws.hpp - what every executor promises, for the executors of other libraries.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "attn/core/executor.hpp"
#include "attn/masks/causal.hpp"
#include "attn/ops/sdpa.hpp"
#include "support/random_values.hpp"

namespace attn_test {

inline void expect_every_task_once_with_a_worker_of_its_own(attn::ExecutorRef executor, attn::Index count) {
  std::vector<std::atomic<int>> runs(attn::as_size(count));
  std::vector<std::atomic<int>> busy(attn::as_size(executor.concurrency()));
  std::atomic<int> clashes{0}, strangers{0};
  executor.parallel_for(count, [&](attn::Index task, attn::Index worker) {
    if (worker < 0 || worker >= executor.concurrency()) {
      ++strangers;
      return;
    }
    if (busy[attn::as_size(worker)].exchange(1) != 0) ++clashes;
    ++runs[attn::as_size(task)];
    busy[attn::as_size(worker)].store(0);
  });
  for (const auto& run : runs) ASSERT_EQ(run.load(), 1);
  EXPECT_EQ(clashes.load(), 0);
  EXPECT_EQ(strangers.load(), 0);
}

inline void expect_an_error_reaches_the_caller(attn::ExecutorRef executor) {
  const auto fails = [](attn::Index task, attn::Index) {
    if (task == 7) throw std::runtime_error("task 7");
  };
  EXPECT_THROW(executor.parallel_for(100, fails), std::runtime_error);
  expect_every_task_once_with_a_worker_of_its_own(executor, 10);
}

inline void expect_loops_within_loops_end(attn::ExecutorRef executor) {
  std::atomic<int> sum{0};
  executor.parallel_for(8, [&](attn::Index, attn::Index) {
    executor.parallel_for(8, [&](attn::Index, attn::Index) { ++sum; });
  });
  EXPECT_EQ(sum.load(), 64);
}

inline void expect_the_bits_of_one_thread(attn::ExecutorRef executor) {
  const auto x = random_tensor<float, 4>({2, 3, 130, 16}, 1);
  EXPECT_EQ(attn::sdpa(x, x, x, attn::Causal{}, {.executor = executor}), attn::sdpa(x, x, x, attn::Causal{}));
}

inline void expect_executor_laws(attn::ExecutorRef executor) {
  for (const attn::Index count : {0, 1, 2, 3, 1000})
    expect_every_task_once_with_a_worker_of_its_own(executor, count);
  expect_an_error_reaches_the_caller(executor);
  expect_loops_within_loops_end(executor);
  expect_the_bits_of_one_thread(executor);
}

}  // namespace attn_test
