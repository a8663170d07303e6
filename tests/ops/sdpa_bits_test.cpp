// tests/ops/sdpa_bits_test.cpp - what never changes a bit of sdpa's result: strides, executor, workspace; and
// that a warmed-up call allocates nothing.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/document.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "attn/masks/window.hpp"
#include "attn/ops/heads.hpp"
#include "attn/ops/sdpa.hpp"
#include "support/attention.hpp"
#include "support/counting_new.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::random_tensor;
using attn_test::same_bits;
using InnerStride2 = Eigen::Map<Eigen::MatrixXf, 0, Eigen::Stride<Eigen::Dynamic, 2>>;

/// A copy of a matrix whose elements lie two apart, column-major.
struct Spread {
  explicit Spread(const attn::Matrix<float>& x)
      : storage(Eigen::VectorXf::Constant(2 * x.size(), std::nanf(""))),
        map(storage.data(), x.rows(), x.cols(), Eigen::Stride<Eigen::Dynamic, 2>(2 * x.rows(), 2)) {
    map = x;
  }
  Eigen::VectorXf storage;
  InnerStride2 map;
};

attn::Matrix<float> random_matrix(Index rows, Index columns, std::uint64_t seed) {
  const auto values = random_tensor<float, 2>({rows, columns}, seed);
  return Eigen::Map<const attn::Matrix<float>>(values.data(), rows, columns);
}

class SdpaOfStrides : public testing::Test {
 protected:
  attn::Matrix<float> q = random_matrix(37, 20, 1), k = random_matrix(140, 20, 2),
                      v = random_matrix(140, 12, 3), bias = random_matrix(37, 140, 4);
  attn::Matrix<float> contiguous = attn::sdpa(q, k, v, attn::AdditiveBias(bias));
};

TEST_F(SdpaOfStrides, InnerStrideTwoGivesTheSameBits) {
  Spread query(q), key(k), value(v), biases(bias), out(attn::Matrix<float>::Zero(37, 12));
  EXPECT_TRUE(same_bits(attn::sdpa(query.map, k, v, attn::AdditiveBias(bias)), contiguous));
  EXPECT_TRUE(same_bits(attn::sdpa(q, key.map, v, attn::AdditiveBias(bias)), contiguous));
  EXPECT_TRUE(same_bits(attn::sdpa(q, k, value.map, attn::AdditiveBias(bias)), contiguous));
  EXPECT_TRUE(same_bits(attn::sdpa(q, k, v, attn::AdditiveBias(biases.map)), contiguous));
  attn::sdpa_into(query.map, key.map, value.map, out.map, attn::AdditiveBias(biases.map));
  EXPECT_TRUE(same_bits(out.map, contiguous));
  EXPECT_TRUE(std::isnan(out.storage[1]));  // what lies between the elements is left alone
}

TEST_F(SdpaOfStrides, OneMatrixMayHoldTheInputsAndTheOutputSideBySide) {
  const Index tokens = 37, heads = 2, dim = 20, width = heads * dim;
  attn::Matrix<float> all = random_matrix(tokens, 4 * width, 5);
  const auto part = [&](Index which) {
    return attn::split_heads(all.middleCols(which * width, width), heads);
  };
  const auto expected = attn::sdpa(part(0), part(1), part(2), attn::Causal{});
  const attn::Matrix<float> inputs = all.leftCols(3 * width);
  attn::ThreadPool pool(3);
  attn::sdpa_into(part(0), part(1), part(2), part(3), attn::Causal{}, {.executor = pool});
  EXPECT_TRUE(same_bits(part(3), expected));
  EXPECT_EQ(all.leftCols(3 * width), inputs);
}

TEST_F(SdpaOfStrides, ColumnMajorAndTransposedMapsGiveTheSameBits) {
  const Eigen::MatrixXf query = q, key = k, value = v, biases = bias;
  EXPECT_TRUE(same_bits(attn::sdpa(query, key, value, attn::AdditiveBias(biases)), contiguous));
  const attn::Matrix<float> transposed = k.transpose();
  const Eigen::Map<const Eigen::MatrixXf> back(transposed.data(), 140, 20);
  EXPECT_TRUE(same_bits(attn::sdpa(q, back, v, attn::AdditiveBias(bias)), contiguous));
  Eigen::MatrixXf out(37, 12);
  attn::sdpa_into(q, k, v, out, attn::AdditiveBias(bias));
  EXPECT_TRUE(same_bits(out, contiguous));
}

