// examples/common/decoder.hpp - a language model with its cache, of types that are chosen at run time.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "attn/core/executor.hpp"
#include "attn/core/types.hpp"
#include "common/stored_as.hpp"

namespace attn::examples {

struct DecoderOptions {
  StoredAs weights = StoredAs::f32;
  StoredAs cache = StoredAs::f32;
  Index max_len = 0;  ///< tokens there is room for
  ExecutorRef executor{};
};

/// One sequence that grows: token ids go in, the logits of the next token come out.
class Decoder {
 public:
  virtual ~Decoder() = default;

  /// Appends ids; returns the logits behind the last, [vocab_size], valid until the next call. After the
  /// first calls nothing is allocated.
  virtual std::span<const float> append(std::span<const Index> ids) = 0;
  /// Forgets all ids.
  virtual void reset() = 0;
  virtual Index length() const = 0;
  /// Ids there is room for.
  virtual Index max_len() const = 0;
  /// Bytes of all matrices that a token is multiplied with.
  virtual std::size_t weight_bytes() const = 0;
  /// Bytes of the cache as it was made, for all tokens that there is room for.
  virtual std::size_t cache_bytes() const = 0;
};

/// The model of a directory, as Hugging Face lays it out: config.json and model.safetensors or its shards.
/// @throws FormatError that names what is missing, malformed or unknown.
std::unique_ptr<Decoder> load_decoder(const std::filesystem::path& directory, const DecoderOptions& options);

}  // namespace attn::examples
