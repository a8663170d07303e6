// attn/models/weight_reader.hpp - WeightReader: fills the parameters of modules from weights by name.
#pragma once
#include <string>
#include <utility>

#include "attn/io/weights.hpp"
#include "attn/modules/feed_forward.hpp"
#include "attn/modules/linear.hpp"
#include "attn/modules/norm.hpp"

ATTN_NAMESPACE_BEGIN

/// Reads weights whose names start with a prefix. Every failed read is a FormatError that names the source
/// and the whole name of the weight. Weights that nobody asks for are ignored.
class WeightReader {
 public:
  /// Borrows the weights.
  explicit WeightReader(const WeightMap& weights, std::string prefix = "")
      : weights_(weights), prefix_(std::move(prefix)) {}

  /// A reader of the weights below: reader.below("layers.0.").
  WeightReader below(const std::string& prefix) const { return WeightReader(weights_, prefix_ + prefix); }
  bool contains(const std::string& name) const { return weights_.contains(prefix_ + name); }

  /// @throws FormatError if the weight is missing or has not exactly this shape.
  template <int Rank>
  void require(const std::string& name, const Dims<Rank>& extents) const {
    const StoredTensor& weight = weights_.at(prefix_ + name);
    bool equal = weight.rank() == Rank;
    for (int axis = 0; equal && axis < Rank; ++axis)
      equal = weight.shape()[static_cast<std::size_t>(axis)] == extents[axis];
    check<FormatError>(equal, weight.label(), " has shape ", detail::PrintShape{weight.shape()}, ", not ",
                       extents);
  }
  /// @throws FormatError if there is such a weight, which the module has no place for.
  void require_absent(const std::string& name) const {
    check<FormatError>(!contains(name), weights_.origin(), ": weight '", prefix_, name,
                       "' is there, but the module is configured without it");
  }

  /// A copy, of any floating type; the shape must be `extents`.
  template <Element T, int Rank>
  Tensor<T, Rank> get(const std::string& name, const Dims<Rank>& extents) const {
    return weights_.get<T, Rank>(prefix_ + name, extents);
  }

  template <Element T, int Rank>
  void read(const std::string& name, Parameter<T, Rank>& parameter) const {
    require(name, parameter.extents());
    parameter.edit([&](const TensorView<T, Rank>& values) { weights_.copy_to(prefix_ + name, values); });
  }
  /// `name`.weight and, if the module has it, `name`.bias.
  template <class Module>
    requires requires(Module& m) {
      m.weight();
      m.bias();
    }
  void read(const std::string& name, Module& module) const {
    read(name + ".weight", module.weight());
    if (module.bias())
      read(name + ".bias", module.bias());
    else
      require_absent(name + ".bias");
  }

 private:
  const WeightMap& weights_;
  std::string prefix_;
};

ATTN_NAMESPACE_END
