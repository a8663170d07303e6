// The shapes that a tensor mask may have, by name: B batch entries, H heads, L queries, S keys.
#include "attn/masks/tensor_mask.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "attn/masks/per_key.hpp"
#include "attn/masks/score_mod.hpp"
#include "attn/ops/sdpa.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn::Tensor;
using attn::TensorView;

constexpr Index B = 2, H = 3, L = 37, S = 45;  // NOLINT(readability-identifier-naming): of PyTorch

/// Attention with a mask of `Rank` axes and with the same mask written out as [B, H, L, S], for all three
/// kinds of mask: must be the same bits.
class NamedShapes : public testing::Test {
 protected:
  template <int Rank>
  void expect_repeated(attn::Dims<Rank> shape) {
    std::vector<unsigned char> flags(attn::as_size(product(shape)));
    std::vector<float> biases(flags.size());
    const attn::CounterRandom random(5);
    for (std::size_t i = 0; i < flags.size(); ++i) {
      flags[i] = random.word(i) % 3 != 0 ? 1 : 0;
      biases[i] = static_cast<float>(random.normal(1000000 + i));
    }
    const TensorView<const unsigned char, Rank> few_flags(flags, shape);
    const TensorView<const float, Rank> few_biases(biases, shape);
    const auto all_flags = written_out<unsigned char>(few_flags);
    const auto all_biases = written_out<float>(few_biases);
    const TensorView<const unsigned char, 4> flag_view(all_flags, {B, H, L, S});
    const TensorView<const float, 4> bias_view(all_biases, {B, H, L, S});
    EXPECT_EQ(attend(attn::KeepMask(few_flags)), attend(attn::KeepMask(flag_view)));
    EXPECT_EQ(attend(attn::DropMask(few_flags)), attend(attn::DropMask(flag_view)));
    EXPECT_EQ(attend(attn::AdditiveBias(few_biases)), attend(attn::AdditiveBias(bias_view)));
  }
  template <class M>
  Tensor<float, 4> attend(const M& mask) const {
    return attn::sdpa(q, k, v, mask);
  }
  /// The [B, H, L, S] elements of a tensor aligned from the right, by the rule of broadcasting itself.
  template <class T, int Rank>
  static std::vector<T> written_out(const TensorView<const T, Rank>& x) {
    std::vector<T> all;
    for (Index i = 0; i < B * H * L * S; ++i) {
      const Index site[] = {i / (H * L * S), i / (L * S) % H, i / S % L, i % S};
      Index offset = 0;
      for (int axis = 0; axis < Rank; ++axis)
        offset = offset * x.extent(axis) + (x.extent(axis) == 1 ? 0 : site[axis + 4 - Rank]);
      all.push_back(x.data()[offset]);
    }
    return all;
  }

  const Tensor<float, 4> q = attn_test::random_tensor<float, 4>({B, H, L, 8}, 1);
  const Tensor<float, 4> k = attn_test::random_tensor<float, 4>({B, H, S, 8}, 2);
  const Tensor<float, 4> v = attn_test::random_tensor<float, 4>({B, H, S, 8}, 3);
};

TEST_F(NamedShapes, LS) { expect_repeated<2>({L, S}); }
TEST_F(NamedShapes, HLS) { expect_repeated<3>({H, L, S}); }
TEST_F(NamedShapes, B11S) { expect_repeated<4>({B, 1, 1, S}); }
TEST_F(NamedShapes, B1LS) { expect_repeated<4>({B, 1, L, S}); }
TEST_F(NamedShapes, BHLS) { expect_repeated<4>({B, H, L, S}); }
TEST_F(NamedShapes, OneValuePerQuery) { expect_repeated<4>({B, H, L, 1}); }

// The packets of the kernel against one pair at a time.
TEST_F(NamedShapes, AByteIsTrueUnlessItIsZero) {
  std::vector<unsigned char> flags(attn::as_size(B * H * L * S));
  const attn::CounterRandom random(8);
  for (std::size_t i = 0; i < flags.size(); ++i) {
    constexpr unsigned char values[] = {0, 1, 2, 127, 128, 255};
    flags[i] = values[random.word(i) % 6];
  }
  const TensorView<const unsigned char, 4> view(flags, {B, H, L, S});
  const auto is_true = [&](const attn::Site& at) { return view(at.batch, at.head, at.q, at.k) != 0; };
  EXPECT_EQ(attend(attn::KeepMask(view)), attend(attn::Filter{is_true}));
  EXPECT_EQ(attend(attn::DropMask(view)),
            attend(attn::Filter{[&](const attn::Site& at) { return !is_true(at); }}));
}

TEST_F(NamedShapes, PerKeyIsB11S) {
  const auto bias = attn_test::random_tensor<float, 2>({B, S}, 4);
  const TensorView<const float, 4> named(bias.data(), {B, 1, 1, S});
  EXPECT_EQ(attend(attn::AdditiveBias(attn::per_key(bias))), attend(attn::AdditiveBias(named)));
}

TEST_F(NamedShapes, PerKeyHoldsForEitherStorageOrder) {
  Eigen::Matrix<bool, Eigen::Dynamic, Eigen::Dynamic> columns(B, S);
  for (Index b = 0; b < B; ++b)
    for (Index s = 0; s < S; ++s) columns(b, s) = (3 * b + s) % 4 != 0;
  const Eigen::Matrix<bool, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> rows = columns;
  EXPECT_EQ(attend(attn::KeepMask(attn::per_key(columns))), attend(attn::KeepMask(attn::per_key(rows))));
}

// The key column of a masked key is 0 in every query row, and every row sums to 1: not the other way round.
TEST(KeepMask, PerKeyMasksColumnsOfEachBatchEntry) {
  const auto x = attn_test::random_tensor<double, 4>({2, 1, 3, 4}, 6);
  Eigen::Matrix<bool, 2, 3> keep;
  keep << true, true, false, true, false, false;
  const auto [out, weights] = attn::sdpa_with_weights(x, x, x, attn::KeepMask(attn::per_key(keep)));
  for (Index b = 0; b < 2; ++b)
    for (Index q = 0; q < 3; ++q) {
      double sum = 0;
      for (Index k = 0; k < 3; ++k) {
        EXPECT_EQ(weights(b, 0, q, k) != 0, keep(b, k));
        sum += weights(b, 0, q, k);
      }
      EXPECT_NEAR(sum, 1, 1e-15);
    }
}

}  // namespace
