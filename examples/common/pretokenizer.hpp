// examples/common/pretokenizer.hpp - how byte-level BPE tokenizers cut a text into words.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace attn::examples {

/// The words of a text under GPT-2's pattern (Radford et al. 2019), which joined give the text again:
///
///     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///
/// So a word keeps the one space before it. `text` must be UTF-8.
std::vector<std::string> split_gpt2_words(std::string_view text);

enum class DigitSplit { runs, single };

/// A text cut where numeric characters (Unicode category N) begin and end, or around each of them. `text`
/// must be UTF-8.
std::vector<std::string> split_digits(std::string_view text, DigitSplit how);

/// What the member "pre_tokenizer" of a Hugging Face tokenizer.json says; bytes become vocabulary characters
/// elsewhere. Immutable; may be used by many threads at once.
class PreTokenizer {
 public:
  /// Knows the types ByteLevel and Digits, and Sequence of these, with a ByteLevel at its end. `name` is what
  /// errors call the file.
  ///
  /// @throws FormatError for everything else, naming it.
  PreTokenizer(const nlohmann::json& json, const std::string& name);

  /// The words of `text`, which must be UTF-8.
  std::vector<std::string> split(std::string_view text) const;

 private:
  struct Digits {
    DigitSplit how;
  };
  struct ByteLevel {
    bool add_prefix_space, split_words;
  };
  using Step = std::variant<Digits, ByteLevel>;

  void add_step(const nlohmann::json& json, const std::string& name);
  static std::vector<std::string> apply(const Digits& step, const std::string& text);
  static std::vector<std::string> apply(const ByteLevel& step, std::string text);

  std::vector<Step> steps_;
};

}  // namespace attn::examples
