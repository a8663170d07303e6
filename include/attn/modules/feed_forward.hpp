// attn/modules/feed_forward.hpp - FeedForward: the position-wise two-layer network of a transformer, plain or
// gated.
#pragma once
#include "attn/modules/linear.hpp"
#include "attn/modules/mixed_storage.hpp"

ATTN_NAMESPACE_BEGIN

/// Whether a second projection of the input multiplies the activated one (Shazeer 2020): `gated` with silu is
/// SwiGLU, with gelu GeGLU, with sigmoid GLU.
enum class Gating { none, gated };

struct FeedForwardConfig {
  Index embed_dim = 0;
  Index hidden_dim = 0;
  Activation activation = Activation::relu;
  Gating gating = Gating::none;
  bool bias = true;
};

/// down(activation(up(x))), or gated: down(activation(gate(x)) * up(x)).
template <Element T>
class FeedForward {
 public:
  FeedForward() = default;
  /// @throws ShapeError if a dimension is not positive.
  explicit FeedForward(const FeedForwardConfig& config)
      : config_(config),
        up_proj_({config.embed_dim, config.hidden_dim, config.bias}),
        down_proj_({config.hidden_dim, config.embed_dim, config.bias}) {
    if (config.gating == Gating::gated)
      gate_proj_ = Linear<T>({config.embed_dim, config.hidden_dim, config.bias});
  }

  const FeedForwardConfig& config() const { return config_; }
  Linear<T>& up_proj() { return up_proj_; }
  const Linear<T>& up_proj() const { return up_proj_; }
  Linear<T>& gate_proj() { return gate_proj_; }
  const Linear<T>& gate_proj() const { return gate_proj_; }
  Linear<T>& down_proj() { return down_proj_; }
  const Linear<T>& down_proj() const { return down_proj_; }

  /// x and out [..., embed_dim], which must not overlap. Both have one element type, which need not be that
  /// of the weights (takes_activations says which).
  /// @throws ShapeError if the extents do not fit.
  template <TensorLike X, WritableTensor Out>
  void forward_into(const X& x, Out&& out, const RunOptions& options = {}) const {
    with_hidden(detail::read_view(x), options, [&](const auto& hidden, const LinearOptions& run) {
      down_proj_.forward_into(hidden, out, run);
    });
  }

  /// out = residual + FeedForward(x); `residual` may be `out`, and both may be x.
  template <TensorLike X, TensorLike Residual, WritableTensor Out>
  void add_into(const X& x, const Residual& residual, Out&& out, const RunOptions& options = {}) const {
    with_hidden(detail::read_view(x), options, [&](const auto& hidden, const LinearOptions& run) {
      down_proj_.add_into(hidden, residual, out, run);
    });
  }

  /// The result as a new Matrix (rank 2) or Tensor.
  template <TensorLike X>
  auto forward(const X& x, const RunOptions& options = {}) const {
    auto out = detail::make_result<ElementOf<const X>>(detail::read_view(x).extents());
    forward_into(x, out, options);
    return out;
  }

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("up_proj", self.up_proj_);
    f("gate_proj", self.gate_proj_);
    f("down_proj", self.down_proj_);
  }

 private:
  /// f(hidden layer, how to run the next projection).
  template <Element X, int Rank, class F>
  void with_hidden(const TensorView<const X, Rank>& x, const RunOptions& options, F f) const {
    detail::require_activations<X, T>();
    Workspace local;
    Workspace& workspace = options.workspace ? *options.workspace : local;
    Workspace::Frame frame(workspace);
    Dims<Rank> extents = x.extents();
    extents[Rank - 1] = config_.hidden_dim;
    const TensorView<X, Rank> hidden(frame.take<X>(product(extents)).data(), extents);
    const LinearOptions plain{options.executor, &workspace};
    const LinearOptions activated{options.executor, &workspace, config_.activation};
    if (config_.gating == Gating::none) {
      up_proj_.forward_into(x, hidden, activated);
    } else {
      const TensorView<X, Rank> gate(frame.take<X>(product(extents)).data(), extents);
      gate_proj_.forward_into(x, gate, activated);
      up_proj_.forward_into(x, hidden, plain);
      multiply_into(TensorView<const X, Rank>(gate), hidden, options);
    }
    f(hidden, plain);
  }

  FeedForwardConfig config_;
  Linear<T> up_proj_, gate_proj_, down_proj_;
};

ATTN_NAMESPACE_END
