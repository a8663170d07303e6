// Attention with a cache on randomly drawn layers, batches, chunks and truncations equals attention of the
// whole sequences. ATTN_PROPERTY_CASES / 20 cases (default 500), seeds from ATTN_PROPERTY_SEED.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <vector>

#include "attn/masks/alibi.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/window.hpp"
#include "attn/modules/multi_head_attention.hpp"
#include "support/draw.hpp"
#include "support/random_values.hpp"

namespace {

using attn::as_size;
using attn::Index;
using attn::Tensor;
using attn_test::Draw;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

attn::MultiHeadAttentionConfig draw_config(Draw& draw) {
  attn::MultiHeadAttentionConfig c{.embed_dim = draw.between(1, 12)};
  c.num_kv_heads = draw.between(1, 3);
  c.num_heads = c.num_kv_heads * draw.between(1, 4);
  c.head_dim = draw.between(1, 9);
  c.value_dim = draw.between(1, 9);
  c.bias = draw.one_in(2);
  if (draw.one_in(3)) c.soft_cap = 2;
  if (draw.one_in(3)) c.qk_norm = attn::NormKind::rms;
  if (c.head_dim > 1 && draw.one_in(2))
    c.rope =
        attn::RopeConfig{.pairing = draw.one_in(2) ? attn::RopePairing::half : attn::RopePairing::interleaved,
                         .rotary_dim = 2 * draw.between(1, c.head_dim / 2)};
  return c;
}

/// Sequences that come in chunks of their own lengths, padded at one end with NaN, with a step back now and
/// then.
class Case {
 public:
  explicit Case(std::uint64_t seed)
      : draw_(seed),
        module_(draw_config(draw_)),
        len_(draw_.between(1, 40)),
        x_({draw_.between(1, 4), len_, module_.config().embed_dim}),
        out_(x_.extents()),
        done_(as_size(batch())),
        counts_(as_size(batch())) {
    attn_test::randomize(module_, seed);
    for (Index i = 0; i < x_.size(); ++i) x_.data()[i] = static_cast<double>(draw_.normal());
  }

  template <class M>
  void expect_the_whole(const M& mask) {
    attn::KVCache<double> cache(draw_cache());
    while (std::any_of(done_.begin(), done_.end(), [&](Index done) { return done < len_; })) {
      append_chunk(cache, mask);
      if (!draw_.one_in(4)) continue;
      for (Index& done : done_)
        if (draw_.one_in(3)) done -= std::min<Index>(done, draw_.between(1, 3));
      cache.truncate(done_);
    }
    EXPECT_LT(attn_test::largest_difference(out_, module_.forward(x_, mask)), 1e-11);
  }
  Draw& draw() { return draw_; }
  Index num_heads() const { return module_.config().num_heads; }

 private:
  Index batch() const { return x_.extents()[0]; }

  attn::KVCacheConfig draw_cache() {
    const auto& c = module_.config();
    attn::KVCacheConfig cache{.batch = batch(),
                              .num_kv_heads = c.num_kv_heads,
                              .head_dim = c.head_dim,
                              .value_dim = c.value_dim,
                              .max_len = len_};
    if (draw_.one_in(2)) cache.page_rows = draw_.between(1, 20);
    if (draw_.one_in(2)) {
      cache.growth = attn::Growth::doubling;
      cache.max_len = draw_.between(0, 3);
    }
    return cache;
  }

  template <class M>
  void append_chunk(attn::KVCache<double>& cache, const M& mask) {
    const Index n = draw_.one_in(2) ? 1 : draw_.between(1, 12);
    const bool left = draw_.one_in(2);
    Tensor<double, 3> chunk({batch(), n, x_.extents()[2]});
    std::fill_n(chunk.data(), chunk.size(), std::numeric_limits<double>::quiet_NaN());
    const auto rows = [&](auto& of, Index b, Index begin) {
      return of.view()[b].slice(0, {begin, begin + counts_[as_size(b)]});
    };
    const auto first = [&](Index b) { return left ? n - counts_[as_size(b)] : 0; };
    for (Index b = 0; b < batch(); ++b) {
      counts_[as_size(b)] = std::min(draw_.between(0, n), len_ - done_[as_size(b)]);
      copy(rows(x_, b, done_[as_size(b)]), rows(chunk, b, first(b)));
    }
    const auto result = module_.forward(
        chunk, cache, mask,
        {.counts = counts_, .padding = left ? attn::PaddingSide::left : attn::PaddingSide::right});
    for (Index b = 0; b < batch(); ++b) {
      copy(rows(result, b, first(b)), rows(out_, b, done_[as_size(b)]));
      done_[as_size(b)] += counts_[as_size(b)];
      EXPECT_EQ(cache.length(b), done_[as_size(b)]);
    }
  }

  Draw draw_;
  attn::MultiHeadAttention<double> module_;
  Index len_;
  Tensor<double, 3> x_, out_;
  std::vector<Index> done_, counts_;
};

TEST(CachedAttentionProperty, InAnyChunksEqualsTheWholeSequences) {
  const std::uint64_t first = from_environment("ATTN_PROPERTY_SEED", 1);
  const std::uint64_t cases = std::max<std::uint64_t>(from_environment("ATTN_PROPERTY_CASES", 10000) / 20, 1);
  for (std::uint64_t seed = first; seed < first + cases; ++seed) {
    SCOPED_TRACE(seed);
    Case c(seed);
    switch (c.draw().between(0, 2)) {
      case 0:
        c.expect_the_whole(attn::Causal{});
        break;
      case 1:
        c.expect_the_whole(attn::Causal{} & attn::SlidingWindow{.left = c.draw().between(0, 9), .right = 0});
        break;
      default:
        c.expect_the_whole(attn::Causal{} & attn::Alibi(c.num_heads()));
    }
    if (HasFailure()) return;
  }
}

}  // namespace
