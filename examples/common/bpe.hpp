// examples/common/bpe.hpp - byte-level BPE, the tokenizer of GPT-2, Llama 3, Qwen and SmolLM: text to ids and
// back.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attn/core/types.hpp"
#include "common/pretokenizer.hpp"
#include "common/utf8.hpp"

namespace attn::examples {

/// What becomes of special tokens (ends of texts, marks of a chat) when ids are decoded.
enum class SpecialTokens { skip, keep };

/// Byte pair encoding (Sennrich et al. 2016) over bytes, as a Hugging Face tokenizer.json describes it: in
/// each word the neighbours that come first in the list of merges are joined until none are left. Added
/// tokens ("<|im_start|>") are recognised in a text before it is cut into words. Immutable; may be used by
/// many threads at once.
class Bpe {
 public:
  /// From the text of a tokenizer.json; `name` is what errors call it. Limits of length and padding in the
  /// file are not applied.
  ///
  /// @throws FormatError that names what is missing, malformed or not supported (normalizers, post-processors
  /// that add tokens, dropout, word affixes).
  explicit Bpe(std::string_view json, const std::string& name = "tokenizer.json");

  /// From the file.
  /// @throws FormatError if it cannot be read, and as above.
  static Bpe load(const std::filesystem::path& file);

  /// The ids of a text. What is not UTF-8 in it is read as U+FFFD; bytes that the vocabulary has no token for
  /// are left out, or read as its unk_token.
  std::vector<Index> encode(std::string_view text) const;

  /// The text of ids, as UTF-8: bytes that make no character become U+FFFD. Ids that no token has, as models
  /// with rows to spare may choose them, stand for nothing.
  std::string decode(std::span<const Index> ids, SpecialTokens special = SpecialTokens::skip) const;

  /// One more than the largest id.
  Index size() const { return static_cast<Index>(tokens_.size()); }
  /// What an id stands for: any bytes, perhaps not all of a character; none for an id that no token has.
  const std::string& bytes(Index id) const { return token(id).bytes; }
  /// Whether an id is a special token.
  bool is_special(Index id) const { return token(id).special; }
  /// The id of a token that is written so in the file, as "<|im_end|>" is; nothing if there is none.
  std::optional<Index> find(const std::string& written) const;

 private:
  struct Token {
    std::string bytes;
    bool special = false;
  };
  struct Merge {
    Index rank, id;
  };
  /// Added tokens that are looked for together, longest first.
  struct AddedTokens {
    std::vector<std::string> contents;
    std::vector<Index> ids;
  };
  struct Match {
    std::size_t begin;
    std::string_view content;
    Index id;
  };

  const Token& token(Index id) const;
  void read_model(const nlohmann::json& model, const std::string& name);
  void read_vocabulary(const nlohmann::json& vocabulary, const std::string& name);
  void read_merges(const nlohmann::json& merges, const std::string& name);
  void read_added_tokens(const nlohmann::json& tokens, const std::string& name);
  void add_token(const std::string& written, const nlohmann::json& id, const std::string& name);
  static std::optional<Match> find_added(const AddedTokens& tokens, std::string_view text);
  void append_text(std::string_view text, std::size_t pass, std::vector<Index>& ids) const;
  void append_word(const std::string& word, std::vector<Index>& ids) const;

  std::vector<Token> tokens_;                   // by id
  std::unordered_map<std::string, Index> ids_;  // by how the file writes a token
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::array<Index, 256> byte_ids_{};  // -1: no token
  bool whole_words_first_ = false;
  std::array<AddedTokens, 2> added_;  // those matched in the raw text come first
  std::optional<PreTokenizer> pre_tokenizer_;
};

/// The text of ids that come one at a time: never ends within a character. Borrows the tokenizer.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Bpe& tokenizer, SpecialTokens special = SpecialTokens::skip)
      : tokenizer_(&tokenizer), special_(special) {}

  /// The text that is complete with this id; all of these and finish() joined are what decode() gives.
  std::string push(Index id);
  /// U+FFFD if the last character never became whole; else nothing.
  std::string finish() { return stream_.finish(); }

 private:
  const Bpe* tokenizer_;
  SpecialTokens special_;
  Utf8Stream stream_;
};

}  // namespace attn::examples
