// tests/modules/mixed_storage_test.cpp - modules that store weights in 16 bits and compute on rows of another
// type.
#include "attn/modules/mixed_storage.hpp"

#include <gtest/gtest.h>

#include "attn/masks/causal.hpp"
#include "attn/masks/padding.hpp"
#include "attn/modules/transformer_decoder.hpp"
#include "support/counting_new.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::random_tensor;

/// The values of one module in another of the same configuration and another element type.
template <class From, class To>
void copy_parameters(const From& from, To& to) {
  for_each_parameter(
      to, [&]<class T, int Rank>(const std::string& path, attn::Parameter<T, Rank>& parameter) {
        for_each_parameter(from, [&]<class S, int SourceRank>(const std::string& source_path,
                                                              const attn::Parameter<S, SourceRank>& source) {
          if constexpr (Rank == SourceRank) {
            if (path == source_path) parameter.assign(source.view());
          }
        });
      });
}

/// A module of 16-bit weights, and the one of floats that holds the same values: numbers of 16 bits are
/// floats exactly.
template <template <class> class Module, class T>
struct Stored {
  Module<T> stored;
  Module<float> converted;

  template <class... Configs>
  explicit Stored(const Configs&... configs) : stored(configs...), converted(configs...) {
    attn_test::randomize(stored, 5);
    copy_parameters(stored, converted);
  }
};

template <class T>
class MixedStorage : public testing::Test {};
using Storages = testing::Types<Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(MixedStorage, Storages);

/// Everything that a layer can have.
attn::MultiHeadAttentionConfig with_everything() {
  return {.embed_dim = 24,
          .num_heads = 6,
          .num_kv_heads = 2,
          .head_dim = 5,
          .value_dim = 7,
          .kdim = 9,
          .vdim = 11,
          .soft_cap = 4,
          .qk_norm = attn::NormKind::layer,
          .add_bias_kv = true,
          .add_zero_attn = true,
          .head_gates = true,
          .output_gate = true};
}

TYPED_TEST(MixedStorage, OfAttentionGivesTheBitsOfTheModuleOfFloats) {
  const Stored<attn::MultiHeadAttention, TypeParam> modules(with_everything());
  const auto query = random_tensor<float, 3>({2, 6, 24}, 1), key = random_tensor<float, 3>({2, 9, 9}, 2),
             value = random_tensor<float, 3>({2, 9, 11}, 3);
  const Index lengths[] = {9, 4};
  const attn::KeyPadding mask{lengths};
  const auto out = modules.stored.forward(query, key, value, mask);
  EXPECT_EQ(out, modules.converted.forward(query, key, value, mask));
  const auto both = modules.stored.forward_with_weights(query, key, value, mask);
  EXPECT_EQ(both.out, out);
  EXPECT_EQ(both.weights, modules.converted.forward_with_weights(query, key, value, mask).weights);
}

TYPED_TEST(MixedStorage, OfTheFeedForwardNetworkGivesTheBitsOfTheModuleOfFloats) {
  const auto x = random_tensor<float, 2>({7, 10}, 4);
  const attn::Matrix<float> rows = Eigen::Map<const attn::Matrix<float>>(x.data(), 7, 10);
  for (const attn::Gating gating : {attn::Gating::none, attn::Gating::gated}) {
    const Stored<attn::FeedForward, TypeParam> modules(
        attn::FeedForwardConfig{.embed_dim = 10, .hidden_dim = 18, .gating = gating});
    const attn::Matrix<float> out = modules.stored.forward(rows);
    EXPECT_EQ(out, modules.converted.forward(rows));
  }
}

TYPED_TEST(MixedStorage, OfLayersAndStacksGivesTheBitsOfTheModuleOfFloats) {
  const auto source = random_tensor<float, 3>({2, 6, 16}, 6), target = random_tensor<float, 3>({2, 4, 16}, 7);
  const Index lengths[] = {6, 3};
  const attn::KeyPadding padding{lengths};
  for (const attn::NormPlacement norm : {attn::NormPlacement::post, attn::NormPlacement::pre}) {
    const attn::TransformerConfig config{
        .layer = {.embed_dim = 16, .num_heads = 4, .num_kv_heads = 2, .feed_forward_dim = 24, .norm = norm},
        .num_layers = 2,
        .final_norm = attn::FinalNorm::present};
    const Stored<attn::Transformer, TypeParam> modules(config, config);
    EXPECT_EQ(modules.stored.encoder().layers()[0].forward(source, padding),
              modules.converted.encoder().layers()[0].forward(source, padding));
    EXPECT_EQ(modules.stored.decoder().layers()[1].forward(target, source, attn::Causal{}, padding),
              modules.converted.decoder().layers()[1].forward(target, source, attn::Causal{}, padding));
    EXPECT_EQ(modules.stored.forward(source, target, padding, attn::Causal{}, padding),
              modules.converted.forward(source, target, padding, attn::Causal{}, padding));
  }
}

