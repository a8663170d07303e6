#include "common/utf8.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace attn::examples {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

/// How many bytes the character has that `lead` begins; 0 if none does.
std::size_t size_after(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
}

/// How many bytes at the front of `text`, which is not empty, begin a character or are one; 0 if none does.
/// Table 3-7 of Unicode 15: only the second byte has a range that depends on the first.
std::size_t well_formed_size(std::string_view text) {
  const auto unit = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t size = std::min(size_after(unit(0)), text.size());
  unsigned char low = unit(0) == 0xE0 ? 0xA0 : unit(0) == 0xF0 ? 0x90 : 0x80;
  unsigned char high = unit(0) == 0xED ? 0x9F : unit(0) == 0xF4 ? 0x8F : 0xBF;
  std::size_t got = std::min<std::size_t>(size, 1);
  for (; got < size && low <= unit(got) && unit(got) <= high; ++got) low = 0x80, high = 0xBF;
  return got;
}

}  // namespace

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

std::string Utf8Stream::push(std::string_view bytes) {
  pending_.append(bytes);
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const std::size_t got = well_formed_size(rest), whole = size_after(static_cast<unsigned char>(rest[0]));
    if (got < whole && got == rest.size()) break;  // the next bytes decide
    out.append(got > 0 && got == whole ? rest.substr(0, got) : replacement);
    rest.remove_prefix(std::max<std::size_t>(got, 1));
  }
  pending_ = std::string(rest);
  return out;
}

std::string Utf8Stream::finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return std::string(cut ? replacement : "");
}

std::string to_valid_utf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text += stream.finish();
}

}  // namespace attn::examples
