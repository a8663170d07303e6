// attn/kernels/passes.hpp - where operations enter the kernels: a function per kernel and element type, which
// attn::compiled can hold.
#pragma once
#include "attn/kernels/flash_forward.hpp"
#include "attn/kernels/projection.hpp"
#include "attn/kernels/row_group.hpp"
#include "attn/kernels/run_tasks.hpp"
#include "attn/kernels/score_pass.hpp"
#include "attn/kernels/split_forward.hpp"
#if ATTN_HAS_MATRIX_UNIT
#include "attn/kernels/matrix_products.hpp"
#elif ATTN_HAS_BFLOAT16_DOTS
#include "attn/kernels/pair_products.hpp"
#endif

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// The mask of a pass that accumulates in A.
template <class A>
using ForwardHooks = typename ForwardPass<A>::Hooks;

namespace detail {
/// A task per head that has keys of its own; where those are few and the keys many, a task per range of keys.
template <class A>
void run_few_rows(const ForwardArguments<A>& arguments, const ForwardHooks<A>& hooks,
                  const ExecutorRef& executor, Workspace& workspace) {
  const ForwardPass<A, RowGroup<A>> pass(arguments, hooks);
  const KeyRanges ranges(pass.task_count(), hooks.problem->kv_len, ForwardShape<A>::tile_keys);
  if (ranges.count() == 1) return run_tasks<A>(pass, executor, workspace);
  Workspace::Frame frame(workspace);
  using Split = SplitForward<A, RowGroup<A>>;
  A* const scratch = frame.take<A>(Split::scratch_size(*hooks.problem, ranges)).data();
  const Split split(arguments, hooks, ranges, scratch);
  run_tasks<A>(split, executor, workspace);
  split.merge();
}
}  // namespace detail

/// Fused attention: out, and logsumexp where it is wanted.
template <class A>
void run_forward(const ForwardArguments<A>& arguments, const ForwardHooks<A>& hooks,
                 const ExecutorRef& executor, Workspace& workspace) {
  const Problem& p = *hooks.problem;
  if (p.q_len * p.group_size() <= RowProducts<A>::max_rows)
    return detail::run_few_rows<A>(arguments, hooks, executor, workspace);
#if ATTN_HAS_BFLOAT16_DOTS
  // Processors with a matrix unit take longer for their other products of bfloat16 than for those of floats.
  if constexpr (std::is_same_v<A, float>)
    if (arguments.q.holds_bfloat16() && arguments.k.holds_bfloat16() && arguments.v.holds_bfloat16()) {
#if ATTN_HAS_MATRIX_UNIT
      if (matrix_unit_is_usable())
        return run_tasks<A>(ForwardPass<A, LaneGroup<MatrixProducts>>(arguments, hooks), executor, workspace);
#else
      return run_tasks<A>(ForwardPass<A, LaneGroup<PairProducts>>(arguments, hooks), executor, workspace);
#endif
    }
#endif
  run_tasks<A>(ForwardPass<A>(arguments, hooks), executor, workspace);
}

/// The scores of all pairs at a stage; arguments.logsumexp holds the results of run_forward.
template <class A>
void run_scores(const ForwardArguments<A>& arguments, const ForwardHooks<A>& hooks, ScoreStage stage,
                const TensorView<A, 4>& scores, const ExecutorRef& executor, Workspace& workspace) {
  run_tasks<A>(ScorePass<A>(arguments, hooks, stage, scores), executor, workspace);
}

/// y = x W^T on a packed weight, with bias, residual and activation.
template <class A>
void run_projection(const ProjectionArguments<A>& arguments, const ExecutorRef& executor,
                    Workspace& workspace) {
  run_tasks<A>(Projection<A>(arguments), executor, workspace);
}

#ifdef ATTN_INSTANTIATE
#define ATTN_INSTANTIATE_PASSES(A)                                                                          \
  ATTN_INSTANTIATE void run_forward(const ForwardArguments<A>&, const ForwardHooks<A>&, const ExecutorRef&, \
                                    Workspace&);                                                            \
  ATTN_INSTANTIATE void run_scores(const ForwardArguments<A>&, const ForwardHooks<A>&, ScoreStage,          \
                                   const TensorView<A, 4>&, const ExecutorRef&, Workspace&);                \
  ATTN_INSTANTIATE void run_projection(const ProjectionArguments<A>&, const ExecutorRef&, Workspace&);
ATTN_INSTANTIATE_PASSES(float)
ATTN_INSTANTIATE_PASSES(double)
#undef ATTN_INSTANTIATE_PASSES
#endif

}  // namespace kernels
ATTN_NAMESPACE_END
