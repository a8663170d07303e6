// libFuzzer target: a tokenizer.json and a text, both untrusted, separated by the first zero byte of the
// input.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attn/core/error.hpp"
#include "common/bpe.hpp"
#include "common/utf8.hpp"
#include "fuzz/require.hpp"

namespace {

using attn_fuzz::require;

using namespace attn::examples;

/// What comes out of a stream is UTF-8 after each id, and is in all what decode() gives.
void check_stream(const Bpe& tokenizer, const std::vector<attn::Index>& ids) {
  StreamDecoder stream(tokenizer);
  std::string joined;
  for (const attn::Index id : ids) {
    const std::string part = stream.push(id);
    require(!find_invalid_utf8(part));
    joined += part;
  }
  require(joined + stream.finish() == tokenizer.decode(ids));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(cut + 1, input.size()));
  try {
    const Bpe tokenizer(input.substr(0, cut), "fuzz");
    const std::vector<attn::Index> ids = tokenizer.encode(text);
    for (const attn::Index id : ids) require(0 <= id && id < tokenizer.size());
    require(ids == tokenizer.encode(to_valid_utf8(text)));
    check_stream(tokenizer, ids);
  } catch (const attn::FormatError&) {
    // the file is no tokenizer
  }
  return 0;
}
