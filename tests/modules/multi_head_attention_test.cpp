// tests/modules/multi_head_attention_test.cpp - laws of multi-head attention, and its formula written out.
#include "attn/modules/multi_head_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "attn/core/thread_pool.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::error_text;
using attn_test::random_tensor;

template <class T>
attn::MultiHeadAttention<T> random_module(const attn::MultiHeadAttentionConfig& config) {
  attn::MultiHeadAttention<T> module(config);
  attn_test::randomize(module, 5);
  return module;
}

template <class T>
attn::Matrix<T> project(const attn::Linear<T>& linear, const attn::Matrix<T>& x) {
  const auto w = linear.weight().view();
  attn::Matrix<T> y = x * Eigen::Map<const attn::Matrix<T>>(w.data(), w.extent(0), w.extent(1)).transpose();
  if (linear.bias())
    y.rowwise() += Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(linear.bias().data(), y.cols());
  return y;
}

/// The formula, head by head, with Eigen; `visible` keys of the first q_len + visible - 1 are seen by row 0
/// ...
attn::Matrix<double> by_formula(const attn::MultiHeadAttention<double>& module,
                                const attn::Matrix<double>& query, const attn::Matrix<double>& key,
                                const attn::Matrix<double>& value) {
  const auto& c = module.config();
  const attn::Matrix<double> q = project(module.q_proj(), query), k = project(module.k_proj(), key),
                             v = project(module.v_proj(), value);
  attn::Matrix<double> context(query.rows(), c.num_heads * c.value_dim);
  for (Index h = 0; h < c.num_heads; ++h) {
    const Index g = h / (c.num_heads / c.num_kv_heads);
    attn::Matrix<double> weights = q.middleCols(h * c.head_dim, c.head_dim) *
                                   k.middleCols(g * c.head_dim, c.head_dim).transpose() /
                                   std::sqrt(static_cast<double>(c.head_dim));
    weights = weights.array().exp().matrix();
    for (Index i = 0; i < weights.rows(); ++i) weights.row(i) /= weights.row(i).sum();
    context.middleCols(h * c.value_dim, c.value_dim) = weights * v.middleCols(g * c.value_dim, c.value_dim);
  }
  return project(module.out_proj(), context);
}

attn::Matrix<double> matrix(const attn::Tensor<double, 3>& x, Index batch) {
  return Eigen::Map<const attn::Matrix<double>>(&x(batch, 0, 0), x.extent(1), x.extent(2));
}

TEST(MultiHeadAttention, FollowsTheFormulaForEveryHeadLayout) {
  const attn::MultiHeadAttentionConfig configs[] = {
      {.embed_dim = 12, .num_heads = 3},
      {.embed_dim = 12, .num_heads = 4, .num_kv_heads = 2, .head_dim = 5, .value_dim = 7},
      {.embed_dim = 8, .num_heads = 4, .num_kv_heads = 1, .head_dim = 16, .bias = false},
      {.embed_dim = 6, .num_heads = 2, .kdim = 5, .vdim = 9, .k_bias = false, .out_bias = false},
      {.embed_dim = 16, .num_heads = 16}};
  for (const auto& config : configs) {
    const auto module = random_module<double>(config);
    const auto query = random_tensor<double, 3>({2, 6, module.config().embed_dim}, 1);
    const auto key = random_tensor<double, 3>({2, 9, module.config().kdim}, 2);
    const auto value = random_tensor<double, 3>({2, 9, module.config().vdim}, 3);
    const auto out = module.forward(query, key, value);
    for (Index b = 0; b < 2; ++b) {
      const auto want = by_formula(module, matrix(query, b), matrix(key, b), matrix(value, b));
      EXPECT_LT((matrix(out, b) - want).cwiseAbs().maxCoeff(), 1e-12);
      const attn::Matrix<double> alone = module.forward(matrix(query, b), matrix(key, b), matrix(value, b));
      EXPECT_LT((alone - want).cwiseAbs().maxCoeff(), 1e-12);
    }
  }
}

TEST(MultiHeadAttention, ConfiguresHeadDimApartFromEmbedDim) {
  const attn::MultiHeadAttention<float> module({.embed_dim = 32, .num_heads = 4, .head_dim = 16});
  EXPECT_EQ(module.q_proj().weight().extents(), (attn::Dims<2>{64, 32}));
  EXPECT_EQ(module.out_proj().weight().extents(), (attn::Dims<2>{32, 64}));
}

