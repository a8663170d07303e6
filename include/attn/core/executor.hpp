// attn/core/executor.hpp - where parallel loops run: the Executor concept, Sequential, and the type-erased
// reference.
#pragma once
#include <concepts>
#include <type_traits>

#include "attn/core/types.hpp"

ATTN_NAMESPACE_BEGIN

/// A borrowed callable `void(Index task, Index worker)`; never outlives the call it is passed to.
class TaskRef {
 public:
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, TaskRef> && std::invocable<F&, Index, Index>)
  TaskRef(F&& f)  // NOLINT(google-explicit-constructor,bugprone-forwarding-reference-overload)
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Index task, Index worker) {
          (*static_cast<std::remove_reference_t<F>*>(object))(task, worker);
        }) {}
  void operator()(Index task, Index worker) const { call_(object_, task, worker); }

 private:
  void* object_;
  void (*call_)(void*, Index, Index);
};

/// Runs task(i, worker) once for each i in [0, count), worker in [0, concurrency()); no two tasks that run at
/// the same time see the same worker. Returns when all have run; an exception of a task reaches the caller.
template <class E>
concept Executor = requires(E& e, Index count, TaskRef task) {
  { e.concurrency() } -> std::convertible_to<Index>;
  e.parallel_for(count, task);
};

/// Runs every task on the calling thread, in order.
struct Sequential {
  static Index concurrency() { return 1; }
  static void parallel_for(Index count, TaskRef task) {
    for (Index i = 0; i < count; ++i) task(i, 0);
  }
};

/// Borrowed, type-erased executor: kernels are compiled once, not once per executor. Binds to lvalues only,
/// so that it cannot outlive a temporary. Default: Sequential.
class ExecutorRef {
 public:
  ExecutorRef() : ExecutorRef(sequential_) {}
  template <Executor E>
    requires(!std::same_as<std::remove_cv_t<E>, ExecutorRef>)
  ExecutorRef(E& executor)  // NOLINT(google-explicit-constructor)
      : object_(&executor),
        concurrency_([](void* e) { return static_cast<Index>(static_cast<E*>(e)->concurrency()); }),
        run_([](void* e, Index count, TaskRef task) { static_cast<E*>(e)->parallel_for(count, task); }) {}

  Index concurrency() const { return concurrency_(object_); }
  void parallel_for(Index count, TaskRef task) const {
    if (count > 0) run_(object_, count, task);
  }

 private:
  static inline Sequential sequential_{};
  void* object_;
  Index (*concurrency_)(void*);
  void (*run_)(void*, Index, TaskRef);
};

ATTN_NAMESPACE_END
