// attn/modules/residual.hpp - add_branch: a residual branch with its norm, before or behind.
#pragma once
#include "attn/modules/norm.hpp"

ATTN_NAMESPACE_BEGIN

/// Where a layer normalises: `post`, norm(x + f(x)), as in the paper and BERT; or `pre`, x + f(norm(x)).
enum class NormPlacement { post, pre };

namespace detail {

/// x = norm(x + f(x)) or x + f(norm(x)), in place, where branch(in) does x += f(in); `in` is x itself or
/// scratch. run.workspace is set.
template <Element X, Element T, class Branch>
void add_branch(NormPlacement placement, const Norm<T>& norm, const TensorView<X, 3>& x,
                const RunOptions& run, const Branch& branch) {
  if (placement == NormPlacement::post) {
    branch(x);
    norm.forward_into(x, x, run);
  } else {
    Workspace::Frame frame(*run.workspace);
    const TensorView<X, 3> normed(frame.take<X>(x.size()).data(), x.extents());
    norm.forward_into(x, normed, run);
    branch(normed);
  }
}

}  // namespace detail
ATTN_NAMESPACE_END
