#include "common/utf8.hpp"

#include <utf8proc.h>

#include <array>

namespace attn::examples {

Character first_character(std::string_view text) {
  Character first;
  const utf8proc_ssize_t size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                 static_cast<utf8proc_ssize_t>(text.size()), &first.code);
  first.size = size > 0 ? static_cast<std::size_t>(size) : 0;
  return first;
}

void append_utf8(CodePoint code, std::string& out) {
  std::array<utf8proc_uint8_t, 4> units{};
  const utf8proc_ssize_t size = utf8proc_encode_char(code, units.data());
  out.append(reinterpret_cast<const char*>(units.data()), static_cast<std::size_t>(size));
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = first_character(text.substr(at)).size;
    if (size == 0) return at;
    at += size;
  }
  return std::nullopt;
}

}  // namespace attn::examples
