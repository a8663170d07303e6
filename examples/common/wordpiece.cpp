#include "common/wordpiece.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <utility>

#include "attn/core/error.hpp"
#include "common/utf8.hpp"

namespace attn::examples {
namespace {

constexpr std::array<std::string_view, 5> special_pieces{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

bool continues_char(char unit) { return (static_cast<unsigned char>(unit) & 0xC0U) == 0x80U; }

std::size_t count_chars(std::string_view utf8) {
  return utf8.size() - static_cast<std::size_t>(std::ranges::count_if(utf8, continues_char));
}

bool between(CodePoint low, CodePoint c, CodePoint high) { return low <= c && c <= high; }

bool is_whitespace(CodePoint c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return c == '\t' || c == '\n' || c == '\r' || category == UTF8PROC_CATEGORY_ZS ||
         category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

/// Characters that BERT drops: the C categories, and the replacement character of earlier decoding faults.
bool is_dropped(CodePoint c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return true;
    default:
      return c == 0xFFFD;
  }
}

/// The ranges of the `tokenizers` package, which models are trained and served with; it starts extension E at
/// 0x2B920, 256 characters late.
bool is_ideograph(CodePoint c) {
  return between(0x4E00, c, 0x9FFF) || between(0x3400, c, 0x4DBF) || between(0x20000, c, 0x2A6DF) ||
         between(0x2A700, c, 0x2B73F) || between(0x2B740, c, 0x2B81F) || between(0x2B920, c, 0x2CEAF) ||
         between(0xF900, c, 0xFAFF) || between(0x2F800, c, 0x2FA1F);
}

bool is_punctuation(CodePoint c) {
  if (between('!', c, '/') || between(':', c, '@') || between('[', c, '`') || between('{', c, '~'))
    return true;
  return between(UTF8PROC_CATEGORY_PC, utf8proc_category(c), UTF8PROC_CATEGORY_PO);
}

/// The text without dropped characters, with plain spaces for whitespace and around ideographs.
std::string clean(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, size] = first_character(text.substr(at));
    check<FormatError>(size > 0, "split_words: the text is not UTF-8 at byte ", at);
    if (is_whitespace(c))
      out += ' ';
    else if (is_ideograph(c))
      out.append(" ").append(text, at, size).append(" ");
    else if (!is_dropped(c))
      out.append(text, at, size);
    at += size;
  }
  return out;
}

/// Code points of valid UTF-8; with `decompose` in canonical decomposition (NFD).
std::vector<CodePoint> decode(const std::string& text, bool decompose) {
  const auto options = static_cast<utf8proc_option_t>(decompose ? UTF8PROC_DECOMPOSE : 0);
  const auto length = static_cast<utf8proc_ssize_t>(text.size());
  const auto* begin = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  std::vector<CodePoint> out(text.size());
  for (;;) {
    const auto capacity = static_cast<utf8proc_ssize_t>(out.size());
    const utf8proc_ssize_t count = utf8proc_decompose(begin, length, out.data(), capacity, options);
    check<FormatError>(count >= 0, "split_words: ", utf8proc_errmsg(count));
    out.resize(static_cast<std::size_t>(count));
    if (count <= capacity) return out;
  }
}

}  // namespace

std::vector<std::string> split_words(std::string_view text, bool lower_case) {
  std::vector<std::string> words;
  bool inside = false;  // the last word may still grow
  for (CodePoint c : decode(clean(text), lower_case)) {
    if (lower_case && utf8proc_category(c) == UTF8PROC_CATEGORY_MN) continue;
    if (lower_case) c = utf8proc_tolower(c);
    const bool separate = is_punctuation(c);
    if (c == ' ') {
      inside = false;
    } else {
      if (separate || !inside) words.emplace_back();
      append_utf8(c, words.back());
      inside = !separate;
    }
  }
  return words;
}

WordPiece::WordPiece(std::istream& vocabulary, const std::string& name, WordPieceOptions options)
    : options_(options) {
  for (std::string line; std::getline(vocabulary, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    check<FormatError>(!find_invalid_utf8(line), name, " line ", pieces_.size() + 1, " is not UTF-8");
    longest_ = std::max(longest_, line.size());
    ids_[line] = size();
    pieces_.push_back(std::move(line));
  }
  check<FormatError>(vocabulary.eof(), name, ": reading failed after line ", pieces_.size());
  pad_ = require("[PAD]", name);
  unknown_ = require("[UNK]", name);
  begin_ = require("[CLS]", name);
  end_ = require("[SEP]", name);
}

WordPiece WordPiece::load(const std::filesystem::path& file, WordPieceOptions options) {
  std::ifstream in(file, std::ios::binary);
  check<FormatError>(in.good(), "cannot read the vocabulary ", file.string());
  return WordPiece(in, file.string(), options);
}

std::vector<Index> WordPiece::encode(std::string_view text, Index max_length) const {
  check<std::invalid_argument>(max_length >= 2, "WordPiece::encode: max_length ", max_length,
                               " has no room for [CLS] and [SEP]");
  std::vector<Index> ids{begin_};
  while (!text.empty()) {
    std::size_t at = text.size();
    std::string_view special;
    for (const std::string_view piece : special_pieces)
      if (const std::size_t found = text.find(piece); found < at && find(std::string(piece)))
        at = found, special = piece;
    append_text(text.substr(0, at), ids);
    if (!special.empty()) ids.push_back(*find(std::string(special)));
    text.remove_prefix(at + special.size());
  }
  ids.resize(std::min(ids.size(), static_cast<std::size_t>(max_length - 1)));
  ids.push_back(end_);
  return ids;
}

std::optional<Index> WordPiece::find(const std::string& piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

Index WordPiece::require(const std::string& piece, const std::string& name) const {
  const std::optional<Index> id = find(piece);
  check<FormatError>(id.has_value(), name, " has no ", piece);
  return *id;
}

void WordPiece::append_text(std::string_view text, std::vector<Index>& ids) const {
  for (const std::string& word : split_words(text, options_.lower_case)) append_word(word, ids);
}

void WordPiece::append_word(const std::string& word, std::vector<Index>& ids) const {
  const std::size_t before = ids.size();
  const bool too_long = count_chars(word) > options_.max_word_chars;
  for (std::size_t begin = 0; begin < word.size();) {
    const std::optional<Piece> piece = too_long ? std::nullopt : longest_piece(word, begin);
    if (!piece) {
      ids.resize(before);
      ids.push_back(unknown_);
      return;
    }
    ids.push_back(piece->id);
    begin = piece->end;
  }
}

std::optional<WordPiece::Piece> WordPiece::longest_piece(const std::string& word, std::size_t begin) const {
  const std::string prefix = begin == 0 ? "" : "##";
  for (std::size_t end = std::min(word.size(), begin + longest_); end > begin; --end) {
    if (end < word.size() && continues_char(word[end])) continue;
    if (const auto id = find(prefix + word.substr(begin, end - begin))) return Piece{*id, end};
  }
  return std::nullopt;
}

}  // namespace attn::examples
