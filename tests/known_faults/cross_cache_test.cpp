// Faults that users of other libraries have reported about caches of cross-attention, one test per report.
#include <gtest/gtest.h>

#include <vector>

#include "attn/models/encoder_decoder.hpp"
#include "support/attention.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::distance;
using attn_test::same_bits;
using Ids = Eigen::Matrix<Index, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Model = attn::EncoderDecoder<double>;

class CrossCacheFault : public testing::Test {
 protected:
  CrossCacheFault() { attn_test::randomize(model, 3); }

  static attn::EncoderDecoderConfig config() {
    attn::EncoderDecoderConfig c;
    const attn::TransformerLayerConfig layer{.embed_dim = 8, .num_heads = 2, .feed_forward_dim = 12};
    c.vocab_size = 9;
    c.encoder = c.decoder = {layer, 2};
    c.max_len = 100;
    return c;
  }
  Model::Cache<> begun(const Ids& ids, attn::EncoderDecoderOptions options = {}) const {
    auto cache = model.make_cache({.batch = ids.rows(), .max_len = 6}, 8);
    model.begin(ids, cache, options);
    return cache;
  }
  attn::Matrix<double> step(Model::Cache<>& cache, const Ids& ids) const {
    attn::Matrix<double> logits(ids.rows(), 9);
    model.forward_into(ids, cache, logits);
    return logits;
  }

  Model model{config()};
  const Ids source{{1, 5, 3, 8, 2}, {7, 7, 1, 0, 4}}, other_source{{2, 2, 6, 1, 0}, {3, 8, 8, 5, 1}},
      target{{0, 4, 6}, {0, 2, 8}};
};

TEST_F(CrossCacheFault, B43_StepsWithACacheFilledOnceAreAsWithoutOne) {
  auto cache = begun(source);
  const auto whole = model.forward(source, target);
  for (Index i = 0; i < 3; ++i) {
    const auto logits = step(cache, target.col(i));
    for (Index b = 0; b < 2; ++b)
      EXPECT_LT(distance(attn::Matrix<double>(logits.row(b)), whole.view()[b].slice(0, {i, i + 1})), 1e-12);
    for (const auto& layer : cache.source) EXPECT_EQ(layer.longest(), 5) << "nothing is appended again";
  }
}

TEST_F(CrossCacheFault, B43_AnotherSourceIsAnErrorOrANewResultAndNeverStale) {
  auto cache = begun(source);
  const auto before = step(cache, target.leftCols(1));
  EXPECT_EQ(attn_test::error_text<std::invalid_argument>([&] { model.begin(other_source, cache); }),
            "attn: EncoderDecoder::begin: the cache has a source; reset() it before the next");
  EXPECT_EQ(cache.lengths()[0], 1);
  cache.reset();
  model.begin(other_source, cache);
  auto fresh = begun(other_source);
  const auto after = step(cache, target.leftCols(1));
  EXPECT_TRUE(same_bits(after, step(fresh, target.leftCols(1))));
  EXPECT_GT(distance(after, before), 1e-3);
}

TEST_F(CrossCacheFault, B43_BeamsTakeTheirSourcesAlong) {
  auto cache = begun(source), crossed = begun(Ids(source.colwise().reverse()));
  (void)step(cache, target.leftCols(2));
  (void)step(crossed, Ids(target.leftCols(2).colwise().reverse()));
  cache.reorder(std::vector<Index>{1, 0});
  EXPECT_TRUE(same_bits(step(cache, target.col(2)), step(crossed, target.col(2))));
}

TEST_F(CrossCacheFault, B43_PaddingOfTheSourceChangesNothing) {
  Ids padded(2, 8);
  padded << source, Ids::Constant(2, 3, 6);
  const std::vector<Index> lengths{5, 5};
  auto cache = begun(source), with_padding = begun(padded, {.lengths = lengths});
  EXPECT_LT(distance(step(cache, target), step(with_padding, target)), 1e-12);
}

}  // namespace
