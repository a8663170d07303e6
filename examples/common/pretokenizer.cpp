#include "common/pretokenizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "attn/core/error.hpp"
#include "common/utf8.hpp"

namespace attn::examples {
namespace {

enum class Kind { letter, number, space, other };

/// \s of the pattern: Unicode's property White_Space.
bool is_white_space(CodePoint c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return ('\t' <= c && c <= '\r') || c == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
         category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

Kind kind_of(CodePoint c) {
  if (is_white_space(c)) return Kind::space;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return Kind::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return Kind::number;
    default:
      return Kind::other;
  }
}

struct Unit {
  std::size_t at;  // of its first byte
  CodePoint code;
  Kind kind;
};

std::vector<Unit> units_of(std::string_view text) {
  std::vector<Unit> units;
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = first_character(text.substr(at));
    check<FormatError>(size > 0, "PreTokenizer: the text is not UTF-8 at byte ", at);
    units.push_back({at, c, kind_of(c)});
    at += size;
  }
  return units;
}

/// The end of the run of units like the one at `begin`.
std::size_t run_end(const std::vector<Unit>& units, std::size_t begin) {
  std::size_t end = begin;
  while (end < units.size() && units[end].kind == units[begin].kind) ++end;
  return end;
}

/// How many units a contraction has that stands at `at`; 0 if none does.
std::size_t contraction_size(const std::vector<Unit>& units, std::size_t at) {
  constexpr std::array<std::string_view, 7> contractions{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  for (const std::string_view c : contractions)
    if (units.size() - at >= c.size() &&
        std::equal(c.begin(), c.end(), units.begin() + static_cast<std::ptrdiff_t>(at),
                   [](char letter, const Unit& unit) { return unit.code == letter; }))
      return c.size();
  return 0;
}

/// The end of the word that begins at `begin`.
std::size_t gpt2_word_end(const std::vector<Unit>& units, std::size_t begin) {
  if (const std::size_t size = contraction_size(units, begin)) return begin + size;
  const bool after_space = units[begin].code == ' ' && begin + 1 < units.size();
  const std::size_t first = after_space ? begin + 1 : begin;
  if (units[first].kind != Kind::space) return run_end(units, first);
  const std::size_t end = run_end(units, begin);
  return end < units.size() && end - begin > 1 ? end - 1
                                               : end;  // the last space belongs to the word after it
}

/// The pieces of `text` that end where `piece_end(units, begin)` says.
template <class End>
std::vector<std::string> split(std::string_view text, End piece_end) {
  const std::vector<Unit> units = units_of(text);
  std::vector<std::string> pieces;
  for (std::size_t begin = 0; begin < units.size();) {
    const std::size_t end = piece_end(units, begin);
    const std::size_t end_byte = end < units.size() ? units[end].at : text.size();
    pieces.emplace_back(text.substr(units[begin].at, end_byte - units[begin].at));
    begin = end;
  }
  return pieces;
}

const nlohmann::json& member(const nlohmann::json& json, const char* key, const std::string& name) {
  check<FormatError>(json.is_object() && json.contains(key), name, ": pre_tokenizer has no ", key);
  return json.at(key);
}

bool flag(const nlohmann::json& json, const char* key, bool otherwise, const std::string& name) {
  if (!json.contains(key)) return otherwise;
  check<FormatError>(json.at(key).is_boolean(), name, ": ", key, " of pre_tokenizer is not true or false");
  return json.at(key).get<bool>();
}

}  // namespace

std::vector<std::string> split_gpt2_words(std::string_view text) { return split(text, gpt2_word_end); }

std::vector<std::string> split_digits(std::string_view text, DigitSplit how) {
  return split(text, [how](const std::vector<Unit>& units, std::size_t begin) {
    const bool numeric = units[begin].kind == Kind::number;
    std::size_t end = begin + 1;
    if (numeric && how == DigitSplit::single) return end;
    while (end < units.size() && (units[end].kind == Kind::number) == numeric) ++end;
    return end;
  });
}

PreTokenizer::PreTokenizer(const nlohmann::json& json, const std::string& name) {
  if (member(json, "type", name) == "Sequence") {
    const nlohmann::json& steps = member(json, "pretokenizers", name);
    check<FormatError>(steps.is_array(), name, ": pretokenizers is not an array");
    for (const nlohmann::json& step : steps) add_step(step, name);
  } else {
    add_step(json, name);
  }
  check<FormatError>(!steps_.empty() && std::holds_alternative<ByteLevel>(steps_.back()), name,
                     ": pre_tokenizer does not end with ByteLevel: not a byte-level tokenizer");
}

void PreTokenizer::add_step(const nlohmann::json& json, const std::string& name) {
  const nlohmann::json& type = member(json, "type", name);
  if (type == "Digits") {
    const bool single = flag(json, "individual_digits", false, name);
    steps_.emplace_back(Digits{single ? DigitSplit::single : DigitSplit::runs});
  } else {
    check<FormatError>(type == "ByteLevel", name, ": pre_tokenizer is ", type.dump(),
                       ", which is none of ByteLevel, Digits, Sequence");
    steps_.emplace_back(
        ByteLevel{flag(json, "add_prefix_space", true, name), flag(json, "use_regex", true, name)});
  }
}

std::vector<std::string> PreTokenizer::apply(const Digits& step, const std::string& text) {
  return split_digits(text, step.how);
}

std::vector<std::string> PreTokenizer::apply(const ByteLevel& step, std::string text) {
  if (step.add_prefix_space && !text.starts_with(' ')) text.insert(0, 1, ' ');
  if (step.split_words) return split_gpt2_words(text);
  return {std::move(text)};
}

std::vector<std::string> PreTokenizer::split(std::string_view text) const {
  if (text.empty()) return {};
  std::vector<std::string> words{std::string(text)};
  for (const Step& step : steps_) {
    std::vector<std::string> next;
    for (std::string& word : words)
      std::ranges::move(std::visit([&](const auto& how) { return apply(how, std::move(word)); }, step),
                        std::back_inserter(next));
    words = std::move(next);
  }
  return words;
}

}  // namespace attn::examples
