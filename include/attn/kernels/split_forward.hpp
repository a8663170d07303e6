// attn/kernels/split_forward.hpp - attention of few queries to many keys: fixed ranges of keys are tasks of
// their own, merged in order.
//
// A pass has a task per head that has keys of its own, too few to share out among threads if one sequence is
// decoded (Dao et al. 2023, "Flash-Decoding"). The ranges follow from the shape alone, so that the bits of
// the result do not depend on the number of threads.
#pragma once
#include "attn/kernels/flash_forward.hpp"
#include "attn/kernels/run_tasks.hpp"

ATTN_NAMESPACE_BEGIN
namespace kernels {

/// The ranges that kv_len keys are cut into where the pass has `tasks` tasks.
class KeyRanges {
 public:
  KeyRanges(Index tasks, Index kv_len, Index multiple) : kv_len_(kv_len) {
    constexpr Index enough_tasks = 8, shortest = 512;
    const Index wanted = std::min(enough_tasks / std::max<Index>(tasks, 1), kv_len / shortest);
    length_ = wanted <= 1 ? kv_len : (kv_len + wanted * multiple - 1) / (wanted * multiple) * multiple;
    count_ = length_ == 0 ? 1 : (kv_len + length_ - 1) / length_;
  }
  Index count() const { return count_; }
  Range operator[](Index i) const { return {i * length_, std::min((i + 1) * length_, kv_len_)}; }

 private:
  Index kv_len_, length_ = 0, count_ = 1;
};

/// A pass whose tasks see one range of keys each; merge() after all of them have run.
template <class A, class Group>
class SplitForward {
  using Pass = ForwardPass<A, Group>;

 public:
  using Hooks = typename Pass::Hooks;

  /// `scratch` holds scratch_size(problem, ranges) elements until merge() is done.
  SplitForward(const ForwardArguments<A>& arguments, const Hooks& hooks, const KeyRanges& ranges, A* scratch)
      : x_(arguments), hooks_(hooks), p_(*hooks.problem), ranges_(ranges), whole_(arguments, hooks) {
    const Index rows = p_.batch * p_.num_heads * p_.q_len;
    outputs_ = scratch;
    maxima_ = outputs_ + ranges.count() * rows * p_.value_dim;
    sums_ = maxima_ + ranges.count() * rows;
    row_ = sums_ + ranges.count() * rows;
  }
  static Index scratch_size(const Problem& p, const KeyRanges& ranges) {
    return ranges.count() * p.batch * p.num_heads * p.q_len * (p.value_dim + 2) + p.value_dim;
  }

  Index task_count() const { return whole_.task_count() * ranges_.count(); }
  Index scratch_size() const { return whole_.scratch_size(); }
  void run(Index task, A* scratch) const {
    const Index range = task % ranges_.count();
    ForwardArguments<A> part = x_;
    part.out = outputs(range);
    part.logsumexp = {};
    part.maximum = per_row(maxima_, range);
    part.sum = per_row(sums_, range);
    Pass(part, hooks_).run(task / ranges_.count(), scratch, ranges_[range]);
  }

  void merge() const {
    for (Index b = 0; b < p_.batch; ++b)
      for (Index h = 0; h < p_.num_heads; ++h)
        for (Index i = 0; i < p_.q_len; ++i) merge_row(b, h, i);
  }

 private:
  TensorView<A, 4> outputs(Index range) const {
    const Dims<4> extents{p_.batch, p_.num_heads, p_.q_len, p_.value_dim};
    return {outputs_ + range * product(extents), extents};
  }
  A sum(Index range, Index batch, Index head, Index query) const {
    return per_row(sums_, range)(batch, head, query);
  }
  TensorView<A, 3> per_row(A* values, Index range) const {
    const Dims<3> extents{p_.batch, p_.num_heads, p_.q_len};
    return {values + range * product(extents), extents};
  }

  /// Sums over ranges, each scaled from its own maximum to the highest one; the sink in the denominator only.
  void merge_row(Index batch, Index head, Index query) const {
    const A unit = whole_.units() == ScoreUnits::natural ? A(1) : static_cast<A>(ln_2);
    const A sink = x_.sinks.empty() ? masked_score<A> : static_cast<A>(x_.sinks[as_size(head)]) / unit;
    A top = sink;
    for (Index r = 0; r < ranges_.count(); ++r)
      if (sum(r, batch, head, query) != A(0)) top = std::max(top, per_row(maxima_, r)(batch, head, query));
    const auto scale = [&](A maximum) { return std::exp((maximum - top) * unit); };
    A total = sink == masked_score<A> ? A(0) : scale(sink);
    std::fill(row_, row_ + p_.value_dim, A(0));
    for (Index r = 0; r < ranges_.count(); ++r) {
      if (sum(r, batch, head, query) == A(0)) continue;  // sees no key of the range
      const A factor = scale(per_row(maxima_, r)(batch, head, query));
      total += factor * sum(r, batch, head, query);
      const A* const part = &outputs(r)(batch, head, query, 0);
      for (Index c = 0; c < p_.value_dim; ++c) row_[c] += factor * part[c];
    }
    const A factor = total == A(0) ? A(0) : 1 / total;
    scale_row(row_, factor, p_.value_dim, row_);
    x_.out.write(row_, batch, head, query);
    if (x_.logsumexp.data() != nullptr)
      x_.logsumexp(batch, head, query) = total == A(0) ? masked_score<A> : top * unit + std::log(total);
  }

  ForwardArguments<A> x_;
  Hooks hooks_;
  Problem p_;
  KeyRanges ranges_;
  Pass whole_;
  A *outputs_, *maxima_, *sums_;  // of each range
  A* row_;
};

}  // namespace kernels
ATTN_NAMESPACE_END
