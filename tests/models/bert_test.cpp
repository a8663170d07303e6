// tests/models/bert_test.cpp - BertEncoder: padding costs nothing and changes nothing; configs and weights
// are untrusted.
#include "attn/models/bert.hpp"

#include <gtest/gtest.h>

#include "attn/core/thread_pool.hpp"
#include "attn/io/safetensors.hpp"
#include "support/counting_new.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::error_text;
using Ids = Eigen::Matrix<std::int64_t, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

attn::BertConfig tiny_config() {
  return {.vocab_size = 40,
          .embed_dim = 16,
          .num_layers = 3,
          .num_heads = 2,
          .feed_forward_dim = 24,
          .max_len = 12,
          .num_token_types = 2};
}

struct Bert : testing::Test {
  Bert() : model(tiny_config()), ids(3, 9) {
    attn_test::randomize(model, 1);
    for (Index b = 0; b < 3; ++b)
      for (Index i = 0; i < 9; ++i) ids(b, i) = i < lengths[b] ? (7 * b + 5 * i + 3) % 40 : -99;
  }
  attn::BertEncoder<float> model;
  Ids ids;  // padding holds what no vocabulary has
  const Index lengths[3] = {9, 4, 0};
};

TEST_F(Bert, GivesEachSequenceWhatItGivesItAlone) {
  const auto together = model.forward(ids, lengths);
  for (Index b = 0; b < 2; ++b) {
    const Ids own = ids.row(b).head(lengths[b]);
    const auto alone = model.forward(own);
    for (Index i = 0; i < 9; ++i)
      for (Index c = 0; c < 16; ++c) {
        if (i < lengths[b])
          EXPECT_NEAR(together(b, i, c), alone(0, i, c), 1e-5);
        else
          EXPECT_EQ(together(b, i, c), 0);
      }
  }
  EXPECT_EQ(together(2, 0, 0), 0);
}

TEST_F(Bert, ComputesPaddedRowsOnRequestWithoutChangingTheOthers) {
  Ids valid = ids.cwiseMax(0);
  const auto zero = model.forward(valid, lengths);
  const auto computed = model.forward(valid, lengths, {.padded_rows = attn::PaddedRows::compute});
  for (Index b = 0; b < 3; ++b)
    for (Index i = 0; i < 9; ++i) {
      if (i < lengths[b])
        EXPECT_NEAR(computed(b, i, 5), zero(b, i, 5), 1e-5);
      else
        EXPECT_NE(computed(b, i, 5), 0);
    }
}

TEST_F(Bert, DetailsChangeNothing) {
  const auto want = model.forward(ids, lengths);
  const auto details =
      model.forward_with_details(ids, lengths, {.hidden_states = {3, 0}, .attention_layers = {2, 0, 2}});
  EXPECT_EQ(details.last_hidden_state, want);
  ASSERT_EQ(details.hidden_states.size(), 2u);
  EXPECT_EQ(details.hidden_states[0], want);
  EXPECT_NE(details.hidden_states[1], want);
  ASSERT_EQ(details.attentions.size(), 3u);
  EXPECT_EQ(details.attentions[0], details.attentions[2]);
  EXPECT_EQ(details.attentions[1].extents(), (attn::Dims<4>{3, 2, 9, 9}));
  float sum = 0;
  for (Index j = 0; j < 9; ++j) sum += details.attentions[1](1, 1, 3, j);
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_EQ(details.attentions[1](1, 1, 3, 4), 0);
  EXPECT_EQ(details.attentions[1](1, 1, 4, 0), 0);
}

TEST_F(Bert, EmbedsAsTheNormalisedMeanOverTokens) {
  attn::Matrix<float> want = attn::mean_pool(model.forward(ids, lengths), lengths);
  attn::normalize_rows(want);
  const attn::Matrix<float> embedding = model.embed(ids, lengths);
  EXPECT_LT((embedding - want).cwiseAbs().maxCoeff(), 1e-6);
  EXPECT_NEAR(embedding.row(1).norm(), 1, 1e-6);
  EXPECT_EQ(embedding.row(2).norm(), 0);
}

TEST_F(Bert, HasTheSameBitsOnEveryExecutorAndAllocatesNothingWhenWarm) {
  const attn::Matrix<float> want = model.embed(ids, lengths);
  attn::ThreadPool pool(3);
  EXPECT_EQ(model.embed(ids, lengths, {.executor = pool}), want);
  attn::Workspace workspace;
  attn::Matrix<float> out(3, 16);
  const auto run = [&] { model.embed_into(ids, lengths, out, {.workspace = &workspace}); };
  run();
  EXPECT_EQ(attn_test::allocations_in(run), 0u);
  EXPECT_EQ(out, want);
}

