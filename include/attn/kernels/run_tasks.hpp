// attn/kernels/run_tasks.hpp - runs the tasks of a kernel on an executor, each worker with scratch of its
// own.
#pragma once
#include "attn/core/executor.hpp"
#include "attn/core/workspace.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// A pass has task_count(), scratch_size() in elements of A, and run(task, scratch).
template <class A, class Pass>
void run_tasks(const Pass& pass, const ExecutorRef& executor, Workspace& workspace) {
  const Index tasks = pass.task_count();
  if (tasks == 0) return;
  const Index line = 64 / static_cast<Index>(sizeof(A)),
              size = (pass.scratch_size() + line - 1) / line * line;
  Workspace::Frame frame(workspace);
  A* const scratch = frame.template take<A>(size * executor.concurrency()).data();
  executor.parallel_for(tasks, [&](Index task, Index worker) { pass.run(task, scratch + worker * size); });
}

}  // namespace kernels
ATTN_NAMESPACE_END
