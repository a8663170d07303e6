// examples/common/sentence_encoder.hpp - sentences to unit vectors: the tokenizer and the encoder of a model
// directory.
#pragma once
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "attn/models/bert.hpp"
#include "common/wordpiece.hpp"

namespace attn::examples {

/// The vocabulary ids of one sentence, with [CLS] and [SEP].
using TokenIds = std::vector<Index>;

/// How a list of sentences is worked through; none of it changes the result beyond rounding.
struct EncodeOptions {
  Index batch = 16;                       ///< sentences computed together
  ExecutorRef executor{};                 ///< default: the calling thread
  std::function<void(Index)> progress{};  ///< told after each batch how many sentences are done
};

/// A BERT model as sentence-transformers use it (Reimers and Gurevych 2019).
class SentenceEncoder {
 public:
  /// Reads config.json, vocab.txt and model.safetensors of `directory`, and from tokenizer_config.json, if it
  /// is there, whether to lower-case. Sentences are cut to `max_tokens` ids, or to what the model allows.
  ///
  /// @throws FormatError that names the file if one is missing or not what it should be.
  explicit SentenceEncoder(const std::filesystem::path& directory, Index max_tokens = 256);

  /// @throws FormatError if `text` is not UTF-8.
  TokenIds tokenize(std::string_view text) const { return tokenizer_.encode(text, max_tokens_); }

  /// One row of length 1 per sentence, in the order given: [sentences, embed_dim].
  Matrix<float> encode(const std::vector<TokenIds>& sentences, const EncodeOptions& options = {}) const;

 private:
  BertEncoder<float> model_;
  WordPiece tokenizer_;
  Index max_tokens_;
};

}  // namespace attn::examples
