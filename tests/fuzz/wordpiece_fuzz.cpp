// libFuzzer target: a vocabulary and a text, both untrusted, separated by the first zero byte of the input.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "attn/core/error.hpp"
#include "common/utf8.hpp"
#include "common/wordpiece.hpp"
#include "fuzz/require.hpp"

namespace {

using attn_fuzz::require;

void check_ids(const attn::examples::WordPiece& tokenizer, std::string_view text, attn::Index max_length) {
  const std::vector<attn::Index> ids = tokenizer.encode(text, max_length);
  require(ids.size() >= 2 && ids.size() <= static_cast<std::size_t>(max_length));
  require(tokenizer.piece(ids.front()) == "[CLS]" && tokenizer.piece(ids.back()) == "[SEP]");
  for (const attn::Index id : ids) require(0 <= id && id < tokenizer.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(cut + 1, input.size()));
  const bool valid = !attn::examples::find_invalid_utf8(text);
  std::stringstream vocabulary("[PAD]\n[UNK]\n[CLS]\n[SEP]\n" + std::string(input.substr(0, cut)));
  try {
    const attn::examples::WordPiece tokenizer(vocabulary, "fuzz", {.lower_case = size % 2 == 0});
    try {
      check_ids(tokenizer, text, 2 + static_cast<attn::Index>(size % 61));
      require(valid);
    } catch (const attn::FormatError&) {
      require(!valid);
    }
  } catch (const attn::FormatError&) {
    // the vocabulary is not UTF-8
  }
  return 0;
}
