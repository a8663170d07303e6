// tests/models/encoder_decoder_test.cpp - sequence-to-sequence models: sources read once, targets decoded
// with caches, and what a config.json may not say.
#include "attn/models/encoder_decoder.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "support/attention.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::distance;
using attn_test::same_bits;
using Ids = Eigen::Matrix<Index, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Json = nlohmann::json;

Json t5_json() {
  return {{"model_type", "t5"},
          {"vocab_size", 11},
          {"d_model", 12},
          {"d_kv", 4},
          {"d_ff", 16},
          {"num_layers", 2},
          {"num_heads", 2},
          {"relative_attention_num_buckets", 8},
          {"relative_attention_max_distance", 9},
          {"feed_forward_proj", "gated-gelu"},
          {"decoder_start_token_id", 0},
          {"eos_token_id", 1}};
}
Json bart_json() {
  return {{"model_type", "bart"},
          {"vocab_size", 11},
          {"d_model", 12},
          {"encoder_layers", 2},
          {"decoder_layers", 2},
          {"encoder_ffn_dim", 16},
          {"decoder_ffn_dim", 20},
          {"encoder_attention_heads", 2},
          {"decoder_attention_heads", 3},
          {"max_position_embeddings", 16},
          {"decoder_start_token_id", 2},
          {"eos_token_id", 2}};
}

template <class T>
attn::EncoderDecoder<T> make_model(const Json& json) {
  attn::EncoderDecoder<T> model(attn::encoder_decoder_config(json, "config.json"));
  attn_test::randomize(model, 5);
  return model;
}

Ids make_ids(Index batch, Index len, Index seed) {
  Ids ids(batch, len);
  for (Index i = 0; i < ids.size(); ++i) ids.data()[i] = (7 * i + 3 * seed + i * i % 5) % 11;
  return ids;
}

class EncoderDecoder : public testing::TestWithParam<Json> {};
INSTANTIATE_TEST_SUITE_P(Models, EncoderDecoder, testing::Values(t5_json(), bart_json()),
                         [](const auto& which) {
                           return which.param.at("model_type").template get<std::string>();
                         });

template <class T>
void expect_chunks_as_whole(const Json& json, double tolerance) {
  const auto model = make_model<T>(json);
  using A = attn::Accumulator<T>;
  const Ids source = make_ids(2, 7, 1), target = make_ids(2, 6, 2);
  const auto whole = model.forward(source, target);
  for (const Index chunk : {1, 2, 5}) {
    auto cache = model.make_cache({.batch = 2, .max_len = 6}, 7);
    model.begin(source, cache);
    attn::Tensor<A, 3> logits(whole.extents());
    for (Index first = 0; first < 6; first += chunk) {
      const Index count = std::min<Index>(chunk, 6 - first);
      const Ids part = target.middleCols(first, count);
      model.forward_into(part, cache, logits.view().slice(1, {first, first + count}));
    }
    EXPECT_LT(distance(logits, whole), tolerance * attn_test::largest(whole)) << chunk;
  }
}
TEST_P(EncoderDecoder, TargetsInChunksAreAsAtOnce) {
  expect_chunks_as_whole<double>(GetParam(), 1e-13);
  expect_chunks_as_whole<float>(GetParam(), 1e-5);
  expect_chunks_as_whole<Eigen::bfloat16>(GetParam(), 1e-5);
}

TEST_P(EncoderDecoder, SequencesOfUnequalLengthAreAsAlone) {
  const auto model = make_model<double>(GetParam());
  Ids source = make_ids(2, 7, 1);
  const Ids target = make_ids(2, 4, 2);
  const std::vector<Index> lengths{7, 3};
  const auto together = model.forward(source, target, {.lengths = lengths});
  const Ids shorter = source.block(1, 0, 1, 3), its_target = target.row(1);
  const auto alone = model.forward(shorter, its_target);
  EXPECT_LT(distance(together.view()[1], alone.view()[0]), 1e-13 * attn_test::largest(alone));
  source(1, 3) = std::numeric_limits<Index>::max();
  source(1, 6) = -1;
  EXPECT_TRUE(same_bits(model.forward(source, target, {.lengths = lengths}), together));
}

