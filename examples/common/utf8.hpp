// examples/common/utf8.hpp - one character of UTF-8 at a time.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attn::examples {

using CodePoint = std::int32_t;

/// A decoded character and how many bytes it took; 0 bytes: the text does not go on with valid UTF-8.
struct Character {
  CodePoint code = -1;
  std::size_t size = 0;
};

/// The character that `text` begins with. Overlong forms and surrogates are not valid UTF-8.
Character first_character(std::string_view text);

void append_utf8(CodePoint code, std::string& out);

/// Offset of the first byte that does not continue valid UTF-8; nothing if all of `text` is valid.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// Makes valid UTF-8 of bytes that come in parts of any size: a character goes out once all of it is there,
/// and what belongs to none becomes U+FFFD, one for each longest beginning of a character (Unicode 15,
/// section 3.9).
class Utf8Stream {
 public:
  /// What is complete with these bytes.
  std::string push(std::string_view bytes);
  /// What is left when nothing more comes: U+FFFD for a character that has only begun, else nothing.
  std::string finish();

 private:
  std::string pending_;  // the beginning of a character
};

/// `bytes` with U+FFFD in the place of what is not UTF-8.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace attn::examples