TEST(MultiHeadAttention, HasFourTimesDTimesDPlusOneParameters) {
  const attn::MultiHeadAttention<float> module({.embed_dim = 24, .num_heads = 4});
  EXPECT_EQ(parameter_count(module), 4 * 24 * 25);
  std::vector<std::string> names;
  for_each_parameter(module, [&](const std::string& path, const auto&) { names.push_back(path); });
  EXPECT_EQ(names,
            (std::vector<std::string>{"q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias",
                                      "v_proj.weight", "v_proj.bias", "out_proj.weight", "out_proj.bias"}));
}

TEST(MultiHeadAttention, OneKeyValueHeadEqualsManyWithRepeatedWeights) {
  const auto mqa = random_module<float>({.embed_dim = 16, .num_heads = 4, .num_kv_heads = 1});
  auto mha = random_module<float>({.embed_dim = 16, .num_heads = 4});
  const auto repeat = [](const attn::Linear<float>& one, attn::Linear<float>& many) {
    many.weight().edit([&](const attn::TensorView<float, 2>& w) {
      for (Index h = 0; h < 4; ++h) copy(one.weight().view(), w.slice(0, {4 * h, 4 * h + 4}));
    });
    many.bias().edit([&](const attn::TensorView<float, 1>& b) {
      for (Index h = 0; h < 4; ++h) copy(one.bias().view(), b.slice(0, {4 * h, 4 * h + 4}));
    });
  };
  repeat(mqa.k_proj(), mha.k_proj());
  repeat(mqa.v_proj(), mha.v_proj());
  const auto x = random_tensor<float, 3>({2, 11, 16}, 4);
  const auto a = mqa.forward(x, attn::Causal{}), b = mha.forward(x, attn::Causal{});
  for (Index i = 0; i < a.size(); ++i) EXPECT_NEAR(a.data()[i], b.data()[i], 1e-5);
}

TEST(MultiHeadAttention, SeesNoFutureUnderCausalAndNothingBehindTheLengths) {
  const auto module = random_module<float>({.embed_dim = 12, .num_heads = 3});
  auto x = random_tensor<float, 3>({2, 7, 12}, 6);
  const Index lengths[] = {7, 4};
  const auto mask = attn::Causal{} & attn::KeyPadding{lengths};
  const auto before = module.forward(x, mask);
  for (Index c = 0; c < 12; ++c) x(0, 5, c) = x(1, 5, c) = 1e6F;
  const auto after = module.forward(x, mask);
  for (Index c = 0; c < 12; ++c) {
    for (Index i = 0; i < 5; ++i) EXPECT_EQ(after(0, i, c), before(0, i, c));
    for (Index i = 0; i < 7; ++i) {
      EXPECT_TRUE(i == 5 || after(1, i, c) == before(1, i, c));
    }
  }
}

TEST(MultiHeadAttention, ReturnsWeightsWithoutChangingTheOutput) {
  const auto module = random_module<float>({.embed_dim = 12, .num_heads = 3});
  const auto x = random_tensor<float, 3>({2, 9, 12}, 7);
  const auto [out, weights] = module.forward_with_weights(x, attn::Causal{});
  EXPECT_EQ(out, module.forward(x, attn::Causal{}));
  EXPECT_EQ(weights.extents(), (attn::Dims<4>{2, 3, 9, 9}));
  const auto mean = attn::average_heads(weights);
  for (Index b = 0; b < 2; ++b)
    for (Index i = 0; i < 9; ++i) {
      float sum = 0;
      for (Index j = 0; j < 9; ++j) {
        sum += mean(b, i, j);
        EXPECT_NEAR(mean(b, i, j), (weights(b, 0, i, j) + weights(b, 1, i, j) + weights(b, 2, i, j)) / 3,
                    1e-6);
        EXPECT_TRUE(j <= i || weights(b, 1, i, j) == 0);
      }
      EXPECT_NEAR(sum, 1, 1e-6);
    }
  const attn::Matrix<float> one = Eigen::Map<const attn::Matrix<float>>(x.data(), 9, 12);
  const auto alone = module.forward_with_weights(one);
  EXPECT_EQ(alone.weights.extents(), (attn::Dims<3>{3, 9, 9}));
  EXPECT_EQ(attn::average_heads(alone.weights).rows(), 9);
}

