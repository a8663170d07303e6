// A mask says per pair what is seen; its other members are hints or faster forms, and must say the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "attn/core/random.hpp"
#include "attn/core/tensor.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/score_block.hpp"
#include "attn/masks/tensor_mask.hpp"

namespace {

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
Block random_block(Draw& draw, const Problem& p, std::array<double, lanes * 8>& scores) {
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

bool same(double a, double b) { return a == b || (a != a && b != b); }

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
      const double changed = mask_score(mask, before[static_cast<std::size_t>(j * lanes + i)], site, p);
      const double expected = mask_allows(mask, site, p) ? changed : attn::masked_score<double>;
      ASSERT_TRUE(same(block.row(j)[i], expected)) << block.row(j)[i] << " instead of " << expected;
    }
}

/// Checks the mask that `make` returns for each of many random problems.
template <class Make>
void expect_consistent(Make make) {
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
    if (testing::Test::HasFailure()) return;
  }
}

/// Owns what the borrowing masks look at.
struct Tensors {
  std::vector<Index> lengths;
  std::vector<unsigned char> flags;
  attn::Tensor<float, 4> numbers;

  attn::KeyPadding padding(Draw& draw, const Problem& p) {
    lengths.clear();
    for (Index b = 0; b < p.batch; ++b) lengths.push_back(draw.between(0, p.kv_len));
    return {lengths};
  }
  /// Extents that fit the problem, each axis possibly 1.
  static attn::Dims<4> extents(Draw& draw, const Problem& p) {
    attn::Dims<4> extents{p.batch, p.num_heads, p.q_len, p.kv_len};
    for (int axis = 0; axis < 4; ++axis)
      if (draw.between(0, 2) == 0) extents[axis] = 1;
    return extents;
  }
  attn::TensorView<const unsigned char, 4> random_flags(Draw& draw, const Problem& p) {
    const attn::Dims<4> wanted = extents(draw, p);
    flags.resize(static_cast<std::size_t>(product(wanted)));
    for (unsigned char& flag : flags)
      flag = static_cast<unsigned char>(draw.between(0, 1) * draw.between(1, 255));
    return {flags.data(), wanted};
  }
  attn::TensorView<const float, 4> random_numbers(Draw& draw, const Problem& p) {
    numbers = attn::Tensor<float, 4>(extents(draw, p));
    for (Index i = 0; i < numbers.size(); ++i)
      numbers.data()[i] = static_cast<float>(draw.between(-9, 9)) / 4;
    return std::as_const(numbers).view();
  }
};

/// A mask of a user: one line, no hooks.
struct SameParity {
  static bool allows(const Site& s, const Problem&) { return (s.q - s.k) % 2 == 0; }
};

TEST(NoMask, IsConsistent) {
  expect_consistent([](Draw&, const Problem&) { return attn::NoMask{}; });
}
TEST(Causal, IsConsistent) {
  expect_consistent([](Draw&, const Problem&) { return attn::Causal{}; });
}
TEST(KeyPadding, IsConsistent) {
  Tensors tensors;
  expect_consistent([&](Draw& draw, const Problem& p) { return tensors.padding(draw, p); });
}
TEST(KeepMask, IsConsistent) {
  Tensors tensors;
  expect_consistent(
      [&](Draw& draw, const Problem& p) { return attn::KeepMask(tensors.random_flags(draw, p)); });
}
TEST(DropMask, IsConsistent) {
  Tensors tensors;
  expect_consistent(
      [&](Draw& draw, const Problem& p) { return attn::DropMask(tensors.random_flags(draw, p)); });
}
TEST(AdditiveBias, IsConsistent) {
  Tensors tensors;
  expect_consistent(
      [&](Draw& draw, const Problem& p) { return attn::AdditiveBias(tensors.random_numbers(draw, p)); });
}
TEST(AUsersMask, IsConsistent) {
  expect_consistent([](Draw&, const Problem&) { return SameParity{}; });
}
TEST(AllOf, IsConsistent) {
  Tensors tensors;
  expect_consistent([&](Draw& draw, const Problem& p) {
    return attn::AdditiveBias(tensors.random_numbers(draw, p)) & attn::Causal{} & tensors.padding(draw, p) &
           SameParity{};
  });
}

}  // namespace