TEST_P(EncoderDecoder, ATargetMayRest) {
  const auto model = make_model<double>(GetParam());
  const Ids source = make_ids(2, 5, 1), first = make_ids(2, 2, 2), second = make_ids(2, 1, 3);
  const auto logits_of = [&](auto& cache, const Ids& ids, std::span<const Index> counts) {
    attn::Matrix<double> logits(2, 11);
    model.forward_into(ids, cache, logits, {.lengths = counts});
    return logits;
  };
  auto cache = model.make_cache({.batch = 2, .max_len = 8}, 5),
       without_rest = model.make_cache({.batch = 2, .max_len = 8}, 5);
  model.begin(source, cache);
  model.begin(source, without_rest);
  const std::vector<Index> one{0, 1};
  (void)logits_of(cache, first, {});
  (void)logits_of(cache, second, one);
  (void)logits_of(without_rest, first, {});
  EXPECT_EQ(cache.lengths()[0], 2);
  EXPECT_EQ(cache.lengths()[1], 3);
  const auto after = logits_of(cache, second, {}), right = logits_of(without_rest, second, {});
  EXPECT_LT((after.row(0) - right.row(0)).cwiseAbs().maxCoeff(), 1e-13 * right.cwiseAbs().maxCoeff());
}

TEST_P(EncoderDecoder, ExecutorsGiveTheSameBits) {
  const auto model = make_model<float>(GetParam());
  const Ids source = make_ids(3, 9, 1), target = make_ids(3, 5, 2);
  attn::ThreadPool pool(2);
  EXPECT_TRUE(same_bits(model.forward(source, target, {.executor = pool}), model.forward(source, target)));
}

TEST_P(EncoderDecoder, GreedyTokensAreTheLikeliestAndEndBehindTheEndToken) {
  Json json = GetParam();
  const auto tokens_of = [&] {
    const auto model = make_model<double>(json);
    return model.greedy(make_ids(3, 6, 1), 7);
  };
  json["eos_token_id"] = Json();
  const auto endless = tokens_of();
  const auto model = make_model<double>(json);
  for (std::size_t b = 0; b < 3; ++b) {
    ASSERT_EQ(endless[b].size(), 7u);
    Ids target(1, 7);
    target(0, 0) = model.config().start_token;
    for (Index i = 1; i < 7; ++i) target(0, i) = endless[b][attn::as_size(i - 1)];
    const Ids source = make_ids(3, 6, 1).row(static_cast<Index>(b));
    const auto logits = model.forward(source, target);
    for (Index i = 0; i < 7; ++i) {
      const double* const row = &logits(0, i, 0);
      EXPECT_EQ(endless[b][attn::as_size(i)], std::max_element(row, row + 11) - row);
    }
  }
  json["eos_token_id"] = endless[0][2];
  const auto ended = tokens_of();
  for (std::size_t b = 0; b < 3; ++b) {
    auto right = endless[b];
    const auto end = std::find(right.begin(), right.end(), endless[0][2]);
    if (end != right.end()) right.erase(end + 1, right.end());
    EXPECT_EQ(ended[b], right);
  }
}

TEST_P(EncoderDecoder, NothingIsAllocatedPerTokenOnceWarm) {
  const auto model = make_model<float>(GetParam());
  auto cache = model.make_cache({.batch = 2, .max_len = 8}, 5);
  model.begin(make_ids(2, 5, 1), cache);
  const Ids token = make_ids(2, 1, 2);
  attn::Matrix<float> logits(2, 11);
  attn::Workspace workspace;
  const auto step = [&] { model.forward_into(token, cache, logits, {.workspace = &workspace}); };
  step();
  step();
  EXPECT_EQ(attn_test::allocations_in(step), 0);
}

TEST_P(EncoderDecoder, CachesOfLessThanFloatAreNear) {
  const auto model = make_model<float>(GetParam());
  const Ids source = make_ids(1, 5, 1), target = make_ids(1, 4, 2);
  const auto right = model.forward(source, target);
  auto cache = model.make_cache<Eigen::half>({.max_len = 4}, 5);
  model.begin(source, cache);
  attn::Tensor<float, 3> logits(right.extents());
  model.forward_into(target, cache, logits);
  EXPECT_LT(distance(logits, right), 0x1p-7 * attn_test::largest(right));
  EXPECT_GT(distance(logits, right), 0);
}