TEST(MultiHeadAttention, HasTheSameBitsOnEveryExecutorAndAllocatesNothingWhenWarm) {
  const auto module = random_module<float>({.embed_dim = 32, .num_heads = 4, .num_kv_heads = 2});
  const auto x = random_tensor<float, 3>({3, 40, 32}, 8);
  attn::Tensor<float, 3> out(x.extents()), pooled(x.extents());
  attn::Workspace workspace;
  const auto run = [&] { module.forward_into(x, out, attn::Causal{}, {.workspace = &workspace}); };
  run();
  EXPECT_EQ(attn_test::allocations_in(run), 0u);
  attn::ThreadPool pool(3);
  module.forward_into(x, pooled, attn::Causal{}, {.executor = pool});
  EXPECT_EQ(out, pooled);
}

TEST(MultiHeadAttention, ServesManyThreadsAtOnceFromTheFirstCallOn) {
  const auto module = random_module<float>({.embed_dim = 16, .num_heads = 2});
  const auto x = random_tensor<float, 3>({2, 8, 16}, 9);
  std::vector<attn::Tensor<float, 3>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = module.forward(x); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(MultiHeadAttention, NeverUsesAStalePackedCopy) {
  auto module = random_module<float>({.embed_dim = 8, .num_heads = 2});
  const auto x = random_tensor<float, 3>({1, 4, 8}, 10);
  const auto first = module.forward(x);
  const attn::MultiHeadAttention<float> copied = module;
  module.out_proj().weight().edit([](const attn::TensorView<float, 2>& w) {
    for (Index i = 0; i < w.size(); ++i) w.data()[i] *= 2;
  });
  module.out_proj().bias().assign(Eigen::VectorXf::Zero(8).eval());
  EXPECT_NE(module.forward(x), first);
  EXPECT_EQ(copied.forward(x), first);
  module = copied;
  EXPECT_EQ(module.forward(x), first);
  const attn::MultiHeadAttention<float> moved = std::move(module);
  EXPECT_EQ(moved.forward(x), first);
}

TEST(MultiHeadAttention, GivesOnlyTheBiasWhereAQuerySeesNoKey) {
  const auto module = random_module<float>({.embed_dim = 8, .num_heads = 2});
  const auto x = random_tensor<float, 3>({2, 3, 8}, 11);
  const Index lengths[] = {3, 0};
  const auto out = module.forward(x, attn::KeyPadding{lengths});
  for (Index c = 0; c < 8; ++c) EXPECT_EQ(out(1, 2, c), module.out_proj().bias().view()(c));
  EXPECT_EQ(module.forward(attn::Tensor<float, 3>({0, 3, 8})).extents(), (attn::Dims<3>{0, 3, 8}));
  EXPECT_EQ(module.forward(attn::Tensor<float, 3>({2, 0, 8})).extents(), (attn::Dims<3>{2, 0, 8}));
}

TEST(MultiHeadAttention, ExtraKeysEqualProjectedRowsAppendedByHand) {
  // Keys that project to the learnt key, and to zeros, behind the others: what the options promise.
  auto extended =
      random_module<double>({.embed_dim = 8, .num_heads = 2, .add_bias_kv = true, .add_zero_attn = true});
  attn::MultiHeadAttention<double> plain({.embed_dim = 8, .num_heads = 2});
  const auto x = random_tensor<double, 3>({2, 5, 8}, 12), y = random_tensor<double, 3>({2, 7, 8}, 13);
  for (auto* linear : {&plain.k_proj(), &plain.v_proj()})  // identity: keys and values are the inputs
    linear->weight().edit([](const attn::TensorView<double, 2>& w) {
      for (Index i = 0; i < 8; ++i) w(i, i) = 1;
    });
  plain.q_proj() = extended.q_proj();
  plain.out_proj() = extended.out_proj();
  attn::Tensor<double, 3> keys({2, 9, 8}), values({2, 9, 8});
  for (Index b = 0; b < 2; ++b) {
    copy(extended.k_proj().forward(y).view()[b], keys.view()[b].slice(0, {0, 7}));
    copy(extended.v_proj().forward(y).view()[b], values.view()[b].slice(0, {0, 7}));
    copy(extended.bias_k().view(), keys.view()[b][7]);
    copy(extended.bias_v().view(), values.view()[b][7]);
  }
  const auto out = extended.forward_with_weights(x, y, y);
  EXPECT_EQ(out.weights.extents(), (attn::Dims<4>{2, 2, 5, 9}));
  EXPECT_LT(attn_test::largest_difference(out.out, plain.forward(x, keys, values)), 1e-13);

  const Index lengths[] = {3, 0};
  const auto masked = extended.forward_with_weights(x, y, y, attn::KeyPadding{lengths});
  for (Index i = 0; i < 5; ++i) {
    EXPECT_EQ(masked.weights(0, 1, i, 3), 0);
    EXPECT_NEAR(masked.weights(1, 1, i, 7) + masked.weights(1, 1, i, 8), 1, 1e-14);
  }
}

TEST(MultiHeadAttention, ExtraKeysStayVisibleUnderCausal) {
  const auto module = random_module<float>({.embed_dim = 8, .num_heads = 2, .add_zero_attn = true});
  const auto x = random_tensor<float, 3>({1, 6, 8}, 14);
  const auto [out, weights] = module.forward_with_weights(x, attn::Causal{});
  for (Index i = 0; i < 6; ++i)
    for (Index j = 0; j < 7; ++j) EXPECT_EQ(weights(0, 0, i, j) > 0, j <= i || j == 6);
  EXPECT_EQ(module.forward(x, attn::Causal{}), out);
}

TEST(MultiHeadAttention, HeadGatesScaleHeadsAndStartAtOne) {
  auto gated = random_module<float>({.embed_dim = 12, .num_heads = 3, .head_gates = true});
  auto plain = random_module<float>({.embed_dim = 12, .num_heads = 3});
  const auto x = random_tensor<float, 3>({2, 5, 12}, 15);
  gated.head_gates().assign(Eigen::Vector3f::Ones().eval());
  EXPECT_EQ(gated.forward(x), plain.forward(x));
  gated.head_gates().assign(Eigen::Vector3f(1, 0, 2));
  plain.out_proj().weight().edit([](const attn::TensorView<float, 2>& w) {
    for (Index row = 0; row < 12; ++row)
      for (Index c = 4; c < 12; ++c) w(row, c) *= c < 8 ? 0 : 2;
  });
  EXPECT_LT(attn_test::largest_difference(gated.forward(x), plain.forward(x)), 1e-6);
  const attn::MultiHeadAttention<float> fresh({.embed_dim = 12, .num_heads = 3, .head_gates = true});
  EXPECT_EQ(fresh.head_gates().view()(2), 1);
}

TEST(MultiHeadAttention, OutputGateMultipliesByTheSigmoidOfAProjectionOfTheQuery) {
  auto gated = random_module<double>({.embed_dim = 6, .num_heads = 2, .output_gate = true});
  auto plain = random_module<double>({.embed_dim = 6, .num_heads = 2});
  const auto x = random_tensor<double, 3>({1, 4, 6}, 16);
  // Without the last projection: identity and no bias.
  for (auto* linear : {&gated.out_proj(), &plain.out_proj()}) {
    linear->weight().assign(Eigen::MatrixXd::Identity(6, 6).eval());
    linear->bias().assign(Eigen::VectorXd::Zero(6).eval());
  }
  auto want = plain.forward(x);
  const auto gates = attn::sigmoid(gated.gate_proj().forward(x));
  for (Index i = 0; i < want.size(); ++i) want.data()[i] *= gates.data()[i];
  EXPECT_LT(attn_test::largest_difference(gated.forward(x), want), 1e-14);
}

TEST(MultiHeadAttention, QkNormTakesTheScaleOutOfQueriesAndKeys) {
  auto module = random_module<double>(
      {.embed_dim = 8, .num_heads = 4, .num_kv_heads = 2, .qk_norm = attn::NormKind::rms, .norm_eps = 1e-12});
  const auto x = random_tensor<double, 3>({1, 5, 8}, 17);
  const auto before = module.forward(x);
  for (auto* linear : {&module.q_proj(), &module.k_proj()}) {
    linear->weight().edit([](const attn::TensorView<double, 2>& w) {
      for (Index i = 0; i < w.size(); ++i) w.data()[i] *= 3;
    });
    linear->bias().edit([](const attn::TensorView<double, 1>& b) {
      for (Index i = 0; i < b.size(); ++i) b(i) *= 3;
    });
  }
  EXPECT_LT(attn_test::largest_difference(module.forward(x), before), 1e-10);
  module.q_norm().weight().edit([](const attn::TensorView<double, 1>& w) { w(0) = 5; });
  EXPECT_GT(attn_test::largest_difference(module.forward(x), before), 1e-4);
}

TEST(MultiHeadAttention, RopeRotatesHeadsAfterTheirNorm) {
  for (const attn::RopePairing pairing : {attn::RopePairing::half, attn::RopePairing::interleaved}) {
    const auto module =
        random_module<double>({.embed_dim = 12,
                               .num_heads = 4,
                               .num_kv_heads = 2,
                               .head_dim = 6,
                               .qk_norm = attn::NormKind::rms,
                               .rope = attn::RopeConfig{.pairing = pairing, .rotary_dim = 4}});
    const auto x = random_tensor<double, 3>({2, 5, 12}, 18);
    auto q = module.q_proj().forward(x), k = module.k_proj().forward(x);
    const auto v = module.v_proj().forward(x);
    const auto queries = attn::split_heads(q, 4), keys = attn::split_heads(k, 2);
    const attn::RotaryEmbedding rope({.pairing = pairing, .head_dim = 6, .rotary_dim = 4});
    module.q_norm().forward_into(queries, queries);
    module.k_norm().forward_into(keys, keys);
    rope.apply(queries, 0);
    rope.apply(keys, 0);
    attn::Tensor<double, 3> context({2, 5, 24});
    attn::sdpa_into(queries, keys, attn::split_heads(v, 2), attn::split_heads(context, 4), attn::Causal{});
    const auto want = module.out_proj().forward(context);
    EXPECT_LT(attn_test::largest_difference(module.forward(x, attn::Causal{}), want), 1e-14);
  }
}

TEST(MultiHeadAttention, RopeOfTheLastQueriesStandsWhereTheOffsetSays) {
  const auto module = random_module<double>(
      {.embed_dim = 8, .num_heads = 2, .rope = attn::RopeConfig{.pairing = attn::RopePairing::half}});
  const auto x = random_tensor<double, 3>({2, 7, 8}, 19);
  const auto last = x.view().slice(1, {5, 7});
  const auto whole = module.forward(x, attn::Causal{});
  const auto part = module.forward(last, x, x, attn::Causal{}, {.query_offset = 5});
  const Index offsets[] = {5, 5};
  EXPECT_EQ(module.forward(last, x, x, attn::Causal{}, {.query_offset = attn::QueryOffset(offsets)}), part);
  for (Index b = 0; b < 2; ++b)
    for (Index i = 0; i < 2; ++i)
      for (Index c = 0; c < 8; ++c) EXPECT_NEAR(part(b, i, c), whole(b, 5 + i, c), 1e-14);
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)module.forward(last, x, x); }),
            "attn: MultiHeadAttention: 2 queries and 7 keys differ in number and the layer has a rope: set "
            "options.query_offset, the key position of query 0");
}