TEST_F(Bert, AddsTheSegmentOfEachToken) {
  Eigen::Matrix<Index, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> types = Ids::Zero(3, 9).cast<Index>();
  const attn::BertOptions options{.token_types = attn::TensorView<const Index, 2>(attn::as_view(types))};
  const auto zero = model.forward(ids, lengths);
  EXPECT_EQ(model.forward(ids, lengths, options), zero);
  types(0, 3) = 1;
  EXPECT_NE(model.forward(ids, lengths, options), zero);
  types(0, 3) = 2;
  EXPECT_EQ(error_text<std::invalid_argument>([&] { (void)model.forward(ids, lengths, options); }),
            "attn: BertEncoder: token_types(0, 3) is 2, not within [0, 2)");
}

TEST_F(Bert, NamesAnInputThatDoesNotFit) {
  ids(1, 2) = 40;
  EXPECT_EQ(error_text<std::invalid_argument>([&] { (void)model.forward(ids, lengths); }),
            "attn: BertEncoder: ids(1, 2) is 40, not within [0, 40)");
  const Index wrong[] = {9, 10, 0};
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)model.forward(ids, wrong); }),
            "attn: BertEncoder: lengths[1] is 10, not within ids [3, 9]");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)model.forward(Ids::Zero(1, 13).eval()); }),
            "attn: BertEncoder: ids [1, 13] are longer than max_len 12");
  EXPECT_EQ(error_text<attn::ShapeError>(
                [&] { (void)model.forward_with_details(ids, lengths, {.attention_layers = {3}}); }),
            "attn: BertEncoder: there is no layer 3 of 3");
  EXPECT_EQ(error_text<attn::ShapeError>([&] {
              (void)model.forward_with_details(ids, lengths, {.hidden_states = {0, 4}});
            }),
            "attn: BertEncoder: there is no hidden state 4 with 3 layers");
  const Index two[] = {9, 4};
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)model.forward(ids, two); }),
            "attn: BertEncoder: 2 lengths for ids [3, 9]");
  const Eigen::Matrix<Index, 3, 8> types = Eigen::Matrix<Index, 3, 8>::Zero();
  const attn::BertOptions options{.token_types = attn::TensorView<const Index, 2>(attn::as_view(types))};
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)model.forward(ids, lengths, options); }),
            "attn: BertEncoder: token_types [3, 8] and ids [3, 9] differ in extents");
  ids(1, 2) = 0;
  attn::Tensor<float, 3> hidden({3, 9, 15});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { model.forward_into(ids, lengths, hidden); }),
            "attn: BertEncoder: out [3, 9, 15] should be [3, 9, 16]");
  attn::Tensor<float, 2> embedding({2, 16});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { model.embed_into(ids, lengths, embedding); }),
            "attn: BertEncoder: out [2, 16] should be [3, 16]");
  EXPECT_EQ(model.forward(Ids::Zero(0, 5).eval()).extents(), (attn::Dims<3>{0, 5, 16}));
}

nlohmann::json config_json() {
  return {{"model_type", "bert"},     {"vocab_size", 40},         {"hidden_size", 16},
          {"num_hidden_layers", 3},   {"num_attention_heads", 2}, {"intermediate_size", 24},
          {"hidden_act", "gelu_new"}, {"layer_norm_eps", 1e-12},  {"max_position_embeddings", 12},
          {"type_vocab_size", 2}};
}
std::string config_error(const char* key, const nlohmann::json& value) {
  nlohmann::json json = config_json();
  if (value.is_discarded())
    json.erase(key);
  else
    json[key] = value;
  return error_text<attn::FormatError>([&] { attn::bert_config(json, "config.json"); });
}

TEST(BertConfig, IsReadFromTheMembersOfAConfigFile) {
  const attn::BertConfig config = attn::bert_config(config_json(), "config.json");
  EXPECT_EQ(config.embed_dim, 16);
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.max_len, 12);
  EXPECT_EQ(config.activation, attn::Activation::gelu_tanh);
}

