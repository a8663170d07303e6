// attn/modules/linear.hpp - Linear: y = x W^T + b with learnable W and b, and a packed copy of W for speed.
#pragma once
#include "attn/modules/derived_copy.hpp"
#include "attn/modules/parameter.hpp"
#include "attn/ops/linear.hpp"

ATTN_NAMESPACE_BEGIN

struct LinearConfig {
  Index in_dim = 0;
  Index out_dim = 0;
  bool bias = true;
};

/// y = x W^T + b: weight [out_dim, in_dim], bias [out_dim], both zero at first.
///
/// The product runs on a copy of the weight in the kernel's own order, built at the first use (or by pack())
/// and built again after the weight or bias has been written; it doubles the memory of the weight, unless it
/// is stored in fewer bits.
template <Element T>
class Linear {
 public:
  Linear() = default;
  /// @throws ShapeError if a dimension is not positive.
  explicit Linear(const LinearConfig& config) : config_(config) {
    check(config.in_dim > 0 && config.out_dim > 0, "Linear: in_dim ", config.in_dim, " and out_dim ",
          config.out_dim, " must be positive");
    weight_ = Parameter<T, 2>("weight", {config.out_dim, config.in_dim});
    if (config.bias) bias_ = Parameter<T, 1>("bias", {config.out_dim});
  }

  const LinearConfig& config() const { return config_; }
  Parameter<T, 2>& weight() { return weight_; }
  const Parameter<T, 2>& weight() const { return weight_; }
  Parameter<T, 1>& bias() { return bias_; }
  const Parameter<T, 1>& bias() const { return bias_; }

  /// The weight and bias as the kernel wants them.
  const PackedLinear<T>& packed() const {
    return packed_.get({weight_.version(), bias_.version()},
                       [&] { return pack_(weight_.view(), bias_.view(), storage_); });
  }
  /// What the packed copy holds from its next use on; the weight itself stays as it is. Bytes that decoding
  /// must read fall by 2 (bfloat16) or 4 (int8) from float. Needs the module alone, as writing a weight does.
  void store_as(WeightStorage storage) {
    storage_ = storage;
    pack_ = pack_linear<T>;
    packed_ = {};
  }
  WeightStorage storage() const { return storage_; }
  /// Builds the packed copy now rather than at the first use.
  void pack() const { packed(); }

  /// out = activation(x W^T + b); x [..., in_dim], out [..., out_dim], which must not overlap. Both have one
  /// element type, which need not be that of the weights.
  /// @throws ShapeError if the extents do not fit.
  template <TensorLike X, WritableTensor Out>
  void forward_into(const X& x, Out&& out, const LinearOptions& options = {}) const {
    linear_into(detail::read_view(x), packed(), as_view(out), options);
  }

  /// out = residual + x W^T + b; `residual` [..., out_dim] may be `out` itself.
  template <TensorLike X, TensorLike Residual, WritableTensor Out>
  void add_into(const X& x, const Residual& residual, Out&& out, const LinearOptions& options = {}) const {
    linear_into(detail::read_view(x), packed(), as_view(out), options, detail::read_view(residual));
  }

  /// activation(x W^T + b) as a new Matrix (rank 2) or Tensor of the element type of x.
  template <TensorLike X>
  auto forward(const X& x, const LinearOptions& options = {}) const {
    auto extents = detail::read_view(x).extents();
    extents[rank_of<X> - 1] = config_.out_dim;
    auto out = detail::make_result<ElementOf<const X>>(extents);
    forward_into(x, out, options);
    return out;
  }

  template <class Self, class F>
  static void visit_members(Self& self, F&& f) {
    f("weight", self.weight_);
    f("bias", self.bias_);
  }

 private:
  LinearConfig config_;
  Parameter<T, 2> weight_;
  Parameter<T, 1> bias_;
  using Pack = PackedLinear<T> (*)(const TensorView<const T, 2>&, const TensorView<const T, 1>&,
                                   WeightStorage);
  WeightStorage storage_ = WeightStorage::full;
  /// A pointer, so that the products of other storages are compiled into programs that ask for them.
  Pack pack_ = [](const TensorView<const T, 2>& weight, const TensorView<const T, 1>& bias, WeightStorage) {
    return pack_linear(weight, bias);
  };
  DerivedCopy<PackedLinear<T>, 2> packed_;
};

ATTN_NAMESPACE_END
