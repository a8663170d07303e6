// attn/models/kv_cache_file.hpp - saving and loading of caches: a prompt that is computed once.
//
// A safetensors file with, for sequence b of layer i, layers.i.sequences.b.keys [kv_heads, length, head_dim]
// and .values [kv_heads, length, value_dim] in the cache's storage type, of 8-bit integers also .key_scales
// and .value_scales [kv_heads, length, 1]; and layers.i.positions [batch]. The layout in memory does not
// matter.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attn/io/safetensors.hpp"
#include "attn/masks/mask.hpp"
#include "attn/ops/kv_cache.hpp"

ATTN_NAMESPACE_BEGIN
namespace detail {

inline constexpr const char* kv_cache_format = "attn_kv_cache";
inline constexpr const char* kv_cache_version = "1";

/// The scales of rows of integers as rows [batch, heads, len, 1].
template <class S>
StoredRows<float> scale_rows(const StoredRows<S>& x) {
  StoredRows<float> scales;
  scales.data = x.scales;
  scales.extents = {x.extent(0), x.extent(1), x.extent(2), 1};
  scales.strides = {x.scale_strides[0], x.scale_strides[1], x.scale_strides[2], 1};
  scales.pages = x.pages;
  scales.pages_per_entry = x.pages_per_entry;
  scales.page_rows = x.page_rows;
  return scales;
}

/// Rows [heads, len, dim] of a sequence: borrowed where they lie in one run, else copied.
template <class S>
StoredTensor sequence_rows(const std::string& name, const StoredRows<S>& x, Index entry, Index len) {
  const Dims<3> extents{x.extent(1), len, x.extent(3)};
  if (x.pages == nullptr)
    return {name, TensorView<const S, 3>(x.data + entry * x.strides[0], extents,
                                         {x.strides[1], x.strides[2], x.strides[3]})};
  const auto rows = std::make_shared<std::vector<S>>(as_size(product(extents)));
  const TensorView<S, 3> to(rows->data(), extents);
  for (Index r = 0; r < len; ++r)
    for (Index h = 0; h < extents[0]; ++h) {
      const S* const from =
          x.data + x.page(entry, r) * x.strides[0] + h * x.strides[1] + r % x.page_rows * x.strides[2];
      for (Index c = 0; c < extents[2]; ++c) to(h, r, c) = from[c * x.strides[3]];
    }
  const StoredTensor view(name, to);
  return {name, view.dtype(), view.shape(), view.strides(), view.data(), rows};
}

inline std::string layer_name(std::size_t layer) { return "layers." + std::to_string(layer) + "."; }
inline std::string sequence_name(std::size_t layer, Index entry) {
  return layer_name(layer) + "sequences." + std::to_string(entry) + ".";
}

/// What a file holds of one layer, held against the cache that is to take it.
template <Element T, StorageElement S>
class CacheReader {
 public:
  static constexpr bool has_scales = std::is_same_v<S, std::int8_t>;
  static constexpr std::size_t tensors_per_sequence = has_scales ? 4 : 2;

  /// @throws FormatError if a tensor is missing, of another type or shape, or longer than the cache may be.
  CacheReader(const WeightMap& weights, std::size_t layer, const KVCache<T, S>& cache)
      : weights_(weights), layer_(layer), config_(cache.config()), positions_(as_size(cache.batch())) {
    for (Index b = 0; b < config_.batch; ++b) read_length(b);
    weights.copy_to(layer_name(layer) + "positions",
                    TensorView<Index, 1>(positions_.data(), {config_.batch}));
    for (std::size_t b = 0; b < positions_.size(); ++b)
      check<FormatError>(lengths_[b] <= positions_[b] && positions_[b] < farthest_position, weights.origin(),
                         ": position ", positions_[b], " of sequence ", b, " does not fit its ", lengths_[b],
                         " rows");
  }

  void load(KVCache<T, S>& cache) const {
    const Index longest = lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end());
    const Loaded keys(*this, "key", longest, config_.head_dim),
        values(*this, "value", longest, config_.value_dim);
    cache.assign(keys.rows, values.rows, lengths_, positions_);
  }

 private:
  /// Rows of all sequences in memory.
  struct Loaded {
    std::vector<S> elements;
    std::vector<float> scales;
    StoredRows<S> rows{};

    Loaded(const CacheReader& reader, const std::string& name, Index longest, Index dim)
        : elements(reader.read<S>(name + "s", longest, dim)) {
      if constexpr (has_scales) scales = reader.read<float>(name + "_scales", longest, 1);
      const Index heads = reader.config_.num_kv_heads;
      rows.data = elements.data();
      rows.extents = {reader.config_.batch, heads, longest, dim};
      rows.strides = contiguous_strides(rows.extents);
      rows.scales = scales.data();
      rows.scale_strides = {heads * longest, longest, 1};
    }
  };

