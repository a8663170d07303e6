// tests/modules/threads_test.cpp - one module used by many threads at once, each call with its own workspace
// and with packed copies not yet made; modules copied and moved. Meant for the thread sanitizer too.
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "attn/masks/alibi.hpp"
#include "attn/masks/causal.hpp"
#include "attn/modules/transformer_decoder.hpp"
#include "support/random_values.hpp"

namespace {

using attn_test::random_tensor;
using Values = attn::Tensor<float, 3>;

attn::TransformerConfig config() {
  return {.layer = {.embed_dim = 24,
                    .num_heads = 4,
                    .feed_forward_dim = 40,
                    .activation = attn::Activation::silu,
                    .gating = attn::Gating::gated,
                    .norm = attn::NormPlacement::pre},
          .num_layers = 2,
          .final_norm = attn::FinalNorm::present};
}
attn::Transformer<float> random_transformer(std::uint64_t seed) {
  attn::Transformer<float> transformer(config(), config());
  attn_test::randomize(transformer, seed);
  return transformer;
}
attn::MultiHeadAttention<float> random_attention() {
  attn::MultiHeadAttention<float> attention({.embed_dim = 24, .num_heads = 6, .num_kv_heads = 2});
  attn_test::randomize(attention, 3);
  return attention;
}

/// One call of a module with its own workspace, whose result every thread must get.
template <class Call>
void expect_one_result_in_many_threads(Call call, const Values& want) {
  std::vector<Values> results(6);
  std::vector<std::thread> threads;
  for (Values& result : results)
    threads.emplace_back([&] {
      attn::Workspace workspace;
      for (int repeat = 0; repeat < 3; ++repeat)
        result = call(attn::MultiHeadAttentionOptions{.workspace = &workspace});
    });
  for (std::thread& thread : threads) thread.join();
  for (const Values& result : results) EXPECT_EQ(result, want);
}

TEST(ModulesInThreads, ShareOneMultiHeadAttention) {
  const auto attention = random_attention(), same = attention;  // a copy starts without packed weights
  const auto x = random_tensor<float, 3>({2, 33, 24}, 1);
  const attn::Alibi alibi(6);  // a mask too may be shared
  expect_one_result_in_many_threads(
      [&](const auto& options) { return attention.forward(x, attn::Causal{} & alibi, options); },
      same.forward(x, attn::Causal{} & alibi));
}

TEST(ModulesInThreads, ShareOneEncoder) {
  const auto transformer = random_transformer(1), same = transformer;
  const auto x = random_tensor<float, 3>({2, 33, 24}, 2);
  expect_one_result_in_many_threads(
      [&](const auto& options) { return transformer.encoder().forward(x, attn::NoMask{}, options); },
      same.encoder().forward(x));
}

TEST(ModulesInThreads, ShareOneTransformer) {
  const auto transformer = random_transformer(2), same = transformer;
  const auto source = random_tensor<float, 3>({2, 19, 24}, 3),
             target = random_tensor<float, 3>({2, 33, 24}, 4);
  const auto call = [&](const attn::Transformer<float>& module,
                        const attn::MultiHeadAttentionOptions& options) {
    return module.forward(source, target, attn::NoMask{}, attn::Causal{}, attn::NoMask{}, options);
  };
  expect_one_result_in_many_threads([&](const auto& options) { return call(transformer, options); },
                                    call(same, {}));
}

TEST(ModulesInThreads, ShareOneThreadPool) {
  const auto attention = random_attention();
  const auto x = random_tensor<float, 3>({4, 33, 24}, 5);
  attn::ThreadPool pool(3);
  const Values want = random_attention().forward(x, attn::Causal{});
  expect_one_result_in_many_threads(
      [&](attn::MultiHeadAttentionOptions options) {
        options.executor = pool;
        return attention.forward(x, attn::Causal{}, options);
      },
      want);
}

class MovedAndCopied : public testing::TestWithParam<bool> {
 protected:
  Values run(const attn::Transformer<float>& module) const {
    return module.forward(source, target, attn::NoMask{}, attn::Causal{});
  }
  static void change(attn::Transformer<float>& module) {
    module.decoder().norm().weight().edit([](const attn::TensorView<float, 1>& w) { w(0) += 1; });
  }
  Values source = random_tensor<float, 3>({1, 5, 24}, 6), target = random_tensor<float, 3>({1, 7, 24}, 7);
};

TEST_P(MovedAndCopied, ModulesAreValues) {
  auto original = random_transformer(3);
  const Values want = run(random_transformer(3));
  if (GetParam()) {  // after the packed copies are made, or before
    EXPECT_EQ(run(original), want);
  }
  auto copy = original;
  change(original);
  EXPECT_EQ(run(copy), want);
  EXPECT_NE(run(original), want);
  auto moved = std::move(copy);
  EXPECT_EQ(run(moved), want);
  original = moved;
  EXPECT_EQ(run(original), want);
  change(moved);
  original = std::move(moved);
  EXPECT_NE(run(original), want);
  std::vector<attn::Transformer<float>> several;
  for (int i = 0; i < 3; ++i) several.push_back(random_transformer(3));  // moves when it grows
  EXPECT_EQ(run(several.front()), want);
}

INSTANTIATE_TEST_SUITE_P(BeforeAndAfterFirstUse, MovedAndCopied, testing::Bool());

}  // namespace