TEST_P(EncoderDecoder, ErrorsNameWhatAndWhereAndLeaveTheCacheAsItWas) {
  const auto model = make_model<float>(GetParam());
  auto cache = model.make_cache({.batch = 2, .max_len = 4}, 5);
  const Ids source = make_ids(2, 5, 1), target = make_ids(2, 3, 2);
  attn::Tensor<float, 3> logits({2, 3, 11});
  const auto text = [&](auto&& f) { return attn_test::error_text<std::logic_error>(f); };
  EXPECT_EQ(text([&] { model.forward_into(target, cache, logits); }),
            "attn: EncoderDecoder: the cache has no source: begin() it");
  model.begin(source, cache);
  model.forward_into(target, cache, logits);
  Ids wrong = target;
  wrong(1, 2) = 11;
  EXPECT_EQ(text([&] { model.forward_into(wrong, cache, logits); }),
            "attn: EncoderDecoder: ids(1, 2) is 11, not within [0, 11)");
  EXPECT_EQ(text([&] {
              model.forward_into(target, cache, logits);
            }).find("attn: KVCache: sequence 0 has 3 rows and gets 3, but there is room for 4 (max_len)"),
            0u);
  for (const auto& layer : cache.target) EXPECT_EQ(layer.longest(), 3);
  attn::Matrix<float> narrow(2, 10);
  EXPECT_EQ(text([&] { model.forward_into(target, cache, narrow); }),
            "attn: EncoderDecoder: logits [2, 10] should be [2, 11]");
  const std::vector<Index> lengths{1, 6};
  EXPECT_EQ(text([&] { (void)model.encode(source, {.lengths = lengths}); }),
            "attn: EncoderDecoder: lengths[1] is 6, not within [0, 5], the ids of a sequence");
  const Ids other_batch = make_ids(3, 5, 1);
  EXPECT_EQ(
      text([&] { model.begin(other_batch, cache); }),
      "attn: EncoderDecoder::begin: a cache of 2 layers and batch 2 does not fit 2 layers and a batch of 3");
}

TEST(EncoderDecoderErrors, ASourceLongerThanTheTableOfPositionsIsNamed) {
  const auto model = make_model<float>(bart_json());
  EXPECT_EQ(attn_test::error_text<std::length_error>([&] { (void)model.encode(make_ids(1, 17, 1)); }),
            "attn: EncoderDecoder: sequence 0 of 0 and 17 new tokens is longer than the model knows, 16");
}

TEST(EncoderDecoderErrors, ConfigsAndWeightsThatAreNoneNameTheKey) {
  const auto text = [](Json json, const char* key, const Json& value) {
    json[key] = value;
    return attn_test::error_text<attn::FormatError>(
        [&] { (void)attn::encoder_decoder_config(json, "config.json"); });
  };
  EXPECT_EQ(text(t5_json(), "model_type", "mt6"),
            "attn: config.json: model_type is \"mt6\", which is neither t5 nor bart");
  EXPECT_NE(text(t5_json(), "d_model", 0).find("d_model is 0"), std::string::npos);
  EXPECT_NE(text(t5_json(), "feed_forward_proj", "gated-cubic").find("feed_forward_proj is \"cubic\""),
            std::string::npos);
  EXPECT_NE(text(bart_json(), "encoder_attention_heads", 5).find("5 heads do not divide d_model 12"),
            std::string::npos);
  EXPECT_NE(text(bart_json(), "decoder_start_token_id", 11).find("decoder_start_token_id is 11"),
            std::string::npos);
  const attn::WeightMap nothing("model.safetensors");
  for (const Json& json : {t5_json(), bart_json()}) {
    const auto missing = attn_test::error_text<attn::FormatError>(
        [&] { attn::EncoderDecoder<float> model(attn::encoder_decoder_config(json, "c"), nothing); });
    EXPECT_NE(missing.find("model.safetensors"), std::string::npos) << missing;
    EXPECT_NE(missing.find("shared.weight"), std::string::npos) << missing;
  }
}

}  // namespace
