#include "common/decoder.hpp"

#include <utility>

#include "attn/models/causal_lm.hpp"
#include "attn/modules/parameters.hpp"

namespace attn::examples {
namespace {

/// Weights stored as T, keys and values as Storage.
template <Element T, class Storage>
class DecoderOf final : public Decoder {
 public:
  DecoderOf(CausalLM<T> model, const DecoderOptions& options)
      : model_(std::move(model)),
        cache_(model_.template make_cache<Storage>({.max_len = options.max_len})),
        logits_(1, model_.config().vocab_size),
        executor_(options.executor) {}

  std::span<const float> append(std::span<const Index> ids) override {
    model_.forward_into(ids, cache_, logits_, {.executor = executor_, .workspace = &workspace_});
    return {logits_.data(), as_size(logits_.size())};
  }
  void reset() override { cache_.reset(); }
  Index length() const override { return cache_.length(0); }
  Index max_len() const override { return cache_.capacity(); }
  std::size_t weight_bytes() const override {
    const CausalLMConfig& c = model_.config();
    const Index unread = c.tied_embeddings ? 0 : c.vocab_size * c.embed_dim;
    return as_size(parameter_count(model_) - unread) * sizeof(T);
  }
  std::size_t cache_bytes() const override { return cache_.bytes(); }

 private:
  CausalLM<T> model_;
  CausalLMCache<float, Storage> cache_;
  Workspace workspace_;
  Matrix<float> logits_;
  ExecutorRef executor_;
};

template <Element T>
std::unique_ptr<Decoder> with_cache(CausalLM<T> model, const DecoderOptions& options) {
  return with_type(options.cache, [&]<class Storage>(TypeTag<Storage>) -> std::unique_ptr<Decoder> {
    return std::make_unique<DecoderOf<T, Storage>>(std::move(model), options);
  });
}

}  // namespace

std::unique_ptr<Decoder> load_decoder(const std::filesystem::path& directory, const DecoderOptions& options) {
  if (options.weights == StoredAs::bf16)
    return with_cache(CausalLM<Eigen::bfloat16>::load(directory), options);
  return with_cache(CausalLM<float>::load(directory), options);
}

}  // namespace attn::examples