TYPED_TEST(MixedStorage, PacksSequencesAsTheModuleOfFloatsDoes) {
  const Stored<attn::TransformerEncoderLayer, TypeParam> modules(
      attn::TransformerLayerConfig{.embed_dim = 8, .num_heads = 2, .feed_forward_dim = 12});
  const auto x = random_tensor<float, 2>({7, 8}, 8);
  const Index offsets[] = {0, 4, 7};
  attn::Tensor<float, 2> out(x.extents()), want(x.extents());
  modules.stored.forward_packed_into(x, {offsets}, out, attn::Causal{});
  modules.converted.forward_packed_into(x, {offsets}, want, attn::Causal{});
  EXPECT_EQ(out, want);
}

// The other way round: weights of float, rows of 16 bits, within two units in the last place of the largest
// value, the bounds of the conformance cases.
TYPED_TEST(MixedStorage, TakesRowsOfSixteenBitsOnWeightsOfFloat) {
  const Stored<attn::TransformerEncoderLayer, TypeParam> modules(
      attn::TransformerLayerConfig{.embed_dim = 16, .num_heads = 4, .feed_forward_dim = 24});
  const auto rounded = random_tensor<TypeParam, 3>({2, 6, 16}, 9);
  attn::Tensor<float, 3> exact(rounded.extents());
  copy(rounded.view(), exact.view());
  const auto narrow = modules.converted.forward(rounded);
  static_assert(std::is_same_v<attn::ElementOf<decltype(narrow)>, TypeParam>);
  attn::Tensor<float, 3> out(exact.extents());
  copy(narrow.view(), out.view());
  const double bound = std::is_same_v<TypeParam, Eigen::half> ? 2e-3 : 1.6e-2;
  const auto want = modules.converted.forward(exact);
  const double largest = attn_test::largest_difference(want, attn::Tensor<float, 3>(want.extents()));
  EXPECT_LT(attn_test::largest_difference(out, want), bound * largest);
  EXPECT_EQ(narrow, modules.stored.forward(rounded));
}

TYPED_TEST(MixedStorage, AllocatesNothingWhenWarm) {
  const Stored<attn::MultiHeadAttention, TypeParam> modules(
      attn::MultiHeadAttentionConfig{.embed_dim = 16,
                                     .num_heads = 4,
                                     .qk_norm = attn::NormKind::rms,
                                     .head_gates = true,
                                     .output_gate = true});
  const Stored<attn::TransformerEncoder, TypeParam> stacks(attn::TransformerConfig{
      .layer = {.embed_dim = 16, .num_heads = 4, .feed_forward_dim = 24}, .num_layers = 2});
  const auto x = random_tensor<float, 3>({2, 6, 16}, 10);
  attn::Tensor<float, 3> out(x.extents());
  attn::Workspace workspace;
  const auto run = [&] {
    modules.stored.forward_into(x, out, attn::Causal{}, {.workspace = &workspace});
    stacks.stored.forward_into(x, out, attn::Causal{}, {.workspace = &workspace});
  };
  run();
  EXPECT_EQ(attn_test::allocations_in(run), 0u);
}

TEST(MixedStorageRule, IsThatWeightsAndActivationsAccumulateInOneType) {
  EXPECT_TRUE((attn::takes_activations<float, Eigen::bfloat16>));
  EXPECT_TRUE((attn::takes_activations<Eigen::half, Eigen::bfloat16>));
  EXPECT_TRUE((attn::takes_activations<double, double>));
  EXPECT_FALSE((attn::takes_activations<double, float>));
  EXPECT_FALSE((attn::takes_activations<float, double>));
}

}  // namespace
