// attn/modules/attend.hpp - the ways a layer can run its attention: on padded batches, on packed sequences,
// and with the weights returned.
//
// A layer projects, attends and projects back; how the middle step sees the rows is a function object
//   void operator()(const AttendArguments<T>&, const SdpaOptions&) const
// so that each layer is written once. One whose keys stand where the queries stand, not at 0, 1, ..., says
//   static constexpr bool keys_follow_queries = true;
#pragma once
#include <span>

#include "attn/core/tensor.hpp"
#include "attn/masks/score_block.hpp"
#include "attn/ops/heads.hpp"
#include "attn/ops/sdpa.hpp"

ATTN_NAMESPACE_BEGIN

/// Projected tensors [batch, len, heads * dim] and how many heads are in them; k and v are empty where a
/// cache has them.
template <Element T>
struct AttendArguments {
  TensorView<const T, 3> q, k, v;
  TensorView<T, 3> out;
  Index num_heads = 0;
  Index num_kv_heads = 0;
  Index extra_keys =
      0;  ///< the last keys, which are not the caller's: every query sees them, no mask knows them
};

/// True if key j of a call stands at query_offset + j, as where a cache holds what was before; else it stands
/// at j.
template <class Attend>
inline constexpr bool keys_follow_queries = [] {
  if constexpr (requires { Attend::keys_follow_queries; })
    return Attend::keys_follow_queries;
  else
    return false;
}();

/// A mask that knows all keys but the last `extra`, which every query sees with their score unchanged.
template <Mask M>
class WithExtraKeys {
 public:
  static constexpr bool uses_positions = attn::uses_positions<M>;
  /// Borrows the mask.
  WithExtraKeys(const M& mask, Index extra) : mask_(mask), extra_(extra) {}

  bool allows(const Site& s, const Problem& p) const {
    return s.k >= p.kv_len - extra_ || mask_allows(mask_, s, inner(p));
  }
  template <std::floating_point A>
  A score(A value, const Site& s, const Problem& p) const requires ChangesScores<M> {
    return s.k >= p.kv_len - extra_ ? value : mask_score(mask_, value, s, inner(p));
  }
  template <std::floating_point A>
  A weight(A value, const Site& s, const Problem& p) const requires ChangesWeights<M> {
    return s.k >= p.kv_len - extra_ ? value : mask_weight(mask_, value, s, inner(p));
  }
  Range key_range(const Tile& t, const Problem& p) const {
    const Range range = mask_key_range(mask_, t, inner(p));
    return {range.empty() ? p.kv_len - extra_ : range.begin, p.kv_len};
  }
  Coverage coverage(const Tile& t, const Problem& p) const {
    const Index own = p.kv_len - extra_;
    Tile known = t;
    known.k = {std::min(t.k.begin, own), std::min(t.k.end, own)};
    const Coverage covered = known.k.empty() ? Coverage::full : mask_coverage(mask_, known, inner(p));
    return covered == Coverage::none && t.k.end > own ? Coverage::partial : covered;
  }
  void validate(const Problem& p) const { mask_validate(mask_, inner(p)); }
  // The block forms hand the caller's keys to the mask's own.
  template <class Block>
  void filter(const Block& block, const Problem& p) const {
    if (const Block known = known_keys(block, p); known.keys > 0) filter_scores(mask_, known, inner(p));
  }
  template <class Block>
    requires ChangesScores<M>
  void change_scores(const Block& block, const Problem& p) const {
    if (const Block known = known_keys(block, p); known.keys > 0) attn::change_scores(mask_, known, inner(p));
  }

 private:
  template <class Block>
  Block known_keys(Block block, const Problem& p) const {
    block.keys = static_cast<Position>(std::min<Index>(block.keys, p.kv_len - extra_ - block.k));
    return block;
  }
  Problem inner(Problem p) const {
    p.kv_len -= extra_;
    return p;
  }

  const M& mask_;
  Index extra_;
};

namespace detail {
/// f(the mask that fits the keys of `a`).
template <class T, Mask M, class F>
void with_extra_keys(const AttendArguments<T>& a, const M& mask, F f) {
  if (a.extra_keys > 0)
    f(WithExtraKeys<M>(mask, a.extra_keys));
  else
    f(mask);
}
}  // namespace detail

/// Each batch entry attends under one mask.
template <Mask M>
struct AttendBatch {
  const M& mask;

  template <Element T>
  void operator()(const AttendArguments<T>& a, const SdpaOptions& options) const {
    detail::with_extra_keys(a, mask, [&](const auto& seen) {
      sdpa_into(split_heads(a.q, a.num_heads), split_heads(a.k, a.num_kv_heads),
                split_heads(a.v, a.num_kv_heads), split_heads(a.out, a.num_heads), seen, options);
    });
  }
};

/// Sequences of any lengths, stored one after the other as rows of one matrix: sequence i is rows offsets[i]
/// to offsets[i + 1]. Borrows what it is given.
struct PackedSequences {
  std::span<const Index> offsets;        ///< ascending from 0 to the number of rows
  std::span<const Index> key_lengths{};  ///< how many rows of a sequence are seen as keys; empty: all of them