TEST(MultiHeadAttention, RopeOfPackedSequencesIsThatOfEachAlone) {
  const auto module = random_module<double>(
      {.embed_dim = 8, .num_heads = 2, .rope = attn::RopeConfig{.pairing = attn::RopePairing::half}});
  const auto x = random_tensor<double, 3>({1, 7, 8}, 21);
  attn::Tensor<double, 3> out(x.extents());
  const Index offsets[] = {0, 3, 7};
  const attn::PackedSequences sequences{offsets};
  const attn::Causal mask;
  module.apply(x.view(), x.view(), x.view(), {}, out.view(),
               attn::AttendPacked<attn::Causal>{sequences, mask}, {});
  for (Index s = 0; s < 2; ++s) {
    const attn::Range rows = sequences.rows(s);
    const auto alone = module.forward(x.view().slice(1, rows), mask);
    for (Index i = 0; i < rows.size(); ++i)
      for (Index c = 0; c < 8; ++c) EXPECT_NEAR(out(0, rows.begin + i, c), alone(0, i, c), 1e-14);
  }
}

TEST(MultiHeadAttention, RopeLeavesExtraKeysWhereTheyAreAndAllocatesNothingWhenWarm) {
  const auto module = random_module<float>({.embed_dim = 8,
                                            .num_heads = 2,
                                            .rope = attn::RopeConfig{.pairing = attn::RopePairing::half},
                                            .add_bias_kv = true});
  // One head of a key of all its own: weights of the learnt key are those of its unrotated product.
  const auto x = random_tensor<float, 3>({1, 4, 8}, 20);
  const auto [out, weights] = module.forward_with_weights(x);
  attn::Tensor<float, 3> q = module.q_proj().forward(x);
  const auto queries = attn::split_heads(q, 2);
  module.rope()->apply(queries, 0);
  attn::Tensor<float, 3> k = module.k_proj().forward(x);
  const auto keys = attn::split_heads(k, 2);
  module.rope()->apply(keys, 0);
  const auto score = [&](Index i, const auto& key) {
    float sum = 0;
    for (Index c = 0; c < 4; ++c) sum += queries(0, 0, i, c) * key(c);
    return sum / 2;
  };
  for (Index i = 0; i < 4; ++i) {
    const float odds = score(i, module.bias_k().view()) - score(i, keys[0][0][2]);
    EXPECT_NEAR(std::log(weights(0, 0, i, 4) / weights(0, 0, i, 2)), odds, 1e-5);
  }
  attn::Tensor<float, 3> again(x.extents());
  attn::Workspace workspace;
  const auto run = [&] { module.forward_into(x, again, attn::NoMask{}, {.workspace = &workspace}); };
  run();
  EXPECT_EQ(attn_test::allocations_in(run), 0u);
  EXPECT_EQ(again, out);
}

