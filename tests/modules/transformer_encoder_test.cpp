// tests/modules/transformer_encoder_test.cpp - encoder layers against their definition, packed, in place, on
// any executor.
#include "attn/modules/transformer_encoder.hpp"

#include <gtest/gtest.h>

#include <map>

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
attn::TransformerEncoder<T> random_encoder(attn::NormPlacement norm,
                                           attn::Gating gating = attn::Gating::none) {
  attn::TransformerEncoder<T> encoder({.layer = {.embed_dim = 16,
                                                 .num_heads = 4,
                                                 .feed_forward_dim = 24,
                                                 .activation = attn::Activation::gelu,
                                                 .gating = gating,
                                                 .norm = norm},
                                       .num_layers = 2,
                                       .final_norm = attn::FinalNorm::present});
  attn_test::randomize(encoder, 3);
  return encoder;
}

using Values = attn::Tensor<double, 3>;

Values sum(const Values& a, const Values& b) {
  Values c = a;
  for (Index i = 0; i < c.size(); ++i) c.data()[i] += b.data()[i];
  return c;
}
Values by_definition(const attn::TransformerEncoderLayer<double>& layer, const Values& x) {
  const auto attention = [&](const Values& y) { return layer.self_attention().forward(y, attn::Causal{}); };
  const auto network = [&](const Values& y) { return layer.feed_forward().forward(y); };
  if (layer.config().norm == attn::NormPlacement::post) {
    const Values y = layer.norm1().forward(sum(x, attention(x)));
    return layer.norm2().forward(sum(y, network(y)));
  }
  const Values y = sum(x, attention(layer.norm1().forward(x)));
  return sum(y, network(layer.norm2().forward(y)));
}

TEST(TransformerEncoder, IsItsLayersOneAfterTheOtherAndANorm) {
  for (const auto norm : {attn::NormPlacement::post, attn::NormPlacement::pre}) {
    const auto encoder = random_encoder<double>(norm);
    const auto x = random_tensor<double, 3>({2, 7, 16}, 1);
    const Values want =
        encoder.norm().forward(by_definition(encoder.layers()[1], by_definition(encoder.layers()[0], x)));
    EXPECT_LT(attn_test::largest_difference(encoder.forward(x, attn::Causal{}), want), 1e-12);
  }
}

TEST(TransformerEncoder, GatedFeedForwardMultipliesTheActivatedGate) {
  attn::FeedForward<double> network({.embed_dim = 6,
                                     .hidden_dim = 10,
                                     .activation = attn::Activation::silu,
                                     .gating = attn::Gating::gated});
  attn_test::randomize(network, 4);
  const auto x = random_tensor<double, 3>({2, 3, 6}, 2);
  auto hidden = attn::silu(network.gate_proj().forward(x));
  const auto up = network.up_proj().forward(x);
  for (Index i = 0; i < hidden.size(); ++i) hidden.data()[i] *= up.data()[i];
  EXPECT_LT(attn_test::largest_difference(network.forward(x), network.down_proj().forward(hidden)), 1e-13);
}

TEST(TransformerEncoder, TreatsPackedSequencesLikeEachAlone) {
  const auto encoder = random_encoder<float>(attn::NormPlacement::post);
  const Index lengths[] = {3, 0, 9, 1};
  const Index offsets[] = {0, 3, 3, 12, 13};
  const auto rows = random_tensor<float, 2>({13, 16}, 5);
  attn::Tensor<float, 2> packed({13, 16});
  encoder.forward_packed_into(rows, {offsets}, packed, attn::Causal{});
  attn::Tensor<float, 3> padded({4, 9, 16});
  for (Index b = 0; b < 4; ++b)
    for (Index i = 0; i < lengths[b]; ++i) copy(rows.view()[offsets[b] + i], padded.view()[b][i]);
  const auto out = encoder.forward(padded, attn::Causal{} & attn::KeyPadding{lengths});
  for (Index b = 0; b < 4; ++b)
    for (Index i = 0; i < lengths[b]; ++i)
      for (Index c = 0; c < 16; ++c) EXPECT_NEAR(packed(offsets[b] + i, c), out(b, i, c), 1e-5);
}

TEST(TransformerEncoder, WorksInPlaceWithTheSameBitsOnEveryExecutorAndWithoutAllocation) {
  for (const auto norm : {attn::NormPlacement::post, attn::NormPlacement::pre}) {
    const auto encoder = random_encoder<float>(norm, attn::Gating::gated);
    const auto x = random_tensor<float, 3>({3, 20, 16}, 6);
    const auto want = encoder.forward(x);
    attn::ThreadPool pool(3);
    EXPECT_EQ(encoder.forward(x, attn::NoMask{}, {.executor = pool}), want);
    attn::Tensor<float, 3> y = x;
    attn::Workspace workspace;
    encoder.forward_into(y, y, attn::NoMask{}, {.workspace = &workspace});
    EXPECT_EQ(y, want);
    EXPECT_EQ(attn_test::allocations_in(
                  [&] { encoder.forward_into(x, y, attn::NoMask{}, {.workspace = &workspace}); }),
              0u);
  }
}

TEST(TransformerEncoder, OfThePaperHasThePapersNumberOfParameters) {
  // Per layer 4 (d^2 + d) for attention, 2 d f + d + f for the network, 4 d for the norms.
  const attn::TransformerEncoderLayer<float> base(attn::transformer_base().layer);
  EXPECT_EQ(parameter_count(base), 4 * (512 * 512 + 512) + 2 * 512 * 2048 + 512 + 2048 + 4 * 512);
  const attn::TransformerEncoderLayer<float> big(attn::transformer_big().layer);
  EXPECT_EQ(parameter_count(big), 4 * (1024 * 1024 + 1024) + 2 * 1024 * 4096 + 1024 + 4096 + 4 * 1024);
  EXPECT_EQ(attn::transformer_base().num_layers, 6);
  EXPECT_EQ(attn::transformer_big().layer.num_heads, 16);
}

