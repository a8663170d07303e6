#include "attn/core/overlap.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "attn/core/random.hpp"

namespace {

using attn::Dims;
using attn::Index;
using View = attn::TensorView<int, 2>;
using View4 = attn::TensorView<int, 4>;

template <int Rank>
std::multiset<const int*> addresses(const attn::TensorView<int, Rank>& view) {
  std::multiset<const int*> all;
  if constexpr (Rank == 1)
    for (Index i = 0; i < view.extent(0); ++i) all.insert(&view(i));
  else
    for (Index i = 0; i < view.extent(0); ++i) all.merge(addresses(view[i]));
  return all;
}

std::vector<int> memory(4096);

TEST(Disjoint, AreColumnsOfOneMatrix) {
  const Index tokens = 5, heads = 2, dim = 3, row = 4 * heads * dim;
  const auto part = [&](Index which) {  // of a matrix [tokens, (query, key, value, out) * heads * dim]
    return View4(memory.data() + which * heads * dim, {1, heads, tokens, dim}, {0, dim, row, 1});
  };
  for (Index a = 0; a < 4; ++a)
    for (Index b = 0; b < 4; ++b) EXPECT_EQ(attn::is_disjoint(part(a), part(b)), a != b);
}

TEST(Disjoint, AreNotColumnsThatShareOne) {
  const View left(memory.data(), {5, 4}, {10, 1}), right(memory.data() + 4, {5, 6}, {10, 1}),
      wide(memory.data() + 3, {5, 6}, {10, 1}), around(memory.data() + 4, {5, 7}, {10, 1});
  EXPECT_TRUE(attn::is_disjoint(left, right));
  EXPECT_FALSE(attn::is_disjoint(left, wide));
  EXPECT_FALSE(attn::is_disjoint(left, around));  // its last column is the first of the next row
}

TEST(Disjoint, AreRowsInTurnAndColumnsReadBackwards) {
  const View even(memory.data(), {4, 10}, {20, 1}), odd(memory.data() + 10, {4, 10}, {20, 1}),
      backwards(memory.data() + 70, {4, 10}, {-20, 1});
  EXPECT_TRUE(attn::is_disjoint(even, odd));
  EXPECT_TRUE(attn::is_disjoint(even, backwards));
  EXPECT_FALSE(attn::is_disjoint(odd, backwards));
}

TEST(Disjoint, IsNothingFromEverything) {
  const View nothing(memory.data(), {0, 10}), all(memory.data(), {10, 10});
  EXPECT_TRUE(attn::is_disjoint(nothing, all));
  EXPECT_FALSE(attn::is_disjoint(all, all));
}

class RandomViews : public testing::Test {
 protected:
  Index draw(Index begin, Index end) {
    return begin + static_cast<Index>(random.word(counter++) % (end - begin));
  }
  attn::TensorView<int, 3> view() {
    Dims<3> extents{}, strides{};
    for (int axis = 0; axis < 3; ++axis) {
      extents[axis] = draw(1, 5);
      strides[axis] = draw(-12, 13);
    }
    return {memory.data() + draw(1000, 1030), extents, strides};
  }
  attn::CounterRandom random{7};
  std::uint64_t counter = 0;
};

TEST_F(RandomViews, ThatAreSaidToBeDisjointShareNoAddress) {
  int disjoint = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto a = view(), b = view();
    if (!attn::is_disjoint(a, b)) continue;
    ++disjoint;
    const auto of_a = addresses(a);
    for (const int* address : addresses(b)) ASSERT_FALSE(of_a.contains(address));
  }
  EXPECT_GT(disjoint, 1000);
}

TEST_F(RandomViews, ThatAreSaidToCoincideDo) {
  int coinciding = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto x = view();
    if (!attn::has_coinciding_elements(x)) continue;
    ++coinciding;
    const auto all = addresses(x);
    ASSERT_LT(std::set<const int*>(all.begin(), all.end()).size(), all.size());
  }
  EXPECT_GT(coinciding, 1000);
}

TEST(CoincidingElements, AreFoundForEveryPairOfAxes) {
  for (Index s = -7; s < 8; ++s)
    for (Index t = -7; t < 8; ++t)
      for (Index rows = 1; rows < 6; ++rows)
        for (Index columns = 1; columns < 6; ++columns) {
          const View x(memory.data() + 1000, {rows, columns}, {s, t});
          const auto all = addresses(x);
          ASSERT_EQ(attn::has_coinciding_elements(x),
                    std::set<const int*>(all.begin(), all.end()).size() < all.size())
              << x << x.strides();
        }
}

TEST(CoincidingElements, AreNotInAViewOfNothing) {
  EXPECT_FALSE(attn::has_coinciding_elements(View(memory.data(), {0, 3}, {0, 0})));
  EXPECT_FALSE(attn::has_coinciding_elements(View4(memory.data(), {1, 1, 5, 8}, {0, 0, 8, 1})));
}

TEST(Overlap, AnAxisOfOneElementMayHaveAnyStrideInTheSameView) {
  using View3 = attn::TensorView<int, 3>;
  const View3 x(memory.data(), {2, 1, 6}, {6, 6, 1});
  EXPECT_TRUE(attn::is_same(x, View3(memory.data(), {2, 1, 6}, {6, 99, 1})));
  EXPECT_FALSE(attn::is_same(x, View3(memory.data(), {2, 1, 6}, {12, 6, 1})));
  EXPECT_FALSE(attn::is_same(x, View3(memory.data(), {2, 1, 5}, {6, 6, 1})));
  EXPECT_FALSE(attn::is_same(x, View3(memory.data() + 1, {2, 1, 6}, {6, 6, 1})));
}

}  // namespace