TEST(BertConfig, NamesTheFileAndTheKeyThatIsWrong) {
  const nlohmann::json gone(nlohmann::json::value_t::discarded);
  EXPECT_EQ(config_error("hidden_size", gone), "attn: config.json: key hidden_size is missing");
  EXPECT_EQ(config_error("hidden_size", "16"),
            "attn: config.json: key hidden_size is a string, not an integer");
  EXPECT_EQ(config_error("hidden_size", 16.5),
            "attn: config.json: key hidden_size is a number, not an integer");
  EXPECT_EQ(config_error("vocab_size", -1), "attn: config.json: vocab_size is -1, not within [1, 2^31)");
  EXPECT_EQ(config_error("vocab_size", 18446744073709551615u),
            "attn: config.json: vocab_size is 18446744073709551615, not within [1, 2^31)");
  EXPECT_EQ(config_error("layer_norm_eps", 0), "attn: config.json: layer_norm_eps is 0, not positive");
  EXPECT_EQ(config_error("layer_norm_eps", nullptr),
            "attn: config.json: key layer_norm_eps is a null, not a number");
  EXPECT_EQ(config_error("num_attention_heads", 3),
            "attn: config.json: num_attention_heads 3 does not divide hidden_size 16");
  EXPECT_EQ(config_error("hidden_act", "mish"),
            "attn: config.json: hidden_act is \"mish\", which is none of gelu, gelu_new, gelu_pytorch_tanh, "
            "gelu_fast, "
            "relu, silu, swish");
  EXPECT_EQ(config_error("model_type", "llama"),
            "attn: config.json: model_type is \"llama\", and only \"bert\" is supported");
  EXPECT_EQ(error_text<attn::FormatError>([] { attn::bert_config(nlohmann::json::array(), "config.json"); }),
            "attn: config.json: is not a JSON object");
}

/// The weights of a model under Hugging Face's names.
attn::WeightMap weights_of(const attn::BertEncoder<float>& model, const std::string& prefix) {
  const std::pair<std::string, std::string> names[] = {
      {"word_embeddings", "embeddings.word_embeddings.weight"},
      {"position_embeddings", "embeddings.position_embeddings.weight"},
      {"token_type_embeddings", "embeddings.token_type_embeddings.weight"},
      {"embeddings_norm", "embeddings.LayerNorm"},
      {"encoder.layers.", "encoder.layer."},
      {"self_attention.q_proj", "attention.self.query"},
      {"self_attention.k_proj", "attention.self.key"},
      {"self_attention.v_proj", "attention.self.value"},
      {"self_attention.out_proj", "attention.output.dense"},
      {"norm1", "attention.output.LayerNorm"},
      {"feed_forward.up_proj", "intermediate.dense"},
      {"feed_forward.down_proj", "output.dense"},
      {"norm2", "output.LayerNorm"}};
  attn::WeightMap weights("test weights");
  for_each_parameter(model, [&](std::string path, const auto& parameter) {
    for (const auto& [ours, theirs] : names)
      if (const auto at = path.find(ours); at != std::string::npos) path.replace(at, ours.size(), theirs);
    weights.add(prefix + path, parameter.view());
  });
  return weights;
}

TEST_F(Bert, LoadsHuggingFaceNamesWithAndWithoutPrefix) {
  const auto want = model.forward(ids, lengths);
  for (const std::string prefix : {"", "bert."}) {
    attn::WeightMap weights = weights_of(model, prefix);
    const Ids position_ids = Ids::Zero(1, 12);
    weights.add(prefix + "embeddings.position_ids", position_ids);
    const attn::BertEncoder<float> loaded(tiny_config(), weights);
    EXPECT_EQ(loaded.forward(ids, lengths), want);
  }
}

TEST_F(Bert, NamesAWeightThatIsMissingOrDiffersBeforeTakingMemoryForIt) {
  const attn::WeightMap weights = weights_of(model, "");
  attn::BertConfig config = tiny_config();
  config.vocab_size = Index{1} << 30;
  EXPECT_EQ(error_text<attn::FormatError>([&] { attn::BertEncoder<float>(config, weights); }),
            "attn: test weights: weight 'embeddings.word_embeddings.weight' has shape [40, 16], not "
            "[1073741824, 16]");
  config = tiny_config();
  config.num_layers = Index{1} << 30;
  EXPECT_EQ(error_text<attn::FormatError>([&] { attn::BertEncoder<float>(config, weights); }),
            "attn: test weights: weight 'encoder.layer.3.attention.output.dense.weight' is missing");
  EXPECT_EQ(
      error_text<attn::FormatError>([] { attn::BertEncoder<float>::load("no/such/directory"); }).substr(0, 6),
      "attn: ");
}

}  // namespace
