// attn/modules/fused_qkv.hpp - query, key and value projections that a checkpoint stores as one matrix.
#pragma once
#include "attn/modules/multi_head_attention.hpp"

ATTN_NAMESPACE_BEGIN

/// In which order the rows of a fused projection stand. Checkpoints do not say; the wrong choice gives wrong
/// numbers and no error, so there is no default.
enum class QkvLayout {
  blocks,  ///< all query heads, all key heads, all value heads (GPT-2, PyTorch's in_proj)
  per_head,  ///< of each head its query, key and value (GPT-NeoX, BLOOM); as many key-value heads as query heads
  per_group  ///< of each key-value head: the query heads that share it, its key, its value (Falcon, GQA in Megatron)
};

namespace detail {

/// Copies heads of `dim` rows from `fused`, where head h starts at row first(h), one after the other.
template <class T, class From, int Rank, class First>
void gather_heads(const TensorView<From, Rank>& fused, Parameter<T, Rank>& parameter, Index dim,
                  First first) {
  parameter.edit([&](const TensorView<T, Rank>& rows) {
    for (Index h = 0; h * dim < rows.extent(0); ++h)
      copy(fused.slice(0, {first(h), first(h) + dim}), rows.slice(0, {h * dim, (h + 1) * dim}));
  });
}

template <class T, class From, int Rank, class Part>
void split_fused_qkv(MultiHeadAttention<T>& module, const TensorView<From, Rank>& fused, QkvLayout layout,
                     Part part) {
  const MultiHeadAttentionConfig& c = module.config();
  const Index q_dim = c.head_dim, v_dim = c.value_dim, group = c.num_heads / c.num_kv_heads;
  const Index q_rows = c.num_heads * q_dim, k_rows = c.num_kv_heads * q_dim, v_rows = c.num_kv_heads * v_dim;
  check(fused.extent(0) == q_rows + k_rows + v_rows, "assign_fused_qkv: ", fused, " does not have ", q_rows,
        " + ", k_rows, " + ", v_rows, " rows for queries, keys and values");
  check(layout != QkvLayout::per_head || group == 1,
        "assign_fused_qkv: the layout per_head needs as many key-value ", "heads as query heads, not ",
        c.num_kv_heads, " and ", c.num_heads);
  if (layout == QkvLayout::blocks) {
    gather_heads(fused, part(module.q_proj()), q_dim, [&](Index h) { return h * q_dim; });
    gather_heads(fused, part(module.k_proj()), q_dim, [&](Index h) { return q_rows + h * q_dim; });
    gather_heads(fused, part(module.v_proj()), v_dim, [&](Index h) { return q_rows + k_rows + h * v_dim; });
  } else {
    const Index step = (group + 1) * q_dim + v_dim;
    gather_heads(fused, part(module.q_proj()), q_dim,
                 [&](Index h) { return h / group * step + h % group * q_dim; });
    gather_heads(fused, part(module.k_proj()), q_dim, [&](Index h) { return h * step + group * q_dim; });
    gather_heads(fused, part(module.v_proj()), v_dim,
                 [&](Index h) { return h * step + (group + 1) * q_dim; });
  }
}

}  // namespace detail

/// Splits a fused weight [query rows + key rows + value rows, embed_dim] onto the projections. A checkpoint
/// that stores it as [in, out] is passed as a transposed view.
/// @throws ShapeError if the extents or the layout do not fit the module.
template <Element T, TensorLike X>
  requires(rank_of<X> == 2)
void assign_fused_qkv(MultiHeadAttention<T>& module, const X& weight, QkvLayout layout) {
  const auto fused = detail::read_view(weight);
  const MultiHeadAttentionConfig& c = module.config();
  check(fused.extent(1) == c.embed_dim && c.kdim == c.embed_dim && c.vdim == c.embed_dim,
        "assign_fused_qkv: weight ", fused, " does not fit inputs of ", c.embed_dim, ", ", c.kdim, " and ",
        c.vdim);
  detail::split_fused_qkv(
      module, fused, layout, [](Linear<T> & projection) -> auto& { return projection.weight(); });
}

/// As above for the bias, [query rows + key rows + value rows].
template <Element T, TensorLike X>
  requires(rank_of<X> == 1)
void assign_fused_qkv(MultiHeadAttention<T>& module, const X& bias, QkvLayout layout) {
  const MultiHeadAttentionConfig& c = module.config();
  check(*c.q_bias && *c.k_bias && *c.v_bias, "assign_fused_qkv: bias ", detail::read_view(bias),
        " is for q, k and v, but the module has q_bias ", *c.q_bias, ", k_bias ", *c.k_bias, " and v_bias ",
        *c.v_bias);
  detail::split_fused_qkv(
      module, detail::read_view(bias), layout,
      [](Linear<T> & projection) -> auto& { return projection.bias(); });
}

ATTN_NAMESPACE_END