TEST(TransformerEncoder, InitialisesTheSameValuesFromTheSameSeedEverywhere) {
  auto a = random_encoder<float>(attn::NormPlacement::post), b = a;
  attn::xavier_uniform(a, 42);
  attn::xavier_uniform(b, 42);
  const auto& query = a.layers()[1].self_attention().q_proj().weight();
  for (Index i = 0; i < 16; ++i)
    EXPECT_EQ(query.view()(3, i), b.layers()[1].self_attention().q_proj().weight().view()(3, i));
  const double bound = std::sqrt(6.0 / 32);
  double largest = 0, mean = 0;
  for (Index i = 0; i < query.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(query.data()[i])));
    mean += static_cast<double>(query.data()[i]) / static_cast<double>(query.size());
  }
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.9 * bound);
  EXPECT_NEAR(mean, 0, 0.1 * bound);
  EXPECT_NE(query.view()(0, 0), a.layers()[0].self_attention().q_proj().weight().view()(0, 0));
}

template <class T>
class SixteenBitEncoder : public testing::Test {};
using SixteenBits = testing::Types<Eigen::half, Eigen::bfloat16>;
TYPED_TEST_SUITE(SixteenBitEncoder, SixteenBits);

TYPED_TEST(SixteenBitEncoder, DiffersFromFloatByTheRoundingOfItsElements) {
  using T = TypeParam;
  const auto encoder = random_encoder<T>(attn::NormPlacement::post, attn::Gating::gated);
  auto wide = random_encoder<float>(attn::NormPlacement::post, attn::Gating::gated);
  std::map<std::string, const T*> values;
  for_each_parameter(encoder, [&](const std::string& path, const auto& p) { values[path] = p.data(); });
  for_each_parameter(wide, [&](const std::string& path, auto& parameter) {
    parameter.edit([&](const auto& view) {
      for (Index i = 0; i < view.size(); ++i) view.data()[i] = static_cast<float>(values.at(path)[i]);
    });
  });
  const auto x = random_tensor<T, 3>({2, 9, 16}, 7);
  attn::Tensor<float, 3> x_wide(x.extents()), out(x.extents());
  copy(attn::TensorView<const T, 3>(x.view()), x_wide.view());
  copy(attn::TensorView<const T, 3>(encoder.forward(x, attn::Causal{}).view()), out.view());
  const double unit = std::is_same_v<T, Eigen::half> ? 1.0 / 1024 : 1.0 / 128;
  EXPECT_LT(attn_test::largest_difference(out, wide.forward(x_wide, attn::Causal{})), 16 * unit);
}

TEST(TransformerEncoder, NamesItsParametersByDottedPaths) {
  const auto encoder = random_encoder<float>(attn::NormPlacement::pre);
  std::vector<std::string> names;
  for_each_parameter(encoder, [&](const std::string& path, const auto&) { names.push_back(path); });
  EXPECT_EQ(names.front(), "layers.0.self_attention.q_proj.weight");
  EXPECT_EQ(names.back(), "norm.bias");
  EXPECT_EQ(names.size(), 2u * (8 + 4 + 4) + 2);
}

TEST(TransformerEncoder, NamesWhatDoesNotFit) {
  const auto encoder = random_encoder<float>(attn::NormPlacement::pre);
  const attn::Tensor<float, 3> x({2, 3, 15});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { (void)encoder.layers()[0].self_attention().forward(x); }),
            "attn: MultiHeadAttention: query [2, 3, 15] does not have embed_dim 16");
  attn::Tensor<float, 2> rows({5, 16});
  const Index offsets[] = {0, 4};
  EXPECT_EQ(
      error_text<attn::ShapeError>([&] { encoder.forward_packed_into(rows, {offsets}, rows); }),
      "attn: PackedSequences: the offsets run from 0 to 4; they must start at 0 and end at the number of "
      "rows, 5");
  EXPECT_EQ(error_text<attn::ShapeError>([&] { encoder.forward_packed_into(rows, {}, rows); }),
            "attn: PackedSequences: there are no offsets; they start at 0");
  const Index back[] = {0, 4, 2, 5};
  EXPECT_EQ(error_text<attn::ShapeError>([&] { encoder.forward_packed_into(rows, {back}, rows); }),
            "attn: PackedSequences: sequence 1 ends at row 2, before its begin 4");
  const Index three[] = {0, 2, 4, 5}, two_lengths[] = {2, 2}, too_long[] = {2, 3, 1}, negative[] = {2, 2, -1};
  EXPECT_EQ(error_text<attn::ShapeError>([&] {
              encoder.forward_packed_into(rows, {three, two_lengths}, rows);
            }),
            "attn: PackedSequences: 2 key lengths for 3 sequences");
  EXPECT_EQ(error_text<attn::ShapeError>([&] {
              encoder.forward_packed_into(rows, {three, too_long}, rows);
            }),
            "attn: PackedSequences: sequence 1 has 2 rows and key length 3");
  EXPECT_EQ(error_text<attn::ShapeError>([&] {
              encoder.forward_packed_into(rows, {three, negative}, rows);
            }),
            "attn: PackedSequences: sequence 2 has 1 rows and key length -1");
  EXPECT_EQ(error_text<attn::ShapeError>([] {
              attn::TransformerEncoder<float>({.layer = {.embed_dim = 4, .num_heads = 2}, .num_layers = -1});
            }),
            "attn: TransformerEncoder: num_layers -1 is negative");
}

}  // namespace
