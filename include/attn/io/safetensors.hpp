// attn/io/safetensors.hpp - the safetensors format: a JSON header, then the bytes of the tensors.
//
// File: 8 bytes little-endian header length N, N bytes of JSON, data. Header: {"name": {"dtype": "F32",
// "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {"key": "text", ...}}; offsets count
// from the start of the data, and the tensors fill it without gap or overlap.
#pragma once
#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attn/io/json.hpp"
#include "attn/io/weights.hpp"

ATTN_NAMESPACE_BEGIN

/// What a safetensors file holds. The weights keep the file mapped.
struct Safetensors {
  WeightMap weights{};
  std::map<std::string, std::string> metadata{};
};

namespace detail {

static_assert(std::endian::native == std::endian::little,
              "attn: safetensors data is little-endian and mapped as it is");

struct SafetensorsEntry {
  std::string label;  // for errors
  std::string name;
  DType dtype = DType::float32;
  std::vector<Index> shape{};
  std::uint64_t begin = 0, end = 0;

  template <class... Parts>
  void require(bool ok, const Parts&... parts) const {
    check<FormatError>(ok, label, " ", parts...);
  }
};

struct DTypeName {
  std::string_view name;
  DType dtype;
};
inline constexpr DTypeName safetensors_dtypes[] = {
    {"BOOL", DType::boolean}, {"U8", DType::uint8},    {"I8", DType::int8},       {"U16", DType::uint16},
    {"I16", DType::int16},    {"U32", DType::uint32},  {"I32", DType::int32},     {"U64", DType::uint64},
    {"I64", DType::int64},    {"F16", DType::float16}, {"BF16", DType::bfloat16}, {"F32", DType::float32},
    {"F64", DType::float64}};

inline std::uint64_t unsigned_member(const SafetensorsEntry& entry, const nlohmann::json& value,
                                     const char* what) {
  entry.require(value.is_number_unsigned(), "has ", what, " that is not a natural number");
  return value.get<std::uint64_t>();
}

/// Type, shape and offsets of one header entry; that they agree with each other is checked, that they agree
/// with the file is not.
inline SafetensorsEntry parse_entry(const std::string& file, const std::string& name,
                                    const nlohmann::json& value) {
  SafetensorsEntry entry{file + ": weight '" + name + "'", name};
  entry.require(value.is_object() && value.contains("dtype") && value.contains("shape") &&
                    value.contains("data_offsets"),
                "needs dtype, shape and data_offsets");
  const nlohmann::json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];

  entry.require(dtype.is_string(), "has a dtype that is not text");
  const auto known = std::ranges::find(safetensors_dtypes, dtype.get<std::string>(), &DTypeName::name);
  entry.require(known != std::end(safetensors_dtypes), "has the unknown dtype ", dtype.dump());
  entry.dtype = known->dtype;

  entry.require(shape.is_array(), "has a shape that is not an array");
  for (const nlohmann::json& extent : shape) {
    const std::uint64_t n = unsigned_member(entry, extent, "an extent");
    entry.require(std::in_range<Index>(n), "has the extent ", n, ", which is too large");
    entry.shape.push_back(static_cast<Index>(n));
  }

  entry.require(offsets.is_array() && offsets.size() == 2, "needs two data_offsets");
  entry.begin = unsigned_member(entry, offsets[0], "an offset");
  entry.end = unsigned_member(entry, offsets[1], "an offset");
  const auto bytes = checked_bytes(entry.shape, entry.dtype);
  entry.require(bytes.has_value(), "has a shape that is too large: ", PrintShape{entry.shape});
  entry.require(entry.begin <= entry.end && entry.end - entry.begin == *bytes, "has data_offsets [",
                entry.begin, ", ", entry.end, "], but its type and shape need ", *bytes, " bytes");
  return entry;
}

inline std::map<std::string, std::string> parse_metadata(const std::string& file,
                                                         const nlohmann::json& value) {
  check<FormatError>(value.is_object(), file, ": __metadata__ is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    check<FormatError>(text.is_string(), file, ": __metadata__ '", key, "' is not text");
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

/// Splits off the header.
inline std::string_view safetensors_header(std::span<const std::byte> bytes, const std::string& file) {
  constexpr std::uint64_t limit = 100'000'000;  // the format's own
  std::uint64_t length = 0;
  check<FormatError>(bytes.size() >= sizeof length, file, ": has ", bytes.size(),
                     " bytes, too few for a safetensors file");
  std::memcpy(&length, bytes.data(), sizeof length);
  check<FormatError>(length <= limit && length <= bytes.size() - sizeof length, file, ": claims a header of ",
                     length, " bytes in a file of ", bytes.size());
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + sizeof length, length);
  check<FormatError>(header.starts_with('{'), file, ": the header does not start with '{'");
  return header;
}

}  // namespace detail

