// tests/masks/consistency.hpp - checks that a mask's hints and block forms say what it says per pair.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attn/core/random.hpp"
#include "attn/masks/score_block.hpp"

namespace attn_test {

using attn::Coverage;
using attn::Index;
using attn::Position;
using attn::Problem;
using attn::Range;
using attn::Site;
using attn::Tile;

/// Draws problems, and tiles and blocks within them, from a seed.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  Index between(Index low, Index high) {
    return low + static_cast<Index>(random_.word(next_++)) % (high - low + 1);
  }
  Range part(Index length) {
    const Index a = between(0, length), b = between(0, length);
    return {std::min(a, b), std::max(a, b)};
  }
  /// `offsets` is where the offset of each batch entry is kept.
  Problem problem(std::vector<Index>& offsets) {
    Problem p{.batch = between(1, 3),
              .num_heads = 4,
              .num_kv_heads = 2,
              .q_len = between(1, 40),
              .kv_len = between(1, 40)};
    offsets.clear();
    for (Index b = 0; b < p.batch; ++b) offsets.push_back(between(-p.q_len - 2, p.kv_len + 2));
    p.offset = attn::QueryOffset(std::span<const Index>(offsets));
    return p;
  }
  Tile tile(const Problem& p) {
    return {between(0, p.batch - 1), between(0, p.num_heads - 1), part(p.q_len), part(p.kv_len)};
  }

 private:
  attn::CounterRandom random_;
  std::uint64_t next_ = 0;
};

template <class M>
std::vector<bool> seen_pairs(const M& mask, const Tile& tile, const Problem& p) {
  std::vector<bool> seen;
  for (Index q = tile.q.begin; q < tile.q.end; ++q)
    for (Index k = tile.k.begin; k < tile.k.end; ++k)
      seen.push_back(mask_allows(
          mask, Site{tile.batch, tile.head, static_cast<Position>(q), static_cast<Position>(k)}, p));
  return seen;
}

template <class M>
void expect_key_range_holds_every_seen_key(const M& mask, Tile tile, const Problem& p) {
  tile.k = {0, p.kv_len};
  const Range keys = mask_key_range(mask, tile, p);
  EXPECT_TRUE(keys.empty() || (0 <= keys.begin && keys.end <= p.kv_len));
  for (Index k = 0; k < p.kv_len; ++k) {
    tile.k = {k, k + 1};
    const std::vector<bool> seen = seen_pairs(mask, tile, p);
    if (k < keys.begin || k >= keys.end) {
      EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 0) << "key " << k;
    }
  }
}

template <class M>
void expect_coverage_is_true(const M& mask, const Tile& tile, const Problem& p) {
  const std::vector<bool> seen = seen_pairs(mask, tile, p);
  const auto count = static_cast<std::size_t>(std::count(seen.begin(), seen.end(), true));
  const Coverage coverage = mask_coverage(mask, tile, p);
  EXPECT_TRUE(coverage != Coverage::none || count == 0);
  EXPECT_TRUE(coverage != Coverage::full || count == seen.size());
}

constexpr int lanes = 16;
using Block = attn::ScoreBlock<double, lanes>;

/// A block at a random place; among its random scores are NaN and infinity, since masked keys may hold those.
inline Block random_block(Draw& draw, const Problem& p, std::array<double, lanes * 8>& scores) {
  Block block;
  block.data = scores.data();
  block.batch = draw.between(0, p.batch - 1);
  block.head = draw.between(0, p.num_heads - 1);
  block.q = static_cast<Position>(draw.between(0, p.q_len - 1));
  block.k = static_cast<Position>(draw.between(0, p.kv_len - 1));
  block.lanes = static_cast<Position>(std::min<Index>(lanes, p.q_len - block.q));
  block.keys = static_cast<Position>(std::min<Index>(8, p.kv_len - block.k));
  for (double& score : scores) {
    score = static_cast<double>(draw.between(-100, 100)) / 8;
    const Index kind = draw.between(0, 20);
    if (kind == 0) score = std::numeric_limits<double>::quiet_NaN();
    if (kind == 1) score = std::numeric_limits<double>::infinity();
  }
  return block;
}

inline bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

template <class M>
void expect_block_form_is_the_pair_form(const M& mask, Draw& draw, const Problem& p) {
  std::array<double, lanes * 8> scores{};
  const Block block = random_block(draw, p, scores);
  const auto before = scores;
  change_scores(mask, block, p);
  filter_scores(mask, block, p);
  for (Position j = 0; j < block.keys; ++j)
    for (Position i = 0; i < block.lanes; ++i) {
      const Site site{block.batch, block.head, block.q + i, block.k + j};
      const double changed = mask_score(mask, before[attn::as_size(j * lanes + i)], site, p);
      const double expected = mask_allows(mask, site, p) ? changed : attn::masked_score<double>;
      ASSERT_TRUE(same(block.row(j)[i], expected)) << block.row(j)[i] << " instead of " << expected;
    }
}

/// The hints are not only true but as sharp as they can be: the key range ends at keys that are seen, and a
/// tile of which all pairs, or none, are seen is said to be so. For filters whose queries see runs of keys.
template <class M>
void expect_exact(const M& mask, Tile tile, const Problem& p) {
  if (!tile.q.empty() && !tile.k.empty()) {
    const std::vector<bool> seen = seen_pairs(mask, tile, p);
    const auto count = static_cast<std::size_t>(std::count(seen.begin(), seen.end(), true));
    const Coverage exact = count == 0             ? Coverage::none
                           : count == seen.size() ? Coverage::full
                                                  : Coverage::partial;
    EXPECT_EQ(mask_coverage(mask, tile, p), exact);
  }
  const Range keys = mask_key_range(mask, tile, p);
  if (tile.q.empty() || keys.empty()) return;
  for (const Index key : {keys.begin, keys.end - 1}) {
    tile.k = {key, key + 1};
    const std::vector<bool> seen = seen_pairs(mask, tile, p);
    EXPECT_TRUE(std::find(seen.begin(), seen.end(), true) != seen.end()) << "nobody sees key " << key;
  }
}

enum class Hints { are_true, are_exact };

/// Checks the mask that `make` returns for each of many random problems.
template <class Make>
void expect_consistent(Make make, Hints hints = Hints::are_true) {
  Draw draw(2024);
  std::vector<Index> offsets;
  for (int repeat = 0; repeat < 300; ++repeat) {
    const Problem p = draw.problem(offsets);
    const auto mask = make(draw, p);
    mask_validate(mask, p);
    const Tile tile = draw.tile(p);
    SCOPED_TRACE("problem " + std::to_string(repeat));
    expect_key_range_holds_every_seen_key(mask, tile, p);
    expect_coverage_is_true(mask, tile, p);
    expect_block_form_is_the_pair_form(mask, draw, p);
    if (hints == Hints::are_exact) expect_exact(mask, tile, p);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace attn_test
