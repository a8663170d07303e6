// attn/modules/transformer_decoder.hpp - TransformerDecoderLayer, TransformerDecoder, and the whole
// Transformer.
#pragma once
#include <vector>

#include "attn/modules/transformer_encoder.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// The forms in which a decoder layer or stack can be called; Derived has apply().
template <class Derived>
class CrossAttending {
 public:
  using Options = MultiHeadAttentionOptions;

  /// x and out [.., len, embed_dim], memory [.., memory_len, embed_dim]: the encoder's result. `mask` says
  /// which rows of x see each other, as a rule Causal{}; `memory_mask` which rows of memory they see. `out`
  /// is x itself or lies elsewhere. options.query_offset holds for the memory mask, if it uses positions;
  /// rows of x stand at positions from 0. All have one element type, which need not be that of the
  /// weights (takes_activations says which). With a workspace that has served this shape once, nothing is
  /// allocated.
  /// @throws ShapeError if the extents or masks do not fit; std::invalid_argument if out overlaps memory.
  template <TensorLike X, TensorLike Memory, WritableTensor Out, Mask M = NoMask, Mask MemoryMask = NoMask>
  void forward_into(const X& x, const Memory& memory, Out&& out, const M& mask = {},
                    const MemoryMask& memory_mask = {}, Options options = {}) const {
    static_assert(rank_of<X> == rank_of<Memory>, "attn: x and memory differ in rank");
    static_assert(std::same_as<ElementOf<const X>, ElementOf<const Memory>>,
                  "attn: x and memory differ in their element type");
    place_input("TransformerDecoder forward_into", read_view(x), as_view(out));
    check<std::invalid_argument>(is_disjoint(as_view(out), read_view(memory)),
                                 "TransformerDecoder forward_into: out ", as_view(out), " overlaps memory ",
                                 read_view(memory));
    Workspace local;
    if (options.workspace == nullptr) options.workspace = &local;
    const TensorView<const ElementOf<const X>, 3> seen = as_batch(memory);
    static_cast<const Derived&>(*this).apply(as_batch(out), seen, AttendBatch<M>{mask},
                                             AttendBatch<MemoryMask>{memory_mask}, options);
  }

  /// As forward_into; returns out: a Matrix for rank 2, else a Tensor.
  template <TensorLike X, TensorLike Memory, Mask M = NoMask, Mask MemoryMask = NoMask>
  [[nodiscard]] auto forward(const X& x, const Memory& memory, const M& mask = {},
                             const MemoryMask& memory_mask = {}, const Options& options = {}) const {
    auto out = make_result<ElementOf<const X>>(read_view(x).extents());
    forward_into(x, memory, out, mask, memory_mask, options);
    return out;
  }
};

}  // namespace detail

/// Self-attention, attention to the encoder's result, and feed-forward network, each with a residual
/// connection and a norm (Vaswani et al. 2017, section 3.1).
template <Element T>
class TransformerDecoderLayer : public detail::CrossAttending<TransformerDecoderLayer<T>> {
 public:
  TransformerDecoderLayer() = default;
  /// @throws ShapeError as MultiHeadAttention and FeedForward.
  explicit TransformerDecoderLayer(const TransformerLayerConfig& config)
      : config_(config),
        self_attention_(config.attention()),
        cross_attention_(config.attention()),
        feed_forward_(config.feed_forward()),
        norm1_(config.norm_config()),
        norm2_(config.norm_config()),
        norm3_(config.norm_config()) {}

  const TransformerLayerConfig& config() const { return config_; }
  MultiHeadAttention<T>& self_attention() { return self_attention_; }
  const MultiHeadAttention<T>& self_attention() const { return self_attention_; }
  MultiHeadAttention<T>& cross_attention() { return cross_attention_; }
  const MultiHeadAttention<T>& cross_attention() const { return cross_attention_; }
  FeedForward<T>& feed_forward() { return feed_forward_; }
  const FeedForward<T>& feed_forward() const { return feed_forward_; }
  // The norms of self-attention, cross-attention and feed-forward network.
  Norm<T>& norm1() { return norm1_; }
  const Norm<T>& norm1() const { return norm1_; }
  Norm<T>& norm2() { return norm2_; }
  const Norm<T>& norm2() const { return norm2_; }
  Norm<T>& norm3() { return norm3_; }
  const Norm<T>& norm3() const { return norm3_; }