  Index count() const { return offsets.empty() ? 0 : static_cast<Index>(offsets.size()) - 1; }
  Range rows(Index sequence) const {
    const auto i = static_cast<std::size_t>(sequence);
    return {offsets[i], offsets[i + 1]};
  }
  Range keys(Index sequence) const {
    const Range all = rows(sequence);
    if (key_lengths.empty()) return all;
    return {all.begin, all.begin + key_lengths[static_cast<std::size_t>(sequence)]};
  }
  /// @throws ShapeError unless the offsets ascend from 0 to `row_count` and the lengths stay within.
  void validate(Index row_count) const {
    check(!offsets.empty(), "PackedSequences: there are no offsets; they start at 0");
    check(offsets.front() == 0 && offsets.back() == row_count, "PackedSequences: the offsets run from ",
          offsets.front(), " to ", offsets.back(), "; they must start at 0 and end at the number of rows, ",
          row_count);
    check(key_lengths.empty() || static_cast<Index>(key_lengths.size()) == count(),
          "PackedSequences: ", key_lengths.size(), " key lengths for ", count(), " sequences");
    for (Index i = 0; i < count(); ++i) {
      check(rows(i).begin <= rows(i).end, "PackedSequences: sequence ", i, " ends at row ", rows(i).end,
            ", before its begin ", rows(i).begin);
      check(rows(i).begin <= keys(i).end && keys(i).end <= rows(i).end, "PackedSequences: sequence ", i,
            " has ", rows(i).size(), " rows and key length ", keys(i).end - keys(i).begin);
    }
  }
  /// The rows of one sequence.
  /// @throws ShapeError if the layer has keys of its own, which would have to stand behind each sequence.
  template <Element T>
  AttendArguments<T> arguments(const AttendArguments<T>& a, Index sequence) const {
    check(a.extra_keys == 0,
          "PackedSequences: a layer with add_bias_kv or add_zero_attn needs a padded batch");
    const Range own = rows(sequence), seen = keys(sequence);
    return {a.q.slice(1, own),   a.k.slice(1, seen), a.v.slice(1, seen),
            a.out.slice(1, own), a.num_heads,        a.num_kv_heads};
  }
};

/// The one batch entry holds packed sequences, each of which attends to itself under the mask; the mask sees
/// each as a batch of one.
template <Mask M>
struct AttendPacked {
  const PackedSequences& sequences;
  const M& mask;

  template <Element T>
  void operator()(const AttendArguments<T>& a, SdpaOptions options) const {
    options.query_offset = 0;
    for (Index i = 0; i < sequences.count(); ++i) AttendBatch<M>{mask}(sequences.arguments(a, i), options);
  }
};

/// As AttendBatch, and the weights go to `weights` [batch, num_heads, q_len, kv_len]; the output has the same
/// bits.
template <Element T, Mask M>
struct AttendWithWeights {
  const M& mask;
  TensorView<Accumulator<T>, 4> weights;

  void operator()(const AttendArguments<T>& a, const SdpaOptions& options) const {
    detail::with_extra_keys(a, mask, [&](const auto& seen) {
      sdpa_with_weights_into(split_heads(a.q, a.num_heads), split_heads(a.k, a.num_kv_heads),
                             split_heads(a.v, a.num_kv_heads), split_heads(a.out, a.num_heads), weights, seen,
                             options);
    });
  }
};

/// As AttendPacked, and the weights of sequence i go to the top left of weights[i], weights [sequences,
/// num_heads, longest, longest]; the rest is not written. The output has the same bits.
template <Element T, Mask M>
struct AttendPackedWithWeights {
  const PackedSequences& sequences;
  const M& mask;
  TensorView<Accumulator<T>, 4> weights;

  void operator()(const AttendArguments<T>& a, SdpaOptions options) const {
    options.query_offset = 0;
    for (Index i = 0; i < sequences.count(); ++i) {
      const Range queries{0, sequences.rows(i).size()}, keys{0, sequences.keys(i).size()};
      AttendWithWeights<T, M>{mask, weights.slice(0, {i, i + 1}).slice(2, queries).slice(3, keys)}(
          sequences.arguments(a, i), options);
    }
  }
};

/// The mean over the heads of weights [.., heads, q_len, kv_len]: rank 3 gives a Matrix, rank 4 a Tensor.
template <std::floating_point A, int Rank>
auto average_heads(const Tensor<A, Rank>& weights) {
  static_assert(Rank == 3 || Rank == 4, "attn: weights are [heads, q_len, kv_len] or [batch, heads, ...]");
  const TensorView<const A, 4> from = with_rank<4>(weights.view());
  Tensor<A, 3> mean({from.extent(0), from.extent(2), from.extent(3)});
  for (Index b = 0; b < from.extent(0); ++b)
    for (Index h = 0; h < from.extent(1); ++h)
      for (Index i = 0; i < from.extent(2); ++i)
        for (Index j = 0; j < from.extent(3); ++j) mean(b, i, j) += from(b, h, i, j);
  for (Index i = 0; i < mean.size(); ++i) mean.data()[i] /= static_cast<A>(from.extent(1));
  if constexpr (Rank == 3)
    return Matrix<A>(Eigen::Map<const Matrix<A>>(mean.data(), from.extent(2), from.extent(3)));
  else
    return mean;
}

ATTN_NAMESPACE_END
