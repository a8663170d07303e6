// attn/io/shards.hpp - open_weights: one safetensors file, an index of several, or a model's directory.
#pragma once
#include <map>
#include <string>
#include <utility>

#include "attn/io/safetensors.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// The weights that an index lists: {"weight_map": {"name": "model-00001-of-00002.safetensors", ...}}.
inline WeightMap open_shards(const std::filesystem::path& path) {
  const std::string file = path.string();
  const nlohmann::json index = read_json(path);
  const bool is_index = index.is_object() && index.contains("weight_map") && index["weight_map"].is_object();
  check<FormatError>(is_index, file, ": has no object weight_map");

  std::map<std::string, WeightMap> shards;
  WeightMap all(file);
  for (const auto& [name, value] : index["weight_map"].items()) {
    check<FormatError>(value.is_string(), file, ": weight '", name, "' has a shard that is not text");
    const auto shard_name = value.get<std::string>();
    const bool is_plain = !shard_name.empty() && shard_name.find_first_of("/\\:") == std::string::npos &&
                          shard_name != "." && shard_name != "..";
    check<FormatError>(is_plain, file, ": weight '", name, "' has the shard '", shard_name,
                       "', which is not the name of a file beside the index");
    auto shard = shards.find(shard_name);
    if (shard == shards.end()) {
      WeightMap weights = open_safetensors(path.parent_path() / shard_name).weights;
      shard = shards.emplace(shard_name, std::move(weights)).first;
    }
    all.add(name, shard->second.at(name));
  }
  return all;
}

}  // namespace detail

/// All weights of a safetensors file, of the shards that a `*.index.json` lists, or of the model.safetensors
/// or model.safetensors.index.json in a directory.
/// @throws FormatError if a file or a listed weight is missing, or a file is malformed.
inline WeightMap open_weights(const std::filesystem::path& path) {
  std::error_code error;
  if (path.extension() == ".json") return detail::open_shards(path);
  if (!std::filesystem::is_directory(path, error)) return open_safetensors(path).weights;
  const std::filesystem::path single = path / "model.safetensors",
                              index = path / "model.safetensors.index.json";
  const bool has_index = std::filesystem::exists(index, error) && !std::filesystem::exists(single, error);
  return has_index ? detail::open_shards(index) : open_safetensors(single).weights;
}

ATTN_NAMESPACE_END
