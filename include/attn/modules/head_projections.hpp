// attn/modules/head_projections.hpp - HeadProjections: from rows to the queries, keys and values of all
// heads.
#pragma once
#include <optional>

#include "attn/modules/linear.hpp"
#include "attn/modules/multi_head_attention_config.hpp"
#include "attn/modules/norm.hpp"
#include "attn/ops/heads.hpp"
#include "attn/ops/rope.hpp"

ATTN_NAMESPACE_BEGIN
namespace detail {

/// x projected into scratch, [batch, len + extra, out_dim]; the `extra` rows are not yet written.
template <Element T, Element X>
TensorView<X, 3> project(const Linear<T>& projection, const TensorView<const X, 3>& x,
                         Workspace::Frame& frame, const LinearOptions& run, Index extra = 0) {
  const Dims<3> extents{x.extent(0), x.extent(1) + extra, projection.config().out_dim};
  const TensorView<X, 3> y(frame.take<X>(product(extents)).data(), extents);
  projection.forward_into(x, y.slice(1, {0, x.extent(1)}), run);
  return y;
}

/// What MultiHeadAttention does before it attends: projections, norms and rotation of heads, and the keys and
/// values of its own.
template <Element T>
struct HeadProjections {
  MultiHeadAttentionConfig config;
  Linear<T> q_proj, k_proj, v_proj;
  Norm<T> q_norm, k_norm;               ///< as config.qk_norm says
  std::optional<RotaryEmbedding> rope;  ///< as config.rope says
  Parameter<T, 1> bias_k, bias_v;       ///< as config.add_bias_kv says

  HeadProjections() = default;
  /// @throws ShapeError if the config does not fit together.
  explicit HeadProjections(const MultiHeadAttentionConfig& given)
      : config(resolved(given)),
        q_proj({config.embed_dim, config.num_heads * config.head_dim, *config.q_bias}),
        k_proj({config.kdim, config.num_kv_heads * config.head_dim, *config.k_bias}),
        v_proj({config.vdim, config.num_kv_heads * config.value_dim, *config.v_bias}) {
    if (config.qk_norm)
      q_norm = k_norm = Norm<T>({.dim = config.head_dim, .kind = *config.qk_norm, .eps = config.norm_eps});
    if (config.rope) rope.emplace(*config.rope);
    if (config.add_bias_kv) {
      bias_k = Parameter<T, 1>("bias_k", {config.num_kv_heads * config.head_dim});
      bias_v = Parameter<T, 1>("bias_v", {config.num_kv_heads * config.value_dim});
    }
  }

  /// Keys that stand behind those of the input.
  Index extra_keys() const { return (config.add_bias_kv ? 1 : 0) + (config.add_zero_attn ? 1 : 0); }

  /// Queries [batch, len, num_heads * head_dim] as they are compared with keys, in scratch. `offset`: the
  /// position of row 0, by default 0.
  template <Element X>
  TensorView<X, 3> queries(const TensorView<const X, 3>& x, const std::optional<QueryOffset>& offset,
                           Workspace::Frame& frame, const LinearOptions& run) const {
    const TensorView<X, 3> q = project(q_proj, x, frame, run);
    if (changes_heads()) normalize_and_rotate(q_norm, q, config.num_heads, offset, run);
    return q;
  }
  /// Keys [batch, len + extra_keys(), num_kv_heads * head_dim]; the extra ones are neither normalised nor
  /// rotated.
  template <Element X>
  TensorView<X, 3> keys(const TensorView<const X, 3>& x, const std::optional<QueryOffset>& offset,
                        Workspace::Frame& frame, const LinearOptions& run) const {
    const TensorView<X, 3> k = project(k_proj, x, frame, run, extra_keys());
    if (changes_heads())
      normalize_and_rotate(k_norm, k.slice(1, {0, x.extent(1)}), config.num_kv_heads, offset, run);
    append_extra_rows(k, bias_k);
    return k;
  }
  /// Values [batch, len + extra_keys(), num_kv_heads * value_dim].
  template <Element X>
  TensorView<X, 3> values(const TensorView<const X, 3>& x, Workspace::Frame& frame,
                          const LinearOptions& run) const {
    const TensorView<X, 3> v = project(v_proj, x, frame, run, extra_keys());
    append_extra_rows(v, bias_v);
    return v;
  }

 private:
  bool changes_heads() const { return config.qk_norm || rope; }
  template <Element X>
  void normalize_and_rotate(const Norm<T>& norm, const TensorView<X, 3>& rows, Index num_heads,
                            const std::optional<QueryOffset>& offset, const LinearOptions& run) const {
    const RunOptions options{run.executor, run.workspace};
    const TensorView<X, 4> heads = split_heads(rows, num_heads);
    if (config.qk_norm) norm.forward_into(heads, heads, options);
    if (rope) rope->apply(heads, offset.value_or(0), options);
  }
  template <Element X>
  void append_extra_rows(const TensorView<X, 3>& rows, const Parameter<T, 1>& bias) const {
    for (Index b = 0; b < rows.extent(0) && extra_keys() > 0; ++b) {
      Index row = rows.extent(1) - extra_keys();
      if (config.add_bias_kv) copy(bias.view(), rows[b][row++]);
      if (config.add_zero_attn) std::fill_n(&rows(b, row, 0), rows.extent(2), X(0));
    }
  }
};

}  // namespace detail
ATTN_NAMESPACE_END