  void read_length(Index b) {
    const StoredTensor& keys = tensor(b, "keys");
    check<FormatError>(keys.rank() == 3, keys.label(), " has shape ", PrintShape{keys.shape()},
                       ", not [kv_heads, length, head_dim]");
    const Index len = keys.shape()[1];
    check<FormatError>(len <= config_.max_len || config_.growth == Growth::doubling, keys.label(), " has ",
                       len, " rows, but the cache has room for ", config_.max_len);
    lengths_.push_back(len);
    expect<S>(b, "keys", config_.head_dim);
    expect<S>(b, "values", config_.value_dim);
    if constexpr (has_scales) {
      expect<float>(b, "key_scales", 1);
      expect<float>(b, "value_scales", 1);
    }
  }
  template <class E>
  void expect(Index b, const char* name, Index dim) const {
    const StoredTensor& stored = tensor(b, name);
    const std::vector<Index> wanted{config_.num_kv_heads, lengths_[as_size(b)], dim};
    check<FormatError>(stored.dtype() == dtype_of<E> && stored.shape() == wanted, stored.label(), " is ",
                       stored.dtype(), " ", PrintShape{stored.shape()}, ", but the cache holds ", dtype_of<E>,
                       " ", PrintShape{wanted});
  }
  const StoredTensor& tensor(Index b, const std::string& name) const {
    return weights_.at(sequence_name(layer_, b) + name);
  }
  template <class E>
  std::vector<E> read(const std::string& name, Index longest, Index dim) const {
    const Index heads = config_.num_kv_heads;
    std::vector<E> all(as_size(config_.batch * heads * longest * dim));
    for (Index b = 0; b < config_.batch; ++b)
      tensor(b, name).copy_to(TensorView<E, 3>(all.data() + b * heads * longest * dim,
                                               {heads, lengths_[as_size(b)], dim}, {longest * dim, dim, 1}));
    return all;
  }

  const WeightMap& weights_;
  std::size_t layer_;
  KVCacheConfig config_;
  std::vector<Index> lengths_{}, positions_;
};

}  // namespace detail

/// Writes the rows of the caches of a model's layers, whole or not at all.
/// Storage stays as it is: what is loaded has the same bits.
/// @throws std::runtime_error if the file cannot be written.
template <Element T, StorageElement S>
void save_kv_caches(const std::filesystem::path& path, std::span<const KVCache<T, S>> layers) {
  WeightMap weights(path.string());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const KVCache<T, S>& cache = layers[i];
    const StoredRows<S> keys = cache.keys(), values = cache.values();
    const auto add = [&](const std::string& name, const auto& rows, Index b) {
      weights.add(name, detail::sequence_rows(name, rows, b, cache.length(b)));
    };
    for (Index b = 0; b < cache.batch(); ++b) {
      const std::string name = detail::sequence_name(i, b);
      add(name + "keys", keys, b);
      add(name + "values", values, b);
      if constexpr (std::is_same_v<S, std::int8_t>) {
        add(name + "key_scales", detail::scale_rows(keys), b);
        add(name + "value_scales", detail::scale_rows(values), b);
      }
    }
    const std::string name = detail::layer_name(i) + "positions";
    weights.add(name,
                StoredTensor(name, TensorView<const Index, 1>(cache.positions().data(), {cache.batch()})));
  }
  write_safetensors(path, weights, {{detail::kv_cache_format, detail::kv_cache_version}});
}

/// Replaces the rows of the caches of a model's layers by those of a file, which may be anybody's: everything
/// it says is checked before a cache changes. The caches say what fits: as many layers and sequences, the
/// same heads, widths and storage, and room.
/// @throws FormatError if the file is not one of save_kv_caches, or is one of other caches.
template <Element T, StorageElement S>
void load_kv_caches(const std::filesystem::path& path, std::span<KVCache<T, S>> layers) {
  using Reader = detail::CacheReader<T, S>;
  const Safetensors file = open_safetensors(path);
  const auto version = file.metadata.find(detail::kv_cache_format);
  check<FormatError>(version != file.metadata.end() && version->second == detail::kv_cache_version,
                     path.string(), ": is not a file of caches that this version can read");
  std::vector<Reader> readers;
  std::size_t tensors = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    readers.emplace_back(file.weights, i, layers[i]);
    tensors += 1 + as_size(layers[i].batch()) * Reader::tensors_per_sequence;
  }
  check<FormatError>(as_size(file.weights.size()) == tensors, path.string(), ": holds ", file.weights.size(),
                     " tensors, but ", layers.size(), " caches of ", layers.empty() ? 0 : layers[0].batch(),
                     " sequences have ", tensors);
  for (std::size_t i = 0; i < layers.size(); ++i) readers[i].load(layers[i]);
}

/// As above, of one cache.
template <Element T, StorageElement S>
void save_kv_cache(const std::filesystem::path& path, const KVCache<T, S>& cache) {
  save_kv_caches(path, std::span<const KVCache<T, S>>(&cache, 1));
}
template <Element T, StorageElement S>
void load_kv_cache(const std::filesystem::path& path, KVCache<T, S>& cache) {
  load_kv_caches(path, std::span<KVCache<T, S>>(&cache, 1));
}

ATTN_NAMESPACE_END
