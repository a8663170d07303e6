// attn/kernels/passes.hpp - where operations enter the kernels: a function per kernel and element type, which
// attn::compiled can hold.
#pragma once
#include "attn/kernels/flash_forward.hpp"
#include "attn/kernels/projection.hpp"
#include "attn/kernels/row_products.hpp"
#include "attn/kernels/run_tasks.hpp"
#include "attn/kernels/score_pass.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// The mask of a pass over elements of type E.
template <class E>
using ForwardHooks = typename ForwardPass<E>::Hooks;

/// Fused attention: out, and logsumexp where it is wanted.
template <class E>
void run_forward(const ForwardArguments<E>& arguments, const ForwardHooks<E>& hooks,
                 const ExecutorRef& executor, Workspace& workspace) {
  using A = Accumulator<E>;
  using FewRows = RowProducts<A>;
  const Problem& p = *hooks.problem;
  if (p.q_len * p.group_size() <= FewRows::max_rows)
    run_tasks<A>(ForwardPass<E, FewRows>(arguments, hooks), executor, workspace);
  else
    run_tasks<A>(ForwardPass<E>(arguments, hooks), executor, workspace);
}

/// The scores of all pairs at a stage; arguments.logsumexp holds the results of run_forward.
template <class E>
void run_scores(const ForwardArguments<E>& arguments, const ForwardHooks<E>& hooks, ScoreStage stage,
                const TensorView<Accumulator<E>, 4>& scores, const ExecutorRef& executor,
                Workspace& workspace) {
  run_tasks<Accumulator<E>>(ScorePass<E>(arguments, hooks, stage, scores), executor, workspace);
}

template <class A>
void run_projection(const ProjectionArguments<A>& arguments, const ExecutorRef& executor,
                    Workspace& workspace) {
  run_tasks<A>(Projection<A>(arguments), executor, workspace);
}

#ifdef ATTN_INSTANTIATE
#define ATTN_INSTANTIATE_PASSES(E)                                                                          \
  ATTN_INSTANTIATE void run_forward(const ForwardArguments<E>&, const ForwardHooks<E>&, const ExecutorRef&, \
                                    Workspace&);                                                            \
  ATTN_INSTANTIATE void run_scores(const ForwardArguments<E>&, const ForwardHooks<E>&, ScoreStage,          \
                                   const TensorView<Accumulator<E>, 4>&, const ExecutorRef&, Workspace&);
ATTN_INSTANTIATE_PASSES(float)
ATTN_INSTANTIATE_PASSES(double)
ATTN_INSTANTIATE_PASSES(Eigen::half)
ATTN_INSTANTIATE_PASSES(Eigen::bfloat16)
#undef ATTN_INSTANTIATE_PASSES
ATTN_INSTANTIATE void run_projection(const ProjectionArguments<float>&, const ExecutorRef&, Workspace&);
ATTN_INSTANTIATE void run_projection(const ProjectionArguments<double>&, const ExecutorRef&, Workspace&);
#endif

}  // namespace kernels
ATTN_NAMESPACE_END
