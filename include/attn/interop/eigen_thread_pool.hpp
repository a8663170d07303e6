// attn/interop/eigen_thread_pool.hpp - EigenThreadPool: an executor on a pool that Eigen (or TensorFlow) has
// threads in.
#pragma once
#include <algorithm>
#include <atomic>
#include <concepts>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "attn/core/executor.hpp"
#include "attn/interop/first_error.hpp"

ATTN_NAMESPACE_BEGIN

/// The part of Eigen::ThreadPoolInterface that is used. Its header, which the caller has included, is
/// unsupported/Eigen/CXX11/ThreadPool in Eigen 3.4 and Eigen/ThreadPool in Eigen 5.
template <class Pool>
concept EigenThreadPoolLike = requires(Pool& pool) {
  pool.Schedule([] {});
  { pool.NumThreads() } -> std::convertible_to<int>;
  { pool.CurrentThreadId() } -> std::convertible_to<int>;
};

namespace detail {

/// One parallel loop. Outlives it in jobs that the pool starts too late: those find the loop closed.
class SharedLoop {
 public:
  SharedLoop(Index count, TaskRef task) : count_(count), task_(task) {}

  /// What a job of the pool does.
  void help(Index worker) {
    {
      const std::lock_guard lock(mutex_);
      if (is_closed_) return;
      ++helpers_;
    }
    run(worker);
    const std::lock_guard lock(mutex_);
    if (--helpers_ == 0) left_.notify_all();
  }
  /// Runs tasks until none is left or one has thrown.
  void run(Index worker) {
    for (Index i; (i = next_.fetch_add(1)) < count_;)
      if (!error_.run([&] { task_(i, worker); })) next_.store(count_);
  }
  /// Takes no helper in any more, waits for those inside, and throws what a task has thrown.
  void close() {
    std::unique_lock lock(mutex_);
    is_closed_ = true;
    left_.wait(lock, [&] { return helpers_ == 0; });
    error_.rethrow();
  }

 private:
  const Index count_;
  const TaskRef task_;
  std::atomic<Index> next_{0};
  FirstError error_;
  std::mutex mutex_;
  std::condition_variable left_;
  Index helpers_ = 0;
  bool is_closed_ = false;
};

}  // namespace detail

/// Borrows the pool, which must live as long: EigenThreadPool executor(pool); attn::sdpa(q, k, v, mask,
/// {.executor = executor}). The calling thread works too, so that the pool may be busy. May be called from
/// several threads at once; called from a thread of the pool, it runs the tasks there, so that nested loops
/// cannot deadlock. Each loop allocates, as the pool itself does for each job.
template <EigenThreadPoolLike Pool>
class EigenThreadPool {
 public:
  explicit EigenThreadPool(Pool& pool) : pool_(&pool) {}

  Index concurrency() const { return static_cast<Index>(pool_->NumThreads()) + 1; }

  /// An exception of a task stops the hand-out of further tasks and is rethrown here.
  void parallel_for(Index count, TaskRef task) const {
    const Index helpers = std::min(concurrency(), count) - 1;
    if (helpers < 1 || pool_->CurrentThreadId() >= 0) return Sequential::parallel_for(count, task);
    const auto loop = std::make_shared<detail::SharedLoop>(count, task);
    for (Index worker = 1; worker <= helpers; ++worker)
      pool_->Schedule([loop, worker] { loop->help(worker); });
    loop->run(0);
    loop->close();
  }

 private:
  Pool* pool_;
};

ATTN_NAMESPACE_END
