// attn/modules/norm.hpp - Norm: layer or root-mean-square normalisation over the last axis, with learnable
// weight.
#pragma once
#include "attn/modules/parameter.hpp"
#include "attn/ops/norm.hpp"

ATTN_NAMESPACE_BEGIN

/// layer: (x - mean) / deviation; rms: x / root of the mean square. Formulas in ops/norm.hpp.
enum class NormKind { layer, rms };

struct NormConfig {
  Index dim = 0;
  NormKind kind = NormKind::layer;
  double eps = 1e-5;
  bool bias = true;  ///< of a layer norm; an rms norm has none
};

/// Normalises rows of `dim` elements; weight starts at 1, bias at 0.
template <Element T>
class Norm {
 public:
  Norm() = default;
  /// @throws ShapeError if dim is not positive.
  explicit Norm(const NormConfig& config) : config_(config) {
    check(config.dim > 0, "Norm: dim ", config.dim, " must be positive");
    weight_ = Parameter<T, 1>("weight", {config.dim});
    weight_.edit([](const TensorView<T, 1>& w) { std::fill_n(w.data(), w.size(), T(1)); });
    config_.bias = config.bias && config.kind == NormKind::layer;
    if (config_.bias) bias_ = Parameter<T, 1>("bias", {config.dim});
  }

  const NormConfig& config() const { return config_; }
  Parameter<T, 1>& weight() { return weight_; }
  const Parameter<T, 1>& weight() const { return weight_; }
  Parameter<T, 1>& bias() { return bias_; }
  const Parameter<T, 1>& bias() const { return bias_; }

  /// x [..., dim]; `out` is x itself or lies elsewhere.
  /// @throws ShapeError if the extents do not fit.
  template <TensorLike X, WritableTensor Out>
  void forward_into(const X& x, Out&& out, const RunOptions& options = {}) const {
    const NormOptions norm{config_.eps, {}, options.executor, options.workspace};
    if (config_.kind == NormKind::rms)
      rms_norm_into(x, weight_.view(), out, norm);
    else if (bias_)
      layer_norm_into(x, weight_.view(), bias_.view(), out, norm);
    else
      layer_norm_into(x, weight_.view(), NoAffine{}, out, norm);
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
    f("weight", self.weight_);
    f("bias", self.bias_);
  }

 private:
  NormConfig config_;
  Parameter<T, 1> weight_, bias_;
};

ATTN_NAMESPACE_END
