// attn/ops/merge.hpp - joins the attention over several sets of keys into the attention over all of them.
#pragma once
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <utility>

#include "attn/ops/elementwise.hpp"
#include "attn/ops/sdpa.hpp"

ATTN_NAMESPACE_BEGIN

/// Attention over one set of keys: out [..., q_len, value_dim] and the natural logsumexp [..., q_len] of each
/// row, as sdpa_with_logsumexp gives them. Rank 2 to 4; borrowed.
template <Element T>
struct AttentionPart {
  TensorView<const T, 4> out;
  TensorView<const Accumulator<T>, 3> logsumexp;

  template <TensorLike O, TensorLike L>
    requires std::same_as<ElementOf<O>, T> && std::same_as<ElementOf<L>, Accumulator<T>> AttentionPart(
        const O& o, const L& l)
        : out(as_bhld(detail::read_view(o))), logsumexp(detail::as_bhl(detail::read_view(l))) {}
};

namespace detail {

/// sum (+)= factor * x, the first time without looking at what sum holds.
template <class T, class A>
void add_multiple(A factor, const T* x, Index stride, Index count, bool is_first, A* sum) {
  const auto add = [&](auto at) ATTN_LAMBDA_INLINE {
    for (Index i = 0; i < count; ++i) {
      const A term = factor * static_cast<A>(at(i));
      sum[i] = is_first ? term : sum[i] + term;
    }
  };
  if (stride == 1)
    add([&](Index i) ATTN_LAMBDA_INLINE { return x[i]; });
  else
    add([&](Index i) ATTN_LAMBDA_INLINE { return x[i * stride]; });
}

template <class T>
struct Merge {
  using A = Accumulator<T>;
  std::span<const AttentionPart<T>> parts;
  TensorView<T, 4> out;
  TensorView<A, 3> logsumexp;

  void validate() const {
    const char* const name = "merge_attention";
    check(!parts.empty(), name, ": there is no part for out ", out);
    const Dims<3> rows{out.extent(0), out.extent(1), out.extent(2)};
    check(logsumexp.extents() == rows, name, ": logsumexp ", logsumexp, " should be ", rows, " for out ",
          out);
    check(is_disjoint(out, logsumexp), name, ": out ", out, " overlaps logsumexp");
    for (const AttentionPart<T>& part : parts) {
      check(part.out.extents() == out.extents(), name, ": out ", part.out, " of a part and out ", out,
            " differ in extents");
      check(part.logsumexp.extents() == rows, name, ": logsumexp ", part.logsumexp, " of a part should be ",
            rows, " for out ", out);
      check_elementwise(name, part.out, out);
      check_elementwise(name, part.logsumexp, logsumexp);
      check(is_disjoint(part.out, logsumexp) && is_disjoint(part.logsumexp, out), name, ": out ", out,
            " or its logsumexp overlaps the other of a part");
    }
  }

  /// With m the largest logsumexp, a part has the weight e^(logsumexp - m). Those without a key take no part,
  /// whatever their out holds. `sum`: value_dim elements of scratch.
  void run_row(Index b, Index h, Index i, A* sum) const {
    constexpr double nothing = -std::numeric_limits<double>::infinity();
    const auto of_part = [&](const AttentionPart<T>& p) { return static_cast<double>(p.logsumexp(b, h, i)); };
    double largest = nothing, total = 0;
    for (const auto& part : parts) largest = largest < of_part(part) ? of_part(part) : largest;
    const auto weight = [&](const AttentionPart<T>& p) { return std::exp(of_part(p) - largest); };
    for (const auto& part : parts)
      if (of_part(part) != nothing) total += weight(part);
    bool is_first = true;
    for (const auto& part : parts) {
      if (of_part(part) == nothing) continue;
      add_multiple(static_cast<A>(weight(part) / total), part.out[b][h][i].data(), part.out.stride(3),
                   out.extent(3), std::exchange(is_first, false), sum);
    }
    if (is_first) std::fill_n(sum, out.extent(3), A(0));
    kernels::copy_row(sum, 1, out.extent(3), out[b][h][i].data(), out.stride(3));
    logsumexp(b, h, i) = static_cast<A>(is_first ? nothing : largest + std::log(total));
  }

  void run(const RunOptions& options) const {
    const Index rows = out.extent(0) * out.extent(1) * out.extent(2), columns = out.extent(3);
    const Index size = std::max<Index>(1, columns) * static_cast<Index>(parts.size());
    const Index rows_per_task = std::max<Index>(1, elements_per_task / size);
    Workspace local;
    Workspace::Frame frame(options.workspace ? *options.workspace : local);
    A* const sums = frame.take<A>(options.executor.concurrency() * columns).data();
    options.executor.parallel_for((rows + rows_per_task - 1) / rows_per_task, [&](Index task, Index worker) {
      for (Index row = task * rows_per_task; row < std::min(rows, (task + 1) * rows_per_task); ++row)
        run_row(row / out.extent(2) / out.extent(1), row / out.extent(2) % out.extent(1), row % out.extent(2),
                sums + worker * columns);
    });
  }
};

}  // namespace detail

/// out and logsumexp of attention over the keys of all parts, for parts that share no key. Associative and
/// commutative up to rounding; a part that sees no key, (0, -inf), changes no bit. A sink is a part whose out
/// is 0 and whose logsumexp is the sink. Any strides; out and logsumexp may be those of one part. Weights are
/// computed in double, sums in float for 16-bit outputs.
/// Source: Dao et al. 2022, "FlashAttention", section 3.1; Ye et al. 2025, "FlashInfer", section 2.2.
/// @throws ShapeError if there is no part, extents differ, or results overlap parts partly.
template <WritableTensor O, WritableTensor L>
  requires std::same_as<Accumulator<ElementOf<O>>, ElementOf<L>>
void merge_attention_into(std::span<const AttentionPart<ElementOf<O>>> parts, O&& out, L&& logsumexp,
                          const RunOptions& options = {}) {
  const detail::Merge<ElementOf<O>> merge{parts, as_bhld(as_view(out)), detail::as_bhl(as_view(logsumexp))};
  merge.validate();
  merge.run(options);
}
/// The same for parts in braces: merge_attention_into({{out1, logsumexp1}, {out2, logsumexp2}}, out,
/// logsumexp).
template <WritableTensor O, WritableTensor L>
  requires std::same_as<Accumulator<ElementOf<O>>, ElementOf<L>>
void merge_attention_into(std::initializer_list<AttentionPart<ElementOf<O>>> parts, O&& out, L&& logsumexp,
                          const RunOptions& options = {}) {
  merge_attention_into(std::span(parts.begin(), parts.size()), out, logsumexp, options);
}

/// Two results of sdpa_with_logsumexp as that of both sets of keys.
template <class Out, class LogSumExp>
[[nodiscard]] AttentionWithLogSumExp<Out, LogSumExp> merge_attention(
    const AttentionWithLogSumExp<Out, LogSumExp>& a, const AttentionWithLogSumExp<Out, LogSumExp>& b,
    const RunOptions& options = {}) {
  AttentionWithLogSumExp<Out, LogSumExp> all = a;
  merge_attention_into({{a.out, a.logsumexp}, {b.out, b.logsumexp}}, all.out, all.logsumexp, options);
  return all;
}

ATTN_NAMESPACE_END
