// attn/models/encoder_decoder_cache.hpp - EncoderDecoderCache: what a decoder has taken from its source, and
// what of its target it has seen so far.
#pragma once
#include <span>
#include <vector>

#include "attn/ops/kv_cache.hpp"

ATTN_NAMESPACE_BEGIN

/// Keys and values of a batch of sequences in all layers of an EncoderDecoder, which makes one (make_cache).
/// Not to be used by two calls at once.
template <Element T, StorageElement Storage = T>
struct EncoderDecoderCache {
  std::vector<KVCache<T, Storage>> source;  ///< for the cross-attention of each layer: filled once
  std::vector<KVCache<T, Storage>> target;  ///< for its self-attention

  EncoderDecoderCache() = default;
  /// @throws as KVCache.
  EncoderDecoderCache(Index num_layers, const KVCacheConfig& config, Index source_len) {
    KVCacheConfig of_source = config;
    of_source.max_len = source_len;
    of_source.kind = CacheKind::cross_attention;
    of_source.growth = Growth::fixed;
    of_source.window = of_source.sinks = 0;
    for (Index i = 0; i < num_layers; ++i) {
      source.emplace_back(of_source);
      target.emplace_back(config);
    }
  }

  Index batch() const { return target.empty() ? 0 : target.front().batch(); }
  /// Tokens of each target; all layers have as many.
  std::span<const Index> lengths() const { return target.front().lengths(); }
  /// Whether there is a source; reset() before the next.
  bool has_source() const { return has_source_; }
  void mark_source() { has_source_ = true; }
  /// Of all layers, sources and targets.
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto* caches : {&source, &target})
      for (const auto& layer : *caches) sum += layer.bytes();
    return sum;
  }

  /// Forgets sources and targets; the memory stays.
  void reset() {
    for (auto* caches : {&source, &target})
      for (auto& layer : *caches) layer.reset();
    has_source_ = false;
  }
  /// Sequence b, source and target, becomes what sequence entries[b] was: the step of a beam search.
  void reorder(std::span<const Index> entries) {
    for (auto* caches : {&source, &target})
      for (auto& layer : *caches) layer.reorder(entries);
  }
  /// Keeps the first lens[b] tokens of target b.
  void truncate(std::span<const Index> lens) {
    for (auto& layer : target) layer.truncate(lens);
  }

  /// @throws ShapeError unless it has so many layers and sequences.
  void check_fit(const char* name, Index num_layers, Index wanted_batch) const {
    check(static_cast<Index>(target.size()) == num_layers && batch() == wanted_batch, name, ": a cache of ",
          target.size(), " layers and batch ", batch(), " does not fit ", num_layers,
          " layers and a batch of ", wanted_batch);
  }

 private:
  bool has_source_ = false;
};

ATTN_NAMESPACE_END
