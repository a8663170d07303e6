#include "common/sentence_encoder.hpp"

#include <algorithm>
#include <span>

namespace attn::examples {
namespace {

WordPieceOptions tokenizer_options(const std::filesystem::path& directory) {
  WordPieceOptions options;
  const std::filesystem::path file = directory / "tokenizer_config.json";
  if (!std::filesystem::exists(file)) return options;
  const nlohmann::json config = read_json(file);
  if (config.is_object() && config.contains("do_lower_case")) {
    const nlohmann::json& value = config["do_lower_case"];
    check<FormatError>(value.is_boolean(), file.string(), ": do_lower_case is neither true nor false");
    options.lower_case = value.get<bool>();
  }
  return options;
}

/// The model, once it is certain that the directory is whole.
BertEncoder<float> load_model(const std::filesystem::path& directory) {
  check<FormatError>(std::filesystem::is_directory(directory), directory.string(), " is not a directory");
  for (const char* name : {"config.json", "vocab.txt"})
    check<FormatError>(std::filesystem::exists(directory / name), directory.string(), " has no ", name);
  return BertEncoder<float>::load(directory);
}

/// Sentences as the model takes them.
struct Batch {
  std::vector<Index> ids;  // [sentences, len], filled up behind the shorter ones
  std::vector<Index> lengths;
  Index len = 0;

  TensorView<const Index, 2> view() const { return {ids.data(), {static_cast<Index>(lengths.size()), len}}; }
};

Batch pad(std::span<const TokenIds> sentences, Index pad_id) {
  Batch batch;
  for (const TokenIds& sentence : sentences) {
    batch.lengths.push_back(static_cast<Index>(sentence.size()));
    batch.len = std::max(batch.len, batch.lengths.back());
  }
  for (const TokenIds& sentence : sentences) {
    batch.ids.insert(batch.ids.end(), sentence.begin(), sentence.end());
    batch.ids.insert(batch.ids.end(), static_cast<std::size_t>(batch.len) - sentence.size(), pad_id);
  }
  return batch;
}

}  // namespace

SentenceEncoder::SentenceEncoder(const std::filesystem::path& directory, Index max_tokens)
    : model_(load_model(directory)),
      tokenizer_(WordPiece::load(directory / "vocab.txt", tokenizer_options(directory))),
      max_tokens_(std::min(max_tokens, model_.config().max_len)) {
  check<FormatError>(tokenizer_.size() <= model_.config().vocab_size, (directory / "vocab.txt").string(),
                     " has ", tokenizer_.size(), " pieces, but the model knows ", model_.config().vocab_size);
}

Matrix<float> SentenceEncoder::encode(const std::vector<TokenIds>& sentences,
                                      const EncodeOptions& options) const {
  check<std::invalid_argument>(options.batch >= 1, "SentenceEncoder: batch ", options.batch,
                               " is not positive");
  const auto count = static_cast<Index>(sentences.size());
  Matrix<float> embeddings(count, model_.config().embed_dim);
  Workspace workspace;
  for (Index begin = 0; begin < count; begin += options.batch) {
    // In input order: the model computes real tokens only, so sorting by length would save nothing.
    const Index size = std::min(options.batch, count - begin);
    const Batch batch =
        pad(std::span(sentences).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size)),
            tokenizer_.pad_id());
    model_.embed_into(batch.view(), batch.lengths, embeddings.middleRows(begin, size),
                      {.executor = options.executor, .workspace = &workspace});
    if (options.progress) options.progress(begin + size);
  }
  return embeddings;
}

}  // namespace attn::examples
