// attn/models/causal_lm_cache.hpp - CausalLMCache: what a language model has seen so far, one KVCache per
// layer.
#pragma once
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "attn/ops/kv_cache.hpp"

ATTN_NAMESPACE_BEGIN

/// Keys and values of a batch of sequences in all layers of a CausalLM, which makes one (make_cache) and
/// appends to it. Can be moved; copy() and fork() say how another comes to be. Not for two calls at once.
template <Element T, class Storage = T>
struct CausalLMCache {
  std::vector<KVCache<T, Storage>> layers;

  CausalLMCache() = default;
  CausalLMCache(Index num_layers, const KVCacheConfig& config) {
    layers.reserve(as_size(num_layers));
    for (Index i = 0; i < num_layers; ++i) layers.emplace_back(config);
  }

  Index batch() const { return layers.empty() ? 0 : layers.front().batch(); }
  /// Tokens of a sequence; all layers have as many.
  Index length(Index entry) const { return layers.front().length(entry); }
  std::span<const Index> lengths() const { return layers.front().lengths(); }
  /// Where in its text the next token of each sequence stands.
  std::span<const Index> positions() const { return layers.front().positions(); }
  /// Tokens per sequence there is room for.
  Index capacity() const { return layers.front().capacity(); }
  /// Of all layers.
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& layer : layers) sum += layer.bytes();
    return sum;
  }

  // As the functions of KVCache, in every layer.
  void make_room(Index n) {
    for (auto& layer : layers) layer.make_room(n);
  }
  void reset() {
    for (auto& layer : layers) layer.reset();
  }
  void truncate(Index length) {
    for (auto& layer : layers) layer.truncate(length);
  }
  void truncate(std::span<const Index> lengths) {
    for (auto& layer : layers) layer.truncate(lengths);
  }
  void reorder(std::span<const Index> entries) {
    for (auto& layer : layers) layer.reorder(entries);
  }
  CausalLMCache copy() const {
    return make([](const auto& layer) { return layer.copy(); });
  }
  CausalLMCache copy(std::span<const Index> entries) const {
    return make([&](const auto& layer) { return layer.copy(entries); });
  }
  CausalLMCache fork() const {
    return make([](const auto& layer) { return layer.fork(); });
  }
  CausalLMCache fork(std::span<const Index> entries) const {
    return make([&](const auto& layer) { return layer.fork(entries); });
  }

 private:
  template <class F>
  CausalLMCache make(F make_layer) const {
    CausalLMCache other;
    other.layers.reserve(layers.size());
    for (const auto& layer : layers) other.layers.push_back(make_layer(layer));
    return other;
  }
};

ATTN_NAMESPACE_END
