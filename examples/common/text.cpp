#include "common/text.hpp"

#include <utf8proc.h>

#include <istream>
#include <utility>

#include "attn/core/error.hpp"
#include "common/utf8.hpp"

namespace attn::examples {

std::vector<std::string> read_sentences(std::istream& in, const std::string& name) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  std::vector<std::string> sentences;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    if (++number == 1 && line.starts_with(byte_order_mark)) line.erase(0, byte_order_mark.size());
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (const auto at = find_invalid_utf8(line))
      detail::raise<FormatError>(name, " line ", number, " is not UTF-8 (byte ", *at + 1, " of the line)");
    if (line.find_first_not_of(" \t\r\v\f") != std::string::npos) sentences.push_back(std::move(line));
  }
  check<FormatError>(in.eof(), name, ": reading failed after line ", number);
  return sentences;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto [c, size] = first_character(text);
    const utf8proc_category_t category = utf8proc_category(c);
    if (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_ZL ||
        category == UTF8PROC_CATEGORY_ZP)
      out += ' ';
    else
      out += text.substr(0, size);
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace attn::examples
