#include "common/decoder.hpp"

#include <utility>

#include "attn/models/causal_lm.hpp"
#include "attn/modules/linear.hpp"

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
        executor_(options.executor) {
    model_.modules().for_each_linear([this](const Linear<T>& linear) { weight_bytes_ += bytes_of(linear); });
  }

  std::span<const float> append(std::span<const Index> ids) override {
    model_.forward_into(ids, cache_, logits_, {.executor = executor_, .workspace = &workspace_});
    return {logits_.data(), as_size(logits_.size())};
  }
  void reset() override { cache_.reset(); }
  Index length() const override { return cache_.length(0); }
  Index max_len() const override { return cache_.capacity(); }
  std::size_t weight_bytes() const override { return weight_bytes_; }
  std::size_t cache_bytes() const override { return cache_.bytes(); }

 private:
  /// Of the copy of a matrix that products read; with int8 each output has a scale.
  static std::size_t bytes_of(const Linear<T>& linear) {
    const std::size_t rows = as_size(linear.config().out_dim),
                      elements = rows * as_size(linear.config().in_dim);
    switch (linear.storage()) {
      case WeightStorage::bfloat16:
        return elements * sizeof(Eigen::bfloat16);
      case WeightStorage::int8:
        return elements + rows * sizeof(float);
      case WeightStorage::full:
        break;
    }
    return elements * sizeof(T);
  }

  CausalLM<T> model_;
  CausalLMCache<float, Storage> cache_;
  Workspace workspace_;
  Matrix<float> logits_;
  ExecutorRef executor_;
  std::size_t weight_bytes_ = 0;
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
  auto model = CausalLM<float>::load(directory);
  if (options.weights == StoredAs::int8) model.store_weights_as(WeightStorage::int8);
  return with_cache(std::move(model), options);
}

}  // namespace attn::examples