  /// The layer in place on x [batch, len, embed_dim]; options.workspace is set.
  template <Element X, class Attend, class AttendMemory>
  void apply(const TensorView<X, 3>& x, const TensorView<const std::type_identity_t<X>, 3>& memory,
             const Attend& attend, const AttendMemory& attend_memory,
             const MultiHeadAttentionOptions& options) const {
    const RunOptions run{options.executor, options.workspace};
    const MultiHeadAttentionOptions within{.executor = options.executor, .workspace = options.workspace};
    detail::add_branch(config_.norm, norm1_, x, run, [&](const TensorView<X, 3>& in) {
      self_attention_.apply(in, in, in, x, x, attend, within);
    });
    detail::add_branch(config_.norm, norm2_, x, run, [&](const TensorView<X, 3>& in) {
      cross_attention_.apply(in, memory, memory, x, x, attend_memory, options);
    });
    detail::add_branch(config_.norm, norm3_, x, run,
                       [&](const TensorView<X, 3>& in) { feed_forward_.add_into(in, x, x, run); });
  }

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("self_attention", self.self_attention_);
    f("cross_attention", self.cross_attention_);
    f("feed_forward", self.feed_forward_);
    f("norm1", self.norm1_);
    f("norm2", self.norm2_);
    f("norm3", self.norm3_);
  }

 private:
  TransformerLayerConfig config_;
  MultiHeadAttention<T> self_attention_, cross_attention_;
  FeedForward<T> feed_forward_;
  Norm<T> norm1_, norm2_, norm3_;
};

/// A stack of decoder layers, with a norm at the end on request.
template <Element T>
class TransformerDecoder : public detail::CrossAttending<TransformerDecoder<T>> {
 public:
  TransformerDecoder() = default;
  /// @throws ShapeError as the layers, or if num_layers is negative.
  explicit TransformerDecoder(const TransformerConfig& config) : config_(config) {
    check(config.num_layers >= 0, "TransformerDecoder: num_layers ", config.num_layers, " is negative");
    for (Index i = 0; i < config.num_layers; ++i) layers_.emplace_back(config.layer);
    if (config.final_norm == FinalNorm::present) norm_ = Norm<T>(config.layer.norm_config());
  }

  const TransformerConfig& config() const { return config_; }
  std::vector<TransformerDecoderLayer<T>>& layers() { return layers_; }
  const std::vector<TransformerDecoderLayer<T>>& layers() const { return layers_; }
  /// The norm at the end; without parameters if there is none.
  Norm<T>& norm() { return norm_; }
  const Norm<T>& norm() const { return norm_; }

  /// The stack in place on x; as TransformerDecoderLayer::apply.
  template <Element X, class Attend, class AttendMemory>
  void apply(const TensorView<X, 3>& x, const TensorView<const std::type_identity_t<X>, 3>& memory,
             const Attend& attend, const AttendMemory& attend_memory,
             const MultiHeadAttentionOptions& options) const {
    for (const TransformerDecoderLayer<T>& layer : layers_)
      layer.apply(x, memory, attend, attend_memory, options);
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
  std::vector<TransformerDecoderLayer<T>> layers_;
  Norm<T> norm_;
};

/// Encoder and decoder (Vaswani et al. 2017, figure 1) without embeddings: rows in, rows out.
template <Element T>
class Transformer {
 public:
  Transformer() = default;
  /// @throws ShapeError as the stacks, or if they differ in embed_dim.
  Transformer(const TransformerConfig& encoder, const TransformerConfig& decoder)
      : encoder_(encoder), decoder_(decoder) {
    check(encoder.layer.embed_dim == decoder.layer.embed_dim,
          "Transformer: encoder and decoder differ in embed_dim: ", encoder.layer.embed_dim, " and ",
          decoder.layer.embed_dim);
  }

  TransformerEncoder<T>& encoder() { return encoder_; }
  const TransformerEncoder<T>& encoder() const { return encoder_; }
  TransformerDecoder<T>& decoder() { return decoder_; }
  const TransformerDecoder<T>& decoder() const { return decoder_; }

  /// decoder(target, encoder(source)): source [.., source_len, embed_dim], target and the result [..,
  /// target_len, embed_dim]. The masks: source rows among each other, target rows among each other (as a rule
  /// Causal{}), source rows as target rows see them.
  template <TensorLike Source, TensorLike Target, Mask SourceMask = NoMask, Mask TargetMask = NoMask,
            Mask MemoryMask = NoMask>
  [[nodiscard]] auto forward(const Source& source, const Target& target, const SourceMask& source_mask = {},
                             const TargetMask& target_mask = {}, const MemoryMask& memory_mask = {},
                             const MultiHeadAttentionOptions& options = {}) const {
    const MultiHeadAttentionOptions within{.executor = options.executor, .workspace = options.workspace};
    const auto memory = encoder_.forward(source, source_mask, within);
    return decoder_.forward(target, memory, target_mask, memory_mask, options);
  }

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("encoder", self.encoder_);
    f("decoder", self.decoder_);
  }

 private:
  TransformerEncoder<T> encoder_;
  TransformerDecoder<T> decoder_;
};

ATTN_NAMESPACE_END
