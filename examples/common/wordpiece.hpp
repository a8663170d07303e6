// examples/common/wordpiece.hpp - the tokenizer of BERT models: UTF-8 text to vocabulary ids.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attn/core/types.hpp"

namespace attn::examples {

/// How BERT cuts text into words before it looks anything up: control characters vanish, whitespace and CJK
/// ideographs separate, each punctuation mark is a word of its own (all of ASCII's, and Unicode category P).
/// With `lower_case` the text is also lower-cased and loses its accents (NFD without the nonspacing marks).
///
/// @throws FormatError with the byte's offset if `text` is not UTF-8.
std::vector<std::string> split_words(std::string_view text, bool lower_case);

/// What a vocabulary file does not say about its tokenizer.
struct WordPieceOptions {
  bool lower_case = true;            ///< uncased models; also strips accents
  std::size_t max_word_chars = 100;  ///< a longer word becomes [UNK]
};

/// WordPiece (Wu et al. 2016, as BERT uses it): each word is cut greedily into the longest pieces that the
/// vocabulary holds, pieces inside a word being written "##piece"; a word that cannot be cut is [UNK].
/// Immutable; may be used by many threads at once.
class WordPiece {
 public:
  /// One piece per line, whose id is its line number counted from 0; of equal lines the last one counts.
  /// `name` stands for the source in messages.
  ///
  /// @throws FormatError if a line is not UTF-8, or [PAD], [UNK], [CLS] or [SEP] is missing.
  explicit WordPiece(std::istream& vocabulary, const std::string& name = "vocabulary",
                     WordPieceOptions options = {});

  /// Reads a vocab.txt.
  /// @throws FormatError if the file cannot be read, and as above.
  static WordPiece load(const std::filesystem::path& file, WordPieceOptions options = {});

  /// [CLS] pieces... [SEP], at most `max_length` ids: later pieces are cut off. Special pieces written out
  /// in the text ("[MASK]") stand for themselves.
  ///
  /// @throws FormatError if `text` is not UTF-8; std::invalid_argument if max_length < 2.
  std::vector<Index> encode(std::string_view text, Index max_length) const;

  /// Number of ids.
  Index size() const { return static_cast<Index>(pieces_.size()); }
  /// The text of an id in [0, size()).
  const std::string& piece(Index id) const { return pieces_.at(static_cast<std::size_t>(id)); }
  /// The id that fills up the shorter texts of a batch.
  Index pad_id() const { return pad_; }

 private:
  struct Piece {
    Index id;
    std::size_t end;  // of its text in the word
  };
  std::optional<Index> find(const std::string& piece) const;
  Index require(const std::string& piece, const std::string& name) const;
  void append_text(std::string_view text, std::vector<Index>& ids) const;
  void append_word(const std::string& word, std::vector<Index>& ids) const;
  std::optional<Piece> longest_piece(const std::string& word, std::size_t begin) const;

  WordPieceOptions options_;
  std::vector<std::string> pieces_;
  std::unordered_map<std::string, Index> ids_;
  std::size_t longest_ = 0;  // line in bytes: no need to look for more
  Index pad_ = 0, unknown_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace attn::examples
