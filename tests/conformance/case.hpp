// tests/conformance/case.hpp - one outside case: what was computed, on which inputs, and the right answers.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "attn/io/json.hpp"
#include "attn/io/weights.hpp"

namespace attn_conformance {

using attn::DType;
using attn::Index;
using attn::StoredTensor;
using attn::Tensor;
using attn::TensorView;

/// Tensors are called in.*, w.* and out.*: the inputs, weights and right outputs.
struct Case {
  std::string name;
  std::string kind;       ///< the operator, layer or model
  nlohmann::json config;  ///< its attributes
  attn::WeightMap tensors;
  std::vector<DType> types;  ///< to compute in
  bool may_be_nan = false;   ///< the other program's rows without a key are NaN

  bool has(std::string_view tensor) const { return tensors.contains(tensor); }
  const StoredTensor& at(std::string_view tensor) const { return tensors.at(tensor); }
  /// An attribute, or `fallback` if it is absent or null.
  template <class T>
  T attribute(const char* key, T fallback) const {
    return config.contains(key) && !config[key].is_null() ? config[key].get<T>() : fallback;
  }
};

/// The names of the cases of a folder with a manifest.json, in its order.
std::vector<std::string> case_names(const nlohmann::json& manifest);

/// Case number `number` of the manifest of a folder.
Case load_case(const std::filesystem::path& folder, const nlohmann::json& manifest, std::size_t number);

}  // namespace attn_conformance
