// attn/core/thread_pool.hpp - ThreadPool: an executor with threads of its own, owned by the caller.
#pragma once
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "attn/core/error.hpp"
#include "attn/core/executor.hpp"

ATTN_NAMESPACE_BEGIN

/// `num_threads` counts the calling thread: a pool of 1 creates no thread. A worker without work spins for
/// some microseconds, so that the next loop of a forward pass finds it awake, and then sleeps.
///
/// parallel_for may be called from any thread. Called from inside a task, or while another thread's loop
/// occupies the pool, it runs inline on the calling thread: nested and concurrent callers never add threads
/// and never deadlock.
class ThreadPool {
 public:
  /// @throws std::invalid_argument if num_threads < 1.
  explicit ThreadPool(Index num_threads) {
    check<std::invalid_argument>(num_threads >= 1, "ThreadPool: num_threads ", num_threads,
                                 " must be at least 1");
    workers_.reserve(static_cast<std::size_t>(num_threads - 1));
    for (Index worker = 1; worker < num_threads; ++worker)
      workers_.emplace_back([this, worker] { serve(worker); });
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() {
    {
      const std::lock_guard lock(sleep_mutex_);
      stopping_.store(true);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  Index concurrency() const { return static_cast<Index>(workers_.size()) + 1; }

  /// Runs task(i, worker) for each i in [0, count). The first exception of a task stops the hand-out of
  /// further tasks and is rethrown here once the running ones have ended.
  void parallel_for(Index count, TaskRef task) {
    std::unique_lock<std::mutex> owner(caller_mutex_, std::defer_lock);
    if (workers_.empty() || count < 2 || inside_task_ || !owner.try_lock())
      return Sequential::parallel_for(count, task);

    task_ = &task;
    count_.store(count);
    next_.store(0);
    open();
    run_tasks(0);
    close();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  static constexpr int spins = 4000;
  static constexpr std::uint32_t open_bit = 1;    // of state_: the loop takes workers in
  static constexpr std::uint32_t one_worker = 2;  // of state_: how many are inside

  void open() {
    state_.fetch_or(open_bit);
    if (sleeping_.load() == 0) return;
    {
      const std::lock_guard lock(sleep_mutex_);
    }  // a worker that is about to sleep has seen the loop or is asleep
    wake_.notify_all();
  }
  /// Takes no worker in any more; returns when those inside have left.
  void close() {
    state_.fetch_and(~open_bit);
    for (int spin = 0; state_.load() != 0; ++spin) {
      if (spin < spins)
        ATTN_PAUSE();
      else
        std::this_thread::yield();
    }
  }
  bool enter() {
    std::uint32_t state = state_.load();
    while ((state & open_bit) != 0)
      if (state_.compare_exchange_weak(state, state + one_worker)) return true;
    return false;
  }
  bool has_work() const { return (state_.load() & open_bit) != 0 && next_.load() < count_.load(); }

  void serve(Index worker) {
    for (int idle = 0; !stopping_.load();) {
      if (has_work() && enter()) {
        run_tasks(worker);
        state_.fetch_sub(one_worker);
        idle = 0;
      } else if (++idle < spins) {
        ATTN_PAUSE();
      } else {
        sleep();
        idle = 0;
      }
    }
  }
  void sleep() {
    std::unique_lock lock(sleep_mutex_);
    sleeping_.fetch_add(1);
    wake_.wait(lock, [this] { return stopping_.load() || has_work(); });
    sleeping_.fetch_sub(1);
  }

  void run_tasks(Index worker) {
    inside_task_ = true;
    for (Index i; (i = next_.fetch_add(1)) < count_.load();) run_task(i, worker);
    inside_task_ = false;
  }
#if defined(__cpp_exceptions)
  void run_task(Index i, Index worker) {
    try {
      (*task_)(i, worker);
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      next_.store(count_.load());
    }
  }
#else
  void run_task(Index i, Index worker) { (*task_)(i, worker); }
#endif

  std::vector<std::thread> workers_;
  std::mutex caller_mutex_, sleep_mutex_, error_mutex_;
  std::condition_variable wake_;
  const TaskRef* task_ = nullptr;
  std::exception_ptr error_;
  std::atomic<Index> next_{0}, count_{0};
  std::atomic<std::uint32_t> state_{0};
  std::atomic<int> sleeping_{0};
  std::atomic<bool> stopping_{false};
  static inline thread_local bool inside_task_ = false;
};

ATTN_NAMESPACE_END
