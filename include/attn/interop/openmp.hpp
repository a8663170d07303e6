// attn/interop/openmp.hpp - OpenMp: an executor on the threads of OpenMP, which it shares with the rest of
// the program.
#pragma once
#include <algorithm>
#include <atomic>

#include "attn/core/error.hpp"
#include "attn/core/executor.hpp"
#include "attn/interop/first_error.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

ATTN_NAMESPACE_BEGIN
// The name tells the two builds apart at link time: a program may hold units of either.
#if defined(_OPENMP)
inline namespace with_openmp {
#else
inline namespace without_openmp {
#endif

/// parallel_for as an OpenMP loop with dynamic schedule; without -fopenmp the tasks run on the calling
/// thread, and concurrency() is 1. Called inside a parallel region, OpenMP's own rules for nesting hold (by
/// default: one thread).
class OpenMp {
 public:
  /// As many threads as OpenMP would use (OMP_NUM_THREADS).
  OpenMp() : OpenMp(default_threads()) {}
  /// @throws std::invalid_argument if num_threads < 1.
  explicit OpenMp(Index num_threads) : num_threads_(num_threads) {
    check<std::invalid_argument>(num_threads >= 1, "OpenMp: num_threads ", num_threads,
                                 " must be at least 1");
  }

  Index concurrency() const { return std::min(num_threads_, most_threads); }

  /// An exception of a task stops the hand-out of further tasks and is rethrown here.
  void parallel_for(Index count, TaskRef task) const {
#if defined(_OPENMP)
    FirstError error;
    std::atomic<bool> failed{false};
    const int threads = static_cast<int>(std::clamp<Index>(count, 1, concurrency()));
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (Index i = 0; i < count; ++i)
      if (!failed.load(std::memory_order_relaxed) && !error.run([&] { task(i, omp_get_thread_num()); }))
        failed.store(true, std::memory_order_relaxed);
    error.rethrow();
#else
    Sequential::parallel_for(count, task);
#endif
  }

 private:
#if defined(_OPENMP)
  static constexpr Index most_threads = 1 << 16;
  static Index default_threads() { return omp_get_max_threads(); }
#else
  static constexpr Index most_threads = 1;
  static Index default_threads() { return 1; }
#endif

  Index num_threads_;
};

}  // inline namespace
ATTN_NAMESPACE_END
