// A mask says per pair what is seen; its other members are hints or faster forms, and must say the same.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "attn/core/tensor.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "masks/consistency.hpp"

namespace {

using attn::Index;
using attn::Problem;
using attn::Site;
using attn_test::Draw;
using attn_test::expect_consistent;

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
