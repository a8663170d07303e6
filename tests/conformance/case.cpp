#include "case.hpp"

#include <algorithm>

#include "attn/io/npy.hpp"
#include "attn/io/safetensors.hpp"

namespace attn_conformance {
namespace {

using attn::check;
using attn::FormatError;
using nlohmann::json;

/// Operator cases: a folder each, with the tensors as .npy files.
Case load_onnx_case(const std::filesystem::path& folder, const json& entry) {
  Case c{entry.at("name"), entry.at("op"), entry.at("attributes"), attn::WeightMap(entry.at("name")), {}};
  for (const char* role : {"inputs", "outputs"}) {
    for (const json& tensor : entry.at(role)) {
      StoredTensor stored = attn::open_npy(folder / c.name / tensor.at("file").get<std::string>());
      if (tensor.at("dtype") == "bfloat16") stored = stored.reinterpret(DType::bfloat16);
      const bool is_input = role == std::string("inputs");
      if (c.types.empty()) c.types = {stored.dtype()};
      c.tensors.add((is_input ? "in." : "out.") + tensor.at("role").get<std::string>(), std::move(stored));
    }
  }
  return c;
}

/// 16-bit inputs are there to be computed in their own type, float32 ones in float and in double.
std::vector<DType> types_for(const attn::WeightMap& tensors) {
  for (const std::string& name : tensors.names()) {
    const DType type = tensors.at(name).dtype();
    if (name.starts_with("in.") && (type == DType::float16 || type == DType::bfloat16)) return {type};
  }
  return {DType::float32, DType::float64};
}

/// Attention, layers and models: inputs and float64 results in a safetensors file; where it holds several
/// cases, the entry's prefix stands before the names of this one.
Case load_torch_case(const std::filesystem::path& folder, const json& entry) {
  const attn::Safetensors file = attn::open_safetensors(folder / entry.at("file").get<std::string>());
  const attn::WeightMap tensors = file.weights.under(entry.value("prefix", ""));
  return {entry.at("name"), entry.at("kind"),   entry.at("config"),
          tensors,          types_for(tensors), entry.at("has_nan")};
}

}  // namespace

std::vector<std::string> case_names(const json& manifest) {
  check<FormatError>(manifest.contains("cases") && manifest["cases"].is_array(),
                     "the manifest lists no cases");
  std::vector<std::string> names;
  for (const json& entry : manifest["cases"]) names.push_back(entry.at("name"));
  return names;
}

Case load_case(const std::filesystem::path& folder, const json& manifest, std::size_t number) {
  const json& entry = manifest.at("cases").at(number);
  return entry.contains("op") ? load_onnx_case(folder, entry) : load_torch_case(folder, entry);
}

}  // namespace attn_conformance
