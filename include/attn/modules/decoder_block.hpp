// attn/modules/decoder_block.hpp - DecoderBlock: the pre-norm block of decoder-only language models.
#pragma once
#include "attn/modules/feed_forward.hpp"
#include "attn/modules/multi_head_attention.hpp"
#include "attn/modules/norm.hpp"

ATTN_NAMESPACE_BEGIN

/// Where the two branches of a block are normalised: `before`, x + f(norm(x)), as in Llama and GPT-2; or
/// `both_sides`, x + norm(f(norm(x))), as in Gemma 2.
enum class BranchNorms { before, both_sides };

struct DecoderBlockConfig {
  MultiHeadAttentionConfig attention{};
  FeedForwardConfig feed_forward{};
  NormConfig norm{};  ///< of all norms of the block
  BranchNorms branch_norms = BranchNorms::before;
};

/// x + attention(norm(x)), then x + feed_forward(norm(x)), with whatever the configs of the parts allow.
///
/// T is the element type of the weights. Activations are of the type that T accumulates in, and so are the
/// norms' weights: they are few, and a checkpoint's 1 + w would lose digits in 16 bits. One object may serve
/// any number of threads at once, each call with its own workspace.
template <Element T>
class DecoderBlock {
 public:
  using Activations = Accumulator<T>;
  using Rows = TensorView<Activations, 3>;

  DecoderBlock() = default;
  /// @throws ShapeError as MultiHeadAttention, FeedForward and Norm.
  explicit DecoderBlock(const DecoderBlockConfig& config)
      : config_(config),
        attention_(config.attention),
        feed_forward_(config.feed_forward),
        attention_norm_(config.norm),
        feed_forward_norm_(config.norm) {
    if (config.branch_norms == BranchNorms::both_sides)
      attention_out_norm_ = feed_forward_out_norm_ = Norm<Activations>(config.norm);
  }

  const DecoderBlockConfig& config() const { return config_; }
  MultiHeadAttention<T>& attention() { return attention_; }
  const MultiHeadAttention<T>& attention() const { return attention_; }
  FeedForward<T>& feed_forward() { return feed_forward_; }
  const FeedForward<T>& feed_forward() const { return feed_forward_; }
  /// The norms of what enters the branches.
  Norm<Activations>& attention_norm() { return attention_norm_; }
  const Norm<Activations>& attention_norm() const { return attention_norm_; }
  Norm<Activations>& feed_forward_norm() { return feed_forward_norm_; }
  const Norm<Activations>& feed_forward_norm() const { return feed_forward_norm_; }
  /// The norms of what leaves them; without parameters unless branch_norms is both_sides.
  Norm<Activations>& attention_out_norm() { return attention_out_norm_; }
  const Norm<Activations>& attention_out_norm() const { return attention_out_norm_; }
  Norm<Activations>& feed_forward_out_norm() { return feed_forward_out_norm_; }
  const Norm<Activations>& feed_forward_out_norm() const { return feed_forward_out_norm_; }

  /// The block in place on x [batch, len, embed_dim], which is contiguous, where `attend`
  /// (modules/attend.hpp) says how rows see each other; options.workspace is set.
  template <class Attend>
  void apply(const Rows& x, const Attend& attend, const MultiHeadAttentionOptions& options) const {
    run(x, {options.executor, options.workspace}, [&](const Rows& in, const Rows& residual, const Rows& out) {
      attention_.apply(in, in, in, residual, out, attend, options);
    });
  }
  /// The same, where the rows are appended to a cache and attend to all that it holds, as
  /// MultiHeadAttention::forward_into with a cache.
  template <StorageElement S, Mask M>
  void apply_cached(const Rows& x, KVCache<Activations, S>& cache, const M& mask,
                    const CachedAttentionOptions& options) const {
    run(x, {options.executor, options.workspace}, [&](const Rows& in, const Rows& residual, const Rows& out) {
      attention_.apply_cached(in, cache, residual, out, mask, options);
    });
  }

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("attention", self.attention_);
    f("feed_forward", self.feed_forward_);
    f("attention_norm", self.attention_norm_);
    f("feed_forward_norm", self.feed_forward_norm_);
    f("attention_out_norm", self.attention_out_norm_);
    f("feed_forward_out_norm", self.feed_forward_out_norm_);
  }

 private:
  /// attend(in, residual, out): out = residual + attention(in), a residual without data stands for none.
  template <class F>
  void run(const Rows& x, const RunOptions& options, const F& attend) const {
    Workspace::Frame frame(*options.workspace);
    const Rows normed(frame.take<Activations>(x.size()).data(), x.extents());
    attention_norm_.forward_into(x, normed, options);
    if (config_.branch_norms == BranchNorms::before) {
      attend(normed, x, x);
      feed_forward_norm_.forward_into(x, normed, options);
      feed_forward_.add_into(normed, x, x, options);
    } else {
      const Rows branch(frame.take<Activations>(x.size()).data(), x.extents());
      attend(normed, Rows(), branch);
      add_normed(attention_out_norm_, branch, x, options);
      feed_forward_norm_.forward_into(x, normed, options);
      feed_forward_.forward_into(normed, branch, options);
      add_normed(feed_forward_out_norm_, branch, x, options);
    }
  }
  /// x += norm(branch), which is overwritten.
  static void add_normed(const Norm<Activations>& norm, const Rows& branch, const Rows& x,
                         const RunOptions& options) {
    norm.forward_into(branch, branch, options);
    using Values = Eigen::Array<Activations, Eigen::Dynamic, 1>;
    Eigen::Map<Values>(x.data(), x.size()) += Eigen::Map<const Values>(branch.data(), x.size());
  }

  DecoderBlockConfig config_;
  MultiHeadAttention<T> attention_;
  FeedForward<T> feed_forward_;
  Norm<Activations> attention_norm_, feed_forward_norm_, attention_out_norm_, feed_forward_out_norm_;
};

ATTN_NAMESPACE_END
