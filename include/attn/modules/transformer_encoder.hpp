// attn/modules/transformer_encoder.hpp - TransformerEncoderLayer and TransformerEncoder.
#pragma once
#include <vector>

#include "attn/modules/residual.hpp"
#include "attn/modules/transformer_config.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// out = x, where the two are the same memory or do not overlap.
template <class T, int Rank>
void place_input(const char* name, const TensorView<const T, Rank>& x, const TensorView<T, Rank>& out) {
  check_elementwise(name, x, out);
  if (x.data() != out.data()) copy(x, out);
}

/// x as a batch; a matrix is a batch of one.
template <class X>
auto as_batch(X&& x) {
  static_assert(rank_of<X> == 2 || rank_of<X> == 3, "attn: inputs are [len, dim] or [batch, len, dim]");
  return with_rank<3>(as_view(x));
}

/// The forms in which every stack and layer with self-attention can be called; Derived has apply().
template <class Derived>
class SelfAttending {
 public:
  using Options = MultiHeadAttentionOptions;

  /// x and out [len, embed_dim] or [batch, len, embed_dim]; `out` is x itself or lies elsewhere.
  /// Both have one element type, which need not be that of the weights (takes_activations says which). With a
  /// workspace that has served this shape once, nothing is allocated.
  /// @throws ShapeError if the extents or the mask do not fit.
  template <TensorLike X, WritableTensor Out, Mask M = NoMask>
  void forward_into(const X& x, Out&& out, const M& mask = {}, const Options& options = {}) const {
    place_input("TransformerEncoder forward_into", read_view(x), as_view(out));
    run(as_batch(out), AttendBatch<M>{mask}, options);
  }

  /// As forward_into; returns out: a Matrix for rank 2, else a Tensor.
  template <TensorLike X, Mask M = NoMask>
  [[nodiscard]] auto forward(const X& x, const M& mask = {}, const Options& options = {}) const {
    auto out = make_result<ElementOf<const X>>(read_view(x).extents());
    forward_into(x, out, mask, options);
    return out;
  }

  /// Sequences of unequal length without padding: x and out [rows, embed_dim] hold them one after the other,
  /// each attends to itself under the mask, which sees it as a batch of one. Computes what forward_into
  /// computes for each alone.
  template <TensorLike X, WritableTensor Out, Mask M = NoMask>
    requires(rank_of<X> == 2)
  void forward_packed_into(const X& x, const PackedSequences& sequences, Out&& out, const M& mask = {},
                           const Options& options = {}) const {
    sequences.validate(read_view(x).extent(0));
    place_input("TransformerEncoder forward_packed_into", read_view(x), as_view(out));
    run(as_batch(out), AttendPacked<M>{sequences, mask}, options);
  }

 private:
  template <Element X, class Attend>
  void run(const TensorView<X, 3>& x, const Attend& attend, Options options) const {
    Workspace local;
    if (options.workspace == nullptr) options.workspace = &local;
    static_cast<const Derived&>(*this).apply(x, attend, options);
  }
};

}  // namespace detail

/// Self-attention and feed-forward network, each with a residual connection and a norm (Vaswani et al. 2017,
/// section 3.1). One object may serve any number of threads at once, each call with its own workspace.
template <Element T>
class TransformerEncoderLayer : public detail::SelfAttending<TransformerEncoderLayer<T>> {
 public:
  TransformerEncoderLayer() = default;
  /// @throws ShapeError as MultiHeadAttention and FeedForward.
  explicit TransformerEncoderLayer(const TransformerLayerConfig& config)
      : config_(config),
        self_attention_(config.attention()),
        feed_forward_(config.feed_forward()),
        norm1_(config.norm_config()),
        norm2_(config.norm_config()) {}

  const TransformerLayerConfig& config() const { return config_; }
  MultiHeadAttention<T>& self_attention() { return self_attention_; }
  const MultiHeadAttention<T>& self_attention() const { return self_attention_; }
  FeedForward<T>& feed_forward() { return feed_forward_; }
  const FeedForward<T>& feed_forward() const { return feed_forward_; }
  /// The norm of the attention.
  Norm<T>& norm1() { return norm1_; }
  const Norm<T>& norm1() const { return norm1_; }
  /// The norm of the feed-forward network.
  Norm<T>& norm2() { return norm2_; }
  const Norm<T>& norm2() const { return norm2_; }

  /// The layer in place on x [batch, len, embed_dim], where `attend` (modules/attend.hpp) says how rows see
  /// each other; options.workspace is set.
  template <Element X, class Attend>
  void apply(const TensorView<X, 3>& x, const Attend& attend,
             const MultiHeadAttentionOptions& options) const {
    const RunOptions run{options.executor, options.workspace};
    detail::add_branch(config_.norm, norm1_, x, run, [&](const TensorView<X, 3>& in) {
      self_attention_.apply(in, in, in, x, x, attend, options);
    });
    detail::add_branch(config_.norm, norm2_, x, run,
                       [&](const TensorView<X, 3>& in) { feed_forward_.add_into(in, x, x, run); });
  }

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("self_attention", self.self_attention_);
    f("feed_forward", self.feed_forward_);
    f("norm1", self.norm1_);
    f("norm2", self.norm2_);
  }

 private:
  TransformerLayerConfig config_;
  MultiHeadAttention<T> self_attention_;
  FeedForward<T> feed_forward_;
  Norm<T> norm1_, norm2_;
};

/// A stack of encoder layers, with a norm at the end on request.
template <Element T>
class TransformerEncoder : public detail::SelfAttending<TransformerEncoder<T>> {
 public:
  TransformerEncoder() = default;
  /// @throws ShapeError as the layers, or if num_layers is negative.
  explicit TransformerEncoder(const TransformerConfig& config) : config_(config) {
    check(config.num_layers >= 0, "TransformerEncoder: num_layers ", config.num_layers, " is negative");
    for (Index i = 0; i < config.num_layers; ++i) layers_.emplace_back(config.layer);
    if (config.final_norm == FinalNorm::present) norm_ = Norm<T>(config.layer.norm_config());
  }

  const TransformerConfig& config() const { return config_; }
  std::vector<TransformerEncoderLayer<T>>& layers() { return layers_; }
  const std::vector<TransformerEncoderLayer<T>>& layers() const { return layers_; }
  /// The norm at the end; without parameters if there is none.
  Norm<T>& norm() { return norm_; }
  const Norm<T>& norm() const { return norm_; }

  /// The stack in place on x [batch, len, embed_dim]; as TransformerEncoderLayer::apply.
  template <Element X, class Attend>
  void apply(const TensorView<X, 3>& x, const Attend& attend,
             const MultiHeadAttentionOptions& options) const {
    for (const TransformerEncoderLayer<T>& layer : layers_) layer.apply(x, attend, options);
    apply_final_norm(x, options);
  }
  /// The end of apply(), for callers that run the layers one by one.
  template <Element X>
  void apply_final_norm(const TensorView<X, 3>& x, const MultiHeadAttentionOptions& options) const {
    if (config_.final_norm == FinalNorm::present)
      norm_.forward_into(x, x, {options.executor, options.workspace});
  }

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("layers", self.layers_);
    f("norm", self.norm_);
  }

 private:
  TransformerConfig config_;
  std::vector<TransformerEncoderLayer<T>> layers_;
  Norm<T> norm_;
};

ATTN_NAMESPACE_END