/// Reads safetensors bytes, which the weights borrow (or keep, with `owner`); `name` is what errors call
/// them. Nothing is allocated beyond a small multiple of the header's true size.
/// @throws FormatError if anything in the header is wrong; a tensor that is not aligned for its type is legal
/// and can be copied.
inline Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::string& name,
                                     const std::shared_ptr<const void>& owner = nullptr) {
  const std::string_view text = detail::safetensors_header(bytes, name);
  const std::span<const std::byte> data = bytes.subspan(sizeof(std::uint64_t) + text.size());
  const nlohmann::json header = parse_json(text, name + ": header", {.depth = 3, .array_length = 32});
  check<FormatError>(header.is_object(), name, ": the header is not an object");

  Safetensors file{WeightMap(name)};
  std::vector<detail::SafetensorsEntry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__")
      file.metadata = detail::parse_metadata(name, value);
    else
      entries.push_back(detail::parse_entry(name, key, value));
  }
  std::ranges::sort(entries, {}, [](const auto& e) { return std::pair(e.begin, e.end); });
  std::uint64_t used = 0;
  for (detail::SafetensorsEntry& e : entries) {
    e.require(e.begin == used && e.end <= data.size(), "has data_offsets [", e.begin, ", ", e.end,
              "], which overlap, leave a gap at ", used, " or leave the ", data.size(), " bytes of data");
    used = e.end;
    std::vector<Index> strides = detail::contiguous_strides(e.shape);
    file.weights.add(std::move(e.name), StoredTensor(std::move(e.label), e.dtype, std::move(e.shape),
                                                     std::move(strides), data.data() + e.begin, owner));
  }
  check<FormatError>(used == data.size(), name, ": has ", data.size(),
                     " bytes of data, but its tensors fill ", used);
  return file;
}

/// Maps a safetensors file.
/// @throws FormatError as parse_safetensors and read_file.
inline Safetensors open_safetensors(const std::filesystem::path& path) {
  const FileBytes file = read_file(path);
  return parse_safetensors(file.bytes, path.string(), file.owner);
}

/// Writes a safetensors file, whole or not at all. Tensors are stored row-major, the widest types first, so
/// that every tensor is aligned for its type.
/// @throws FormatError if a name or text is not UTF-8 or a weight is called __metadata__; std::runtime_error
/// if the file cannot be written.
void write_safetensors(const std::filesystem::path& path, const WeightMap& weights,
                       const std::map<std::string, std::string>& metadata = {});

namespace detail {

/// The text of a header with the tensors in this order, padded so that the data is aligned to 8 bytes.
inline std::string safetensors_header_text(const std::filesystem::path& path, const WeightMap& weights,
                                           const std::vector<std::string>& order,
                                           const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  Index offset = 0;
  for (const std::string& name : order) {
    check<FormatError>(name != "__metadata__", path.string(), ": a weight must not be called '", name, "'");
    const StoredTensor& tensor = weights.at(name);
    const auto dtype = std::ranges::find(safetensors_dtypes, tensor.dtype(), &DTypeName::dtype);
    const Index end = offset + tensor.size() * size_of(tensor.dtype());
    header[name] = {{"dtype", dtype->name}, {"shape", tensor.shape()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  constexpr auto drop_bad_utf8 = nlohmann::json::error_handler_t::ignore;
  std::string text = header.dump(-1, ' ', false, drop_bad_utf8);
  check<FormatError>(nlohmann::json::parse(text, nullptr, false) == header, path.string(),
                     ": a name or metadata text is not UTF-8");
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace detail

inline void write_safetensors(const std::filesystem::path& path, const WeightMap& weights,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> order = weights.names();
  std::sort(order.begin(), order.end(), [&](const std::string& a, const std::string& b) {
    const auto size_a = size_of(weights.at(a).dtype()), size_b = size_of(weights.at(b).dtype());
    return size_a != size_b ? size_a > size_b : a < b;
  });
  const std::string header = detail::safetensors_header_text(path, weights, order, metadata);
  const std::uint64_t length = header.size();

  FileWriter file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const std::string& name : order) detail::write_row_major(weights.at(name), file);
  file.commit();
}

ATTN_NAMESPACE_END