TEST_F(SdpaOfStrides, BlocksOfLargerMatricesGiveTheSameBits) {
  attn::Matrix<float> all = attn::Matrix<float>::Constant(200, 60, std::nanf(""));
  all.block(3, 5, 140, 20) = k;
  all.block(3, 30, 140, 12) = v;
  EXPECT_TRUE(
      same_bits(attn::sdpa(q, all.block(3, 5, 140, 20), all.block(3, 30, 140, 12), attn::AdditiveBias(bias)),
                contiguous));
}

TEST_F(SdpaOfStrides, NegativeStridesGiveTheSameBits) {
  const attn::Matrix<float> reversed = k.reverse();
  const attn::TensorView<const float, 2> back(reversed.data() + reversed.size() - 1, {140, 20}, {-20, -1});
  EXPECT_TRUE(same_bits(attn::sdpa(q, back, v, attn::AdditiveBias(bias)), contiguous));
  attn::Matrix<float> out(37, 12);
  attn::sdpa_into(q, k, v, attn::TensorView<float, 2>(out.data() + out.size() - 1, {37, 12}, {-12, -1}),
                  attn::AdditiveBias(bias));
  EXPECT_TRUE(same_bits(attn::Matrix<float>(out.reverse()), contiguous));
}

TEST_F(SdpaOfStrides, AMaskOfStrideZeroIsARepeatedMask) {
  const attn::TensorView<const float, 2> per_key(bias.data(), {37, 140}, {0, 1}),
      per_query(bias.data(), {37, 140}, {140, 0});
  const attn::Matrix<float> rows = bias.row(0).replicate(37, 1), columns = bias.col(0).replicate(1, 140);
  EXPECT_TRUE(same_bits(attn::sdpa(q, k, v, attn::AdditiveBias(per_key)),
                        attn::sdpa(q, k, v, attn::AdditiveBias(rows))));
  EXPECT_TRUE(same_bits(attn::sdpa(q, k, v, attn::AdditiveBias(per_query)),
                        attn::sdpa(q, k, v, attn::AdditiveBias(columns))));
  const attn::Matrix<float> first_row = bias.row(0);
  EXPECT_TRUE(same_bits(attn::sdpa(q, k, v, attn::AdditiveBias(first_row)),
                        attn::sdpa(q, k, v, attn::AdditiveBias(rows))));
}

TEST_F(SdpaOfStrides, KeysRepeatedByStrideZeroAreRepeatedKeys) {
  const attn::TensorView<const float, 2> same_key(k.data(), {140, 20}, {0, 1});
  const attn::Matrix<float> repeated = k.row(0).replicate(140, 1);
  EXPECT_TRUE(same_bits(attn::sdpa(q, same_key, v), attn::sdpa(q, repeated, v)));
}

TEST(SdpaOfFusedProjections, EqualsThatOfSeparateTensorsBitForBit) {
  constexpr Index batch = 2, len = 40, heads = 3, dim = 8, width = heads * dim;
  const auto fused = random_tensor<float, 3>({batch, len, 3 * width}, 5);  // [q | k | v] of each token
  const auto part = [&](Index index) {
    return attn::split_heads(fused.view().slice(2, {index * width, (index + 1) * width}), heads);
  };
  const auto packed = [&](Index index) { return attn::Tensor<float, 4>(part(index)); };
  attn::Tensor<float, 3> out({batch, len, width});
  attn::sdpa_into(part(0), part(1), part(2), attn::split_heads(out, heads), attn::Causal{});
  EXPECT_TRUE(same_bits(attn::split_heads(std::as_const(out), heads),
                        attn::sdpa(packed(0), packed(1), packed(2), attn::Causal{})));
}

template <class T>
class SdpaBits : public testing::Test {
 protected:
  attn::Tensor<T, 4> q = random_tensor<T, 4>({2, 6, 130, 20}, 1), k = random_tensor<T, 4>({2, 2, 150, 20}, 2),
                     v = random_tensor<T, 4>({2, 2, 150, 9}, 3);
  std::array<Index, 2> lengths{150, 33};
  attn::AllOf<attn::Causal, attn::KeyPadding> mask = attn::Causal{} & attn::KeyPadding{lengths};

