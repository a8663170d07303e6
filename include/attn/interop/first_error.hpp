// attn/interop/first_error.hpp - FirstError: carries an exception from a foreign thread to the caller.
#pragma once
#include <exception>
#include <mutex>
#include <utility>

#include "attn/core/config.hpp"

ATTN_NAMESPACE_BEGIN

/// Keeps the first exception of many threads. In a build without exceptions it only calls.
class FirstError {
 public:
  /// Calls f; returns false if it threw.
  template <class F>
  bool run(F f) {
#if defined(__cpp_exceptions)
    try {
      f();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      return false;
    }
#else
    f();
#endif
    return true;
  }
  /// Once no thread runs any more: throws what was kept, if anything.
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

ATTN_NAMESPACE_END
