// attn/io/json.hpp - JSON of untrusted files: no key twice, bounded depth, errors that name the file.
#pragma once
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attn/io/file.hpp"

ATTN_NAMESPACE_BEGIN

/// What a JSON text may hold at most.
struct JsonLimits {
  std::size_t depth = 32;                                              ///< levels of arrays and objects
  std::size_t array_length = std::numeric_limits<std::size_t>::max();  ///< of any array
};

namespace detail {

/// Reads JSON without building anything, and raises a FormatError at the first thing that is wrong.
class JsonChecker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonChecker(const std::string& name, const JsonLimits& limits) : name_(name), limits_(limits) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(std::int64_t) override { return value(); }
  bool number_unsigned(std::uint64_t) override { return value(); }
  bool number_float(double, const std::string&) override { return value(); }
  bool string(std::string&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& key) override {
    check<FormatError>(levels_.back().keys.insert(key).second, name_, ": the key '", key, "' is there twice");
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    check<FormatError>(false, name_, ": is not JSON, as byte ", position, " shows");
    return false;
  }

 private:
  struct Level {
    std::set<std::string> keys{};  // empty in an array
    std::size_t length = 0;
  };
  bool value() {
    if (!levels_.empty() && levels_.back().keys.empty())
      check<FormatError>(++levels_.back().length <= limits_.array_length, name_, ": an array has more than ",
                         limits_.array_length, " elements");
    return true;
  }
  bool open() {
    value();
    check<FormatError>(levels_.size() < limits_.depth, name_, ": is nested more than ", limits_.depth,
                       " levels deep");
    levels_.emplace_back();
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  const std::string& name_;
  const JsonLimits& limits_;
  std::vector<Level> levels_;
};

}  // namespace detail

/// The value of an untrusted JSON text (UTF-8); `name` is what errors call it.
/// @throws FormatError if it is not JSON, leaves the limits, or an object has a key twice.
inline nlohmann::json parse_json(std::string_view text, const std::string& name,
                                 const JsonLimits& limits = {}) {
  detail::JsonChecker checker(name, limits);
  nlohmann::json::sax_parse(text, &checker);
  return nlohmann::json::parse(text, nullptr, false);
}

/// The value of a JSON file.
inline nlohmann::json read_json(const std::filesystem::path& path, const JsonLimits& limits = {}) {
  const FileBytes file = read_file(path);
  return parse_json({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()}, path.string(),
                    limits);
}

ATTN_NAMESPACE_END
