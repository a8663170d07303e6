// tests/models/causal_lm_test.cpp - CausalLM: however a text is cut into calls, batches and storages, it
// has the same logits; weights and ids are untrusted.
#include "attn/models/causal_lm.hpp"

#include <gtest/gtest.h>

#include "attn/core/thread_pool.hpp"
#include "models/tiny_causal_lm.hpp"
#include "support/attention.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"

namespace {

using attn::Index;
using attn_test::error_text;
using attn_test::Ids;
using attn_test::make_ids;
using attn_test::TinyCausalLM;

class CausalLMOf : public testing::TestWithParam<TinyCausalLM> {
 protected:
  attn::CausalLM<float> model = GetParam().model<float>();
};
INSTANTIATE_TEST_SUITE_P(Variants, CausalLMOf, testing::ValuesIn(attn_test::tiny_causal_lms()),
                         [](const auto& variant) { return variant.param.name; });

/// The logits behind each of the ids of a batch, in chunks of this length; `cache` may hold something
/// already.
template <class Storage>
attn::Tensor<float, 3> feed(const attn::CausalLM<float>& model, attn::CausalLMCache<float, Storage>& cache,
                            const Ids& ids, Index chunk) {
  attn::Tensor<float, 3> logits({ids.rows(), ids.cols(), model.config().vocab_size});
  for (Index first = 0; first < ids.cols(); first += chunk) {
    const Index end = std::min(first + chunk, ids.cols());
    const Ids part = ids.middleCols(first, end - first);
    model.forward_into(part, cache, logits.view().slice(1, {first, end}));
  }
  return logits;
}

TEST_P(CausalLMOf, GivesTheSameLogitsInOneCallInChunksAndTokenByToken) {
  const Ids ids = make_ids(2, 13);
  const auto whole = model.forward(ids);
  ASSERT_GT(attn_test::largest(whole), 0.1);
  for (const Index chunk : {13, 5, 1}) {
    auto cache = model.make_cache({.batch = 2, .max_len = 13});
    EXPECT_LT(attn_test::distance(feed(model, cache, ids, chunk), whole), 2e-5) << "in chunks of " << chunk;
    EXPECT_EQ(cache.length(1), 13);
  }
}

TEST_P(CausalLMOf, ReturnsTheLogitsBehindTheLastTokenForAMatrix) {
  const Ids ids = make_ids(2, 6);
  auto one = model.make_cache({.batch = 2, .max_len = 6}), other = one.copy();
  const attn::Matrix<float> last = model.forward(ids, one);
  const auto all = feed(model, other, ids, 6);
  for (Index b = 0; b < 2; ++b)
    for (Index t = 0; t < last.cols(); ++t) EXPECT_NEAR(last(b, t), all(b, 5, t), 1e-5);
}

TEST_P(CausalLMOf, LosesNoMoreThanTheStorageOfTheCacheDoes) {
  const Ids ids = make_ids(2, 13);
  const auto exact = model.forward(ids);
  const double largest = attn_test::largest(exact);
  const auto error = [&]<class Storage>(std::type_identity<Storage>) {
    auto cache = model.make_cache<Storage>({.batch = 2, .max_len = 16, .page_rows = 4});
    return attn_test::distance(feed(model, cache, ids, 4), exact) / largest;
  };
  // The rounding of a value, and twice that for the weights that rounded keys lead to, in each layer.
  const auto bound = [&](double rounding) {
    return 3 * rounding * static_cast<double>(model.config().num_layers);
  };
  EXPECT_LT(error(std::type_identity<Eigen::half>{}), bound(0x1p-11));
  EXPECT_LT(error(std::type_identity<Eigen::bfloat16>{}), bound(0x1p-8));
  EXPECT_LT(error(std::type_identity<std::int8_t>{}), bound(1.0 / 254));
  EXPECT_GT(error(std::type_identity<std::int8_t>{}), 1e-5);
}

/// ids whose sequences have these lengths, with padding that no vocabulary holds.
Ids padded(const Ids& ids, std::span<const Index> lengths, attn::PaddingSide side) {
  Ids with_padding = Ids::Constant(ids.rows(), ids.cols(), -99);
  for (Index b = 0; b < ids.rows(); ++b) {
    const Index n = lengths[attn::as_size(b)], first = side == attn::PaddingSide::left ? ids.cols() - n : 0;
    with_padding.row(b).segment(first, n) = ids.row(b).head(n);
  }
  return with_padding;
}

TEST_P(CausalLMOf, GivesEachSequenceOfABatchWhatItHasAloneOnWhicheverSideThePaddingIs) {
  const Ids ids = make_ids(3, 9), next = make_ids(3, 1);
  const Index lengths[] = {9, 1, 4};
  for (const auto side : {attn::PaddingSide::right, attn::PaddingSide::left}) {
    auto cache = model.make_cache({.batch = 3, .max_len = 10});
    attn::Tensor<float, 3> all({3, 9, model.config().vocab_size});
    model.forward_into(padded(ids, lengths, side), cache, all, {.lengths = lengths, .padding = side});
    const attn::Matrix<float> decoded = model.forward(next, cache);
    for (Index b = 0; b < 3; ++b) {
      const Index n = lengths[b], first = side == attn::PaddingSide::left ? 9 - n : 0;
      Ids own(1, n + 1);
      own << ids.row(b).head(n), next(b, 0);
      const auto alone = model.forward(own);
      for (Index i = 0; i < 9; ++i)
        for (Index t = 0; t < decoded.cols(); ++t) {
          if (first <= i && i < first + n)
            EXPECT_NEAR(all(b, i, t), alone(0, i - first, t), 2e-5);
          else
            EXPECT_EQ(all(b, i, t), 0);
        }
      for (Index t = 0; t < decoded.cols(); ++t) EXPECT_NEAR(decoded(b, t), alone(0, n, t), 2e-5);
    }
  }
}

TEST_P(CausalLMOf, WithoutACacheTooPaddingChangesNothing) {
  const Ids ids = make_ids(2, 7);
  const Index lengths[] = {3, 7};
  const auto right = model.forward(padded(ids, lengths, attn::PaddingSide::right), {.lengths = lengths});
  const auto alone = model.forward(Ids(ids.row(0).head(3)));
  for (Index t = 0; t < right.extent(2); ++t) {
    for (Index i = 0; i < 3; ++i) EXPECT_NEAR(right(0, i, t), alone(0, i, t), 2e-5);
    EXPECT_EQ(right(0, 3, t), 0);
  }
}

TEST_P(CausalLMOf, LeavesASequenceWithoutNewTokensAsItIs) {
  auto cache = model.make_cache({.batch = 2, .max_len = 10});
  (void)model.forward(make_ids(2, 4), cache);
  auto alone = cache.copy();
  const Index lengths[] = {0, 2};
  const attn::Matrix<float> logits = model.forward(make_ids(2, 2), cache, {.lengths = lengths});
  EXPECT_EQ(logits.row(0).cwiseAbs().maxCoeff(), 0);
  EXPECT_GT(logits.row(1).cwiseAbs().maxCoeff(), 0);
  EXPECT_EQ(cache.length(0), 4);
  EXPECT_EQ(cache.length(1), 6);
  const Ids next = make_ids(2, 1);
  const attn::Matrix<float> after = model.forward(next, cache), expected = model.forward(next, alone);
  EXPECT_LT((after.row(0) - expected.row(0)).cwiseAbs().maxCoeff(), 2e-5F);
}

TEST_P(CausalLMOf, AllocatesNothingPerTokenOnceWarm) {
  attn::Workspace workspace;
  const Index unequal[] = {5, 2, 3};
  for (const bool is_uniform : {true, false}) {
    auto cache = model.make_cache({.batch = 3, .max_len = 40});
    attn::Matrix<float> logits(3, model.config().vocab_size);
    const Ids next = make_ids(3, 1);
    attn::CausalLMOptions options{.workspace = &workspace};
    if (!is_uniform) options.lengths = unequal;
    model.forward_into(make_ids(3, 5), cache, logits, options);
    const auto decode = [&] {
      for (int i = 0; i < 8; ++i) model.forward_into(next, cache, logits, {.workspace = &workspace});
    };
    decode();
    EXPECT_EQ(attn_test::allocations_in(decode), 0u) << (is_uniform ? "equal" : "unequal") << " lengths";
  }
}

TEST_P(CausalLMOf, HasTheSameBitsOnEveryExecutor) {
  const Ids ids = make_ids(3, 9);
  auto one = model.make_cache({.batch = 3, .max_len = 9}), other = one.copy();
  attn::ThreadPool pool(3);
  EXPECT_EQ(model.forward(ids, other, {.executor = pool}), model.forward(ids, one));
  EXPECT_EQ(model.forward(ids, attn::CausalLMOptions{.executor = pool}), model.forward(ids));
}

TEST_P(CausalLMOf, KeepsItsCacheWhenACallFails) {
  auto cache = model.make_cache({.batch = 2, .max_len = 6});
  (void)model.forward(make_ids(2, 5), cache);
  auto untouched = cache.copy();
  EXPECT_THROW((void)model.forward(make_ids(2, 2), cache), std::length_error);
  Ids bad = make_ids(2, 1);
  bad(1, 0) = model.config().vocab_size;
  EXPECT_THROW((void)model.forward(bad, cache), std::invalid_argument);
  EXPECT_EQ(cache.length(0), 5);
  EXPECT_EQ(model.forward(make_ids(2, 1), cache), model.forward(make_ids(2, 1), untouched));
}

TEST_P(CausalLMOf, ReadsTheWeightsThatItIsMadeOfWithAndWithoutPrefix) {
  const Ids ids = make_ids(1, 8);
  const auto want = model.forward(ids);
  for (const bool has_prefix : {true, false}) {
    const attn_test::HuggingFaceWeights weights(model, has_prefix);
    EXPECT_EQ(attn::CausalLM<float>(model.config(), weights.map()).forward(ids), want);
  }
}

TEST_P(CausalLMOf, ComputesInFloatWithWeightsOf16Bits) {
  const Ids ids = make_ids(2, 8);
  const auto with = [&]<class T>(std::type_identity<T>) {
    const auto small = GetParam().model<T>();
    auto rounded = GetParam().model<float>();
    const attn_test::HuggingFaceWeights weights(small, true);
    rounded = attn::CausalLM<float>(rounded.config(), weights.map());
    auto cache = small.make_cache({.batch = 2, .max_len = 8});
    const attn::Matrix<float> logits = small.forward(ids, cache);
    auto other = rounded.make_cache({.batch = 2, .max_len = 8});
    EXPECT_LT((logits - rounded.forward(ids, other)).cwiseAbs().maxCoeff(), 2e-5F);
  };
  with(std::type_identity<Eigen::half>{});
  with(std::type_identity<Eigen::bfloat16>{});
}

/// The weights of each output, rounded to what WeightStorage keeps of them.
void round_weights(attn::Linear<float>& linear, attn::WeightStorage storage) {
  linear.weight().edit([&](const attn::TensorView<float, 2>& weight) {
    for (Index o = 0; o < weight.extent(0); ++o) {
      float largest = 0;
      for (Index i = 0; i < weight.extent(1); ++i) largest = std::max(largest, std::abs(weight(o, i)));
      for (Index i = 0; i < weight.extent(1); ++i) {
        float& w = weight(o, i);
        w = storage == attn::WeightStorage::int8 ? largest / 127 * std::round(w / (largest / 127))
                                                 : static_cast<float>(static_cast<Eigen::bfloat16>(w));
      }
    }
  });
}

TEST_P(CausalLMOf, ComputesInFloatWithWeightsThatAreStoredInFewerBits) {
  if (GetParam().config.tied_embeddings)
    GTEST_SKIP() << "rounding the logits' matrix would round the embeddings";
  const Ids ids = make_ids(2, 8);
  const auto exact = model.forward(ids);
  for (const auto storage : {attn::WeightStorage::bfloat16, attn::WeightStorage::int8}) {
    attn::CausalLM<float> rounded = GetParam().model<float>();
    rounded.modules().for_each_linear([&](attn::Linear<float>& linear) { round_weights(linear, storage); });
    model.store_weights_as(storage);
    model.pack();
    const auto stored = model.forward(ids);
    EXPECT_LT(attn_test::distance(stored, rounded.forward(ids)), 2e-5);
    EXPECT_GT(attn_test::distance(stored, exact), 1e-4);
  }
}

}  // namespace
