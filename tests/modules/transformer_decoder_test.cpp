// tests/modules/transformer_decoder_test.cpp - decoder layers against their definition, and the whole
// transformer.
#include "attn/modules/transformer_decoder.hpp"

#include <gtest/gtest.h>

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
using Values = attn::Tensor<double, 3>;

attn::TransformerConfig config(attn::NormPlacement norm) {
  return {.layer = {.embed_dim = 12, .num_heads = 3, .feed_forward_dim = 20, .norm = norm},
          .num_layers = 2,
          .final_norm = attn::FinalNorm::present};
}

Values sum(const Values& a, const Values& b) {
  Values c = a;
  for (Index i = 0; i < c.size(); ++i) c.data()[i] += b.data()[i];
  return c;
}

Values by_definition(const attn::TransformerDecoderLayer<double>& layer, const Values& x,
                     const Values& memory, const attn::KeyPadding& padding) {
  const auto own = [&](const Values& y) { return layer.self_attention().forward(y, attn::Causal{}); };
  const auto cross = [&](const Values& y) {
    return layer.cross_attention().forward(y, memory, memory, padding);
  };
  const auto network = [&](const Values& y) { return layer.feed_forward().forward(y); };
  if (layer.config().norm == attn::NormPlacement::post) {
    const Values y = layer.norm1().forward(sum(x, own(x)));
    const Values z = layer.norm2().forward(sum(y, cross(y)));
    return layer.norm3().forward(sum(z, network(z)));
  }
  const Values y = sum(x, own(layer.norm1().forward(x)));
  const Values z = sum(y, cross(layer.norm2().forward(y)));
  return sum(z, network(layer.norm3().forward(z)));
}

TEST(TransformerDecoder, IsItsLayersOneAfterTheOtherAndANorm) {
  for (const auto norm : {attn::NormPlacement::post, attn::NormPlacement::pre}) {
    attn::TransformerDecoder<double> decoder(config(norm));
    attn_test::randomize(decoder, 1);
    const auto x = random_tensor<double, 3>({2, 5, 12}, 2), memory = random_tensor<double, 3>({2, 8, 12}, 3);
    const Index lengths[] = {8, 3};
    const attn::KeyPadding padding{lengths};
    const Values first = by_definition(decoder.layers()[0], x, memory, padding);
    const Values want = decoder.norm().forward(by_definition(decoder.layers()[1], first, memory, padding));
    EXPECT_LT(attn_test::largest_difference(decoder.forward(x, memory, attn::Causal{}, padding), want),
              1e-12);
  }
}

TEST(Transformer, DecodesWhatItEncodes) {
  attn::Transformer<double> transformer(config(attn::NormPlacement::pre), config(attn::NormPlacement::pre));
  attn_test::randomize(transformer, 4);
  const auto source = random_tensor<double, 3>({2, 6, 12}, 5),
             target = random_tensor<double, 3>({2, 4, 12}, 6);
  const Index lengths[] = {6, 2};
  const attn::KeyPadding padding{lengths};
  const Values memory = transformer.encoder().forward(source, padding);
  EXPECT_EQ(transformer.forward(source, target, padding, attn::Causal{}, padding),
            transformer.decoder().forward(target, memory, attn::Causal{}, padding));
}

TEST(Transformer, ChangesNothingWhenThePaddingOfTheSourceChanges) {
  attn::Transformer<float> transformer(config(attn::NormPlacement::post), config(attn::NormPlacement::post));
  attn_test::randomize(transformer, 7);
  auto source = random_tensor<float, 3>({1, 6, 12}, 8);
  const auto target = random_tensor<float, 3>({1, 4, 12}, 9);
  const Index lengths[] = {4};
  const attn::KeyPadding padding{lengths};
  const auto before = transformer.forward(source, target, padding, attn::Causal{}, padding);
  for (Index c = 0; c < 12; ++c) source(0, 5, c) = 1e6F;
  EXPECT_EQ(transformer.forward(source, target, padding, attn::Causal{}, padding), before);
}

TEST(TransformerDecoder, HasTheSameBitsOnEveryExecutorAndAllocatesNothingWhenWarm) {
  attn::TransformerDecoder<float> decoder(config(attn::NormPlacement::pre));
  attn_test::randomize(decoder, 10);
  const auto x = random_tensor<float, 3>({3, 20, 12}, 11), memory = random_tensor<float, 3>({3, 31, 12}, 12);
  const auto want = decoder.forward(x, memory, attn::Causal{});
  attn::ThreadPool pool(3);
  EXPECT_EQ(decoder.forward(x, memory, attn::Causal{}, attn::NoMask{}, {.executor = pool}), want);
  attn::Tensor<float, 3> out(x.extents());
  attn::Workspace workspace;
  const auto run = [&] {
    decoder.forward_into(x, memory, out, attn::Causal{}, attn::NoMask{}, {.workspace = &workspace});
  };
  run();
  EXPECT_EQ(out, want);
  EXPECT_EQ(attn_test::allocations_in(run), 0u);
}

TEST(TransformerDecoder, NamesWhatDoesNotFit) {
  attn::TransformerDecoder<float> decoder(config(attn::NormPlacement::pre));
  attn::Tensor<float, 3> x({2, 3, 12});
  EXPECT_EQ(error_text<std::invalid_argument>([&] { decoder.forward_into(x, x, x); }),
            "attn: TransformerDecoder forward_into: out [2, 3, 12] overlaps memory [2, 3, 12]");
  auto narrow = config(attn::NormPlacement::pre);
  narrow.layer.embed_dim = 6;
  EXPECT_EQ(error_text<attn::ShapeError>(
                [&] { attn::Transformer<float>(config(attn::NormPlacement::pre), narrow); }),
            "attn: Transformer: encoder and decoder differ in embed_dim: 12 and 6");
  auto fewer_than_none = config(attn::NormPlacement::pre);
  fewer_than_none.num_layers = -2;
  EXPECT_EQ(error_text<attn::ShapeError>([&] { attn::TransformerDecoder<float> none(fewer_than_none); }),
            "attn: TransformerDecoder: num_layers -2 is negative");
}

}  // namespace
