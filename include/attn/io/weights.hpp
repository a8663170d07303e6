// attn/io/weights.hpp - WeightMap: named tensors of any source (a file, shards, the caller's memory), read
// with checks of name, type and shape.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/io/stored_tensor.hpp"

ATTN_NAMESPACE_BEGIN

/// Named tensors, sorted by name. Copies are cheap and share the memory; weights from a file keep the file
/// open, those of the caller are borrowed. Every failed request is a FormatError that names the source, the
/// weight, and what was expected and found.
class WeightMap {
 public:
  /// `origin`: what errors call the whole.
  explicit WeightMap(std::string origin = "the caller's weights") : origin_(std::move(origin)) {}

  /// Borrows a tensor: a view, Tensor, Eigen object, or your own type with TensorTraits.
  /// @throws FormatError if the name is taken.
  template <TensorLike X>
  WeightMap& add(std::string name, const X& tensor) {
    std::string label = origin_ + ": weight '" + name + "'";
    return add(std::move(name), StoredTensor(std::move(label), as_view(tensor)));
  }
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the tensor is moved
  WeightMap& add(std::string name, StoredTensor tensor) {
    const auto [entry, is_new] = tensors_.try_emplace(std::move(name), std::move(tensor));
    check<FormatError>(is_new, origin_, ": weight '", entry->first, "' is there twice");
    return *this;
  }
  /// Adds all weights of another map.
  /// @throws FormatError if a name is taken.
  WeightMap& merge(const WeightMap& other) {
    for (const auto& [name, tensor] : other.tensors_) add(name, tensor);
    return *this;
  }

  const std::string& origin() const { return origin_; }
  Index size() const { return static_cast<Index>(tensors_.size()); }
  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }

  /// Type, shape and memory of a weight.
  const StoredTensor& at(std::string_view name) const {
    const auto it = tensors_.find(name);
    check<FormatError>(it != tensors_.end(), origin_, ": weight '", name, "' is missing");
    return it->second;
  }
  // As the members of StoredTensor.
  template <class T, int Rank>
  TensorView<const T, Rank> view(std::string_view name) const {
    return at(name).view<T, Rank>();
  }
  template <Element T, int Rank>
  Tensor<T, Rank> get(std::string_view name) const {
    return at(name).get<T, Rank>();
  }
  template <Element T, int Rank>
  Tensor<T, Rank> get(std::string_view name, const Dims<Rank>& expected) const {
    return at(name).get<T, Rank>(expected);
  }
  template <class T, int Rank>
  void copy_to(std::string_view name, const TensorView<T, Rank>& to) const {
    at(name).copy_to(to);
  }

  /// The weights whose names start with `prefix`, without it: under("encoder.layers.0.").
  WeightMap under(std::string_view prefix) const {
    WeightMap part(origin_ + " under '" + std::string(prefix) + "'");
    for (auto it = tensors_.lower_bound(prefix); it != tensors_.end(); ++it) {
      if (!std::string_view(it->first).starts_with(prefix)) break;
      part.tensors_.emplace(it->first.substr(prefix.size()), it->second);
    }
    return part;
  }

 private:
  std::string origin_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

ATTN_NAMESPACE_END
