// examples/common/text.hpp - reading sentences, and text that is safe to show on a terminal.
#pragma once
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace attn::examples {

/// The lines of a text that hold more than blanks, in order, without their line ends ("\n" or "\r\n") and
/// without a byte order mark before the first. `name` stands for the source in messages.
///
/// @throws FormatError that names the line if one is not UTF-8; FormatError if reading fails midway.
std::vector<std::string> read_sentences(std::istream& in, const std::string& name);

/// `text`, which must be UTF-8, with each control character replaced by a space: it stays on its line and
/// cannot steer the terminal.
std::string printable(std::string_view text);

}  // namespace attn::examples