TEST(MultiHeadAttention, NamesWhatDoesNotFit) {
  using Module = attn::MultiHeadAttention<float>;
  EXPECT_EQ(error_text<attn::ShapeError>([] { Module({.embed_dim = 10, .num_heads = 4}); }),
            "attn: MultiHeadAttention: num_heads 4 does not divide embed_dim 10 and no head_dim is given");
  EXPECT_EQ(
      error_text<attn::ShapeError>([] { Module({.embed_dim = 12, .num_heads = 4, .num_kv_heads = 3}); }),
      "attn: MultiHeadAttention: num_kv_heads 3 does not divide num_heads 4");
  EXPECT_EQ(error_text<attn::ShapeError>([] { Module({.num_heads = 4}); }),
            "attn: MultiHeadAttention: embed_dim 0 and num_heads 4 must be positive");
  EXPECT_EQ(error_text<attn::ShapeError>([] {
              Module({.embed_dim = 12,
                      .num_heads = 2,
                      .rope = attn::RopeConfig{.pairing = attn::RopePairing::half, .head_dim = 4}});
            }),
            "attn: MultiHeadAttention: rope is for head_dim 4 and the layer has 6");
  const Module module({.embed_dim = 8, .num_heads = 2, .kdim = 6});
  const attn::Tensor<float, 3> x({2, 3, 8}), narrow({2, 5, 6}), longer({2, 5, 8}), other({3, 5, 8});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)module.forward(narrow, narrow, longer); }),
            "attn: MultiHeadAttention: query [2, 5, 6] does not have embed_dim 8");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)module.forward(x, x, longer); }),
            "attn: MultiHeadAttention: key [2, 3, 8] does not have kdim 6");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)module.forward(x, narrow, narrow); }),
            "attn: MultiHeadAttention: value [2, 5, 6] does not have vdim 8");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)module.forward(x, narrow, other); }),
            "attn: MultiHeadAttention: query [2, 3, 8], key [2, 5, 6] and value [3, 5, 8] differ in batch");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)module.forward(x, narrow, x); }),
            "attn: MultiHeadAttention: key [2, 5, 6] and value [2, 3, 8] differ in length");
  attn::Tensor<float, 3> out({2, 3, 8});
  EXPECT_EQ(error_text<std::invalid_argument>([&] { module.forward_into(out, narrow, longer, out); }),
            "attn: MultiHeadAttention: out [2, 3, 8] overlaps query [2, 3, 8]");
  attn::Tensor<float, 3> small({2, 3, 7});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { module.forward_into(x, narrow, longer, small); }),
            "attn: MultiHeadAttention: out [2, 3, 7] should be as query, [2, 3, 8]");
}

TEST(MultiHeadAttention, HasNoPlaceForExtraKeysBetweenPackedSequences) {
  const Index offsets[] = {0, 2, 5};
  const attn::PackedSequences sequences{offsets};
  attn::Tensor<float, 3> rows({1, 5, 8}), out({1, 5, 8});
  const auto x = attn::TensorView<const float, 3>(rows.view());
  for (const bool zero : {false, true}) {
    const attn::MultiHeadAttention<float> module(
        {.embed_dim = 8, .num_heads = 2, .add_bias_kv = !zero, .add_zero_attn = zero});
    EXPECT_EQ(error_text<attn::ShapeError>([&] {
                module.apply(x, x, x, {}, out.view(),
                             attn::AttendPacked<attn::NoMask>{sequences, attn::NoMask{}}, {});
              }),
              "attn: PackedSequences: a layer with add_bias_kv or add_zero_attn needs a padded batch");
  }
}

}  // namespace