  auto attend(attn::ExecutorRef executor, attn::Workspace* workspace = nullptr) const {
    return attn::sdpa_with_weights(q, k, v, mask,
                                   {.query_offset = 20, .executor = executor, .workspace = workspace});
  }
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(SdpaBits, Scalars);

TYPED_TEST(SdpaBits, DoNotDependOnTheExecutor) {
  const auto expected = this->attend({});
  for (const Index threads : {1, 2, 7}) {
    attn::ThreadPool pool(threads);
    const auto result = this->attend(pool);
    EXPECT_TRUE(same_bits(result.out, expected.out)) << threads << " threads";
    EXPECT_TRUE(same_bits(result.weights, expected.weights)) << threads << " threads";
  }
}

TYPED_TEST(SdpaBits, DoNotDependOnNesting) {
  const auto expected = this->attend({});
  attn::ThreadPool pool(3);
  std::array<bool, 6> same{};
  pool.parallel_for(6, [&](Index task, Index) {
    same[static_cast<std::size_t>(task)] = same_bits(this->attend(pool).out, expected.out);
  });
  EXPECT_EQ(same, (std::array<bool, 6>{true, true, true, true, true, true}));
}

// How many rows share a task follows from all sizes of a call; what a row sees does not.
TEST(SdpaOfABatch, GivesAnEntryTheBitsThatItHasAlone) {
  const Index q_len = 300, kv_len = 400;
  const auto q = attn_test::random_tensor<float, 4>({64, 2, q_len, 16}, 1),
             k = attn_test::random_tensor<float, 4>({64, 1, kv_len, 16}, 2),
             v = attn_test::random_tensor<float, 4>({64, 1, kv_len, 9}, 3);
  std::vector<Index> query_ids, key_ids;
  for (Index i = 0; i < q_len; ++i) query_ids.push_back(i / 31);
  for (Index j = 0; j < kv_len; ++j) key_ids.push_back(j / 37);
  const auto expect_same = [&](const auto& mask) {
    const attn::SdpaOptions options{.query_offset = 50};
    const auto all = attn::sdpa(q, k, v, mask, options);
    const auto first = [](const auto& x) { return x.view().slice(0, {0, 1}); };
    EXPECT_TRUE(same_bits(attn::sdpa(first(q), first(k), first(v), mask, options).view(), first(all)));
  };
  expect_same(attn::NoMask{});
  expect_same(attn::Causal{});
  expect_same(attn::SlidingWindow{40, 0});
  expect_same(attn::SlidingWindow{7, 90});
  expect_same(attn::Documents(query_ids, key_ids));
}

TYPED_TEST(SdpaBits, DoNotDependOnTheWorkspaceOrWhatItHeld) {
  const auto expected = this->attend({});
  attn::Workspace workspace;
  {
    attn::Workspace::Frame frame(workspace);
    const auto memory = frame.take<TypeParam>(1 << 18);
    std::fill(memory.begin(), memory.end(), std::numeric_limits<TypeParam>::quiet_NaN());
  }
  const auto first = this->attend({}, &workspace), second = this->attend({}, &workspace);
  EXPECT_TRUE(same_bits(first.out, expected.out));
  EXPECT_TRUE(same_bits(first.weights, expected.weights));
  EXPECT_TRUE(same_bits(second.weights, expected.weights));
}

TYPED_TEST(SdpaBits, AreReachedWithoutAllocationOnceWarm) {
  attn::ThreadPool pool(2);
  attn::Workspace workspace;
  const attn::SdpaOptions options{.query_offset = 20, .executor = pool, .workspace = &workspace};
  attn::Tensor<TypeParam, 4> out({2, 6, 130, 9}), weights({2, 6, 130, 150});
  attn::Tensor<TypeParam, 3> logsumexp({2, 6, 130});
  const auto call = [&] {
    attn::sdpa_into(this->q, this->k, this->v, out, this->mask, options);
    attn::sdpa_with_logsumexp_into(this->q, this->k, this->v, out, logsumexp, this->mask, options);
    attn::sdpa_with_weights_into(this->q, this->k, this->v, out, weights, this->mask, options);
  };
  EXPECT_GT(attn_test::allocations_in(call), 0u);
  call();
  EXPECT_EQ(attn_test::allocations_in(call), 0u);
}

}  // namespace
