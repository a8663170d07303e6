// attn/models/config_reader.hpp - ConfigReader: the members of a Hugging Face config.json, which is not
// trusted.
#pragma once
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "attn/io/json.hpp"
#include "attn/ops/activation.hpp"

ATTN_NAMESPACE_BEGIN

namespace detail {

/// The members of a config.json; every failed read is a FormatError that names the file and the key.
class ConfigReader {
 public:
  /// Borrows the JSON; `file` is what errors call it.
  ConfigReader(const nlohmann::json& json, std::string file) : json_(json), file_(std::move(file)) {
    check<FormatError>(json.is_object(), file_, ": is not a JSON object");
  }

  bool contains(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }

  /// An integer in [1, 2^31).
  Index count(const char* key) const {
    const nlohmann::json& value = at(key, "an integer", [](const auto& v) { return v.is_number_integer(); });
    const Index number = whole(value);
    check<FormatError>(number > 0, file_, ": ", key, " is ", value.dump(), ", not within [1, 2^31)");
    return number;
  }
  /// A positive, finite number.
  double positive(const char* key) const {
    const nlohmann::json& value = at(key, "a number", [](const auto& v) { return v.is_number(); });
    const double number = value.template get<double>();
    check<FormatError>(number > 0 && std::isfinite(number), file_, ": ", key, " is ", value.dump(),
                       ", not positive");
    return number;
  }
  bool flag(const char* key) const {
    return at(key, "true or false", [](const auto& v) { return v.is_boolean(); }).template get<bool>();
  }
  std::string text(const char* key) const {
    return at(key, "a string", [](const auto& v) { return v.is_string(); }).template get<std::string>();
  }
  // As above; `fallback` if the key is absent or null.
  Index count_or(const char* key, Index fallback) const { return contains(key) ? count(key) : fallback; }
  double positive_or(const char* key, double fallback) const {
    return contains(key) ? positive(key) : fallback;
  }
  bool flag_or(const char* key, bool fallback) const { return contains(key) ? flag(key) : fallback; }
  std::string text_or(const char* key, const char* fallback) const {
    return contains(key) ? text(key) : fallback;
  }
  /// The first of two names that a key may have.
  const char* either(const char* key, const char* other) const { return contains(key) ? key : other; }
  /// An integer of at least 0, or each of an array of them; none if the key is absent or null.
  std::vector<Index> numbers(const char* key) const {
    std::vector<Index> all;
    if (!contains(key)) return all;
    const nlohmann::json& value = json_.at(key);
    const nlohmann::json list = value.is_array() ? value : nlohmann::json::array({value});
    for (const nlohmann::json& number : list) {
      check<FormatError>(whole(number) >= 0, file_, ": ", key, " is ", value.dump(),
                         ", not an integer within [0, 2^31) or a list of them");
      all.push_back(whole(number));
    }
    return all;
  }
  /// The object below a key; errors name it "file: key".
  ConfigReader below(const char* key) const {
    const nlohmann::json& value = at(key, "an object", [](const auto& v) { return v.is_object(); });
    return {value, file_ + ": " + key};
  }
  /// The member itself, of any type.
  const nlohmann::json& json(const char* key) const { return json_.at(key); }
  const std::string& file() const { return file_; }

  /// If the key is there, it must be `only`: what else it may say changes the model, and is not supported.
  void require_if_present(const char* key, const nlohmann::json& only) const {
    check<FormatError>(!contains(key) || json_.at(key) == only, file_, ": ", key, " is ",
                       contains(key) ? json_.at(key).dump() : "", ", and only ", only.dump(),
                       " is supported");
  }

 private:
  template <class Is>
  const nlohmann::json& at(const char* key, const char* type, Is is) const {
    const auto value = json_.find(key);
    check<FormatError>(value != json_.end(), file_, ": key ", key, " is missing");
    check<FormatError>(is(*value), file_, ": key ", key, " is a ", value->type_name(), ", not ", type);
    return *value;
  }

  /// The integer, if it is one in [0, 2^31); else -1.
  static Index whole(const nlohmann::json& value) {
    constexpr std::int64_t limit = std::int64_t{1} << 31;
    if (!value.is_number_integer() || value > limit) return -1;
    const auto number = value.get<std::int64_t>();
    return 0 <= number && number < limit ? static_cast<Index>(number) : -1;
  }

  const nlohmann::json& json_;
  std::string file_;
};

/// The activation that a Hugging Face config calls `name`.
inline Activation activation_named(const std::string& name, const std::string& file, const char* key) {
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::gelu_tanh;
  if (name == "relu") return Activation::relu;
  if (name == "silu" || name == "swish") return Activation::silu;
  check<FormatError>(false, file, ": ", key, " is \"", name,
                     "\", which is none of gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu, silu, swish");
  return Activation::identity;
}

}  // namespace detail

ATTN_NAMESPACE_END
