// tests/models/pytorch_test.cpp - PyTorch's names and layouts land where they belong, and errors name the
// weight.
#include "attn/models/pytorch.hpp"

#include <gtest/gtest.h>

#include <list>

#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::error_text;
using attn_test::random_tensor;

/// Weights as a caller has them in memory: matrices and vectors of chosen shapes, with values of their own.
class Weights {
 public:
  Weights& matrix(const std::string& name, Index rows, Index columns) {
    matrices_.push_back(random_tensor<double, 2>({rows, columns}, ++seed_));
    map.add(name, matrices_.back());
    return *this;
  }
  Weights& vector(const std::string& name, Index size) {
    vectors_.push_back(random_tensor<double, 1>({size}, ++seed_));
    map.add(name, vectors_.back());
    return *this;
  }
  Weights& attention(const std::string& prefix, Index dim) {
    return matrix(prefix + "in_proj_weight", 3 * dim, dim)
        .vector(prefix + "in_proj_bias", 3 * dim)
        .matrix(prefix + "out_proj.weight", dim, dim)
        .vector(prefix + "out_proj.bias", dim);
  }
  Weights& norm(const std::string& name, Index dim) {
    return vector(name + ".weight", dim).vector(name + ".bias", dim);
  }
  Weights& encoder_layer(const std::string& prefix, Index dim, Index hidden) {
    return attention(prefix + "self_attn.", dim)
        .matrix(prefix + "linear1.weight", hidden, dim)
        .vector(prefix + "linear1.bias", hidden)
        .matrix(prefix + "linear2.weight", dim, hidden)
        .vector(prefix + "linear2.bias", dim)
        .norm(prefix + "norm1", dim)
        .norm(prefix + "norm2", dim);
  }
  attn::Matrix<double> get(const std::string& name) const {
    const auto w = map.view<double, 2>(name);
    return Eigen::Map<const attn::Matrix<double>>(w.data(), w.extent(0), w.extent(1));
  }

  attn::WeightMap map{"test weights"};

 private:
  std::list<attn::Tensor<double, 2>> matrices_;
  std::list<attn::Tensor<double, 1>> vectors_;
  std::uint64_t seed_ = 0;
};

template <class T>
Eigen::Map<const attn::Matrix<T>> matrix_of(const attn::Linear<T>& linear) {
  const auto w = linear.weight().view();
  return {w.data(), w.extent(0), w.extent(1)};
}

TEST(LoadPyTorch, SplitsTheStackedProjectionsInTheOrderQueryKeyValue) {
  Weights weights;
  weights.attention("mha.", 6);
  attn::MultiHeadAttention<double> module({.embed_dim = 6, .num_heads = 2});
  load_pytorch(weights.map, module, "mha.");
  const attn::Matrix<double> stacked = weights.get("mha.in_proj_weight");
  EXPECT_EQ(matrix_of(module.q_proj()), stacked.topRows(6));
  EXPECT_EQ(matrix_of(module.k_proj()), stacked.middleRows(6, 6));
  EXPECT_EQ(matrix_of(module.v_proj()), stacked.bottomRows(6));
  EXPECT_EQ(matrix_of(module.out_proj()), weights.get("mha.out_proj.weight"));
  const auto biases = weights.map.view<double, 1>("mha.in_proj_bias");
  for (Index i = 0; i < 6; ++i) {
    EXPECT_EQ(module.q_proj().bias().view()(i), biases(i));
    EXPECT_EQ(module.v_proj().bias().view()(i), biases(12 + i));
  }
}

TEST(LoadPyTorch, TakesSeparateProjectionsForKeysAndValuesOfTheirOwnWidth) {
  Weights weights;
  weights.matrix("q_proj_weight", 6, 6).matrix("k_proj_weight", 6, 5).matrix("v_proj_weight", 6, 4);
  weights.matrix("out_proj.weight", 6, 6);
  attn::MultiHeadAttention<float> module(
      {.embed_dim = 6, .num_heads = 3, .kdim = 5, .vdim = 4, .bias = false});
  load_pytorch(weights.map, module);
  EXPECT_EQ(matrix_of(module.k_proj()), weights.get("k_proj_weight").cast<float>());
  EXPECT_EQ(matrix_of(module.v_proj()), weights.get("v_proj_weight").cast<float>());
}

TEST(LoadPyTorch, FillsStacksByLayerNumber) {
  Weights weights;
  weights.encoder_layer("model.layers.0.", 4, 8).encoder_layer("model.layers.1.", 4, 8).norm("model.norm", 4);
  const attn::TransformerLayerConfig layer{.embed_dim = 4, .num_heads = 2, .feed_forward_dim = 8};
  attn::TransformerEncoder<double> encoder({layer, 2, attn::FinalNorm::present});
  load_pytorch(weights.map, encoder, "model.");
  EXPECT_EQ(matrix_of(encoder.layers()[1].feed_forward().up_proj()),
            weights.get("model.layers.1.linear1.weight"));
  EXPECT_EQ(matrix_of(encoder.layers()[0].feed_forward().down_proj()),
            weights.get("model.layers.0.linear2.weight"));
  EXPECT_EQ(encoder.layers()[1].norm2().bias().view()(3),
            (weights.map.view<double, 1>("model.layers.1.norm2.bias")(3)));
  EXPECT_EQ(encoder.norm().weight().view()(2), (weights.map.view<double, 1>("model.norm.weight")(2)));
}

TEST(LoadPyTorch, NamesWhatIsWrongAndLeavesTheModuleAsItWas) {
  const attn::TransformerLayerConfig config{.embed_dim = 4, .num_heads = 2, .feed_forward_dim = 8};
  attn::TransformerEncoderLayer<double> layer(config);
  attn_test::randomize(layer, 1);
  const auto x = random_tensor<double, 3>({1, 3, 4}, 2);
  const auto before = layer.forward(x);

  Weights missing;
  missing.attention("self_attn.", 4);
  EXPECT_EQ(error_text<attn::FormatError>([&] { load_pytorch(missing.map, layer); }),
            "attn: test weights: weight 'linear1.weight' is missing");
  Weights wrong;
  wrong.encoder_layer("", 4, 9);
  EXPECT_EQ(error_text<attn::FormatError>([&] { load_pytorch(wrong.map, layer); }),
            "attn: test weights: weight 'linear1.weight' has shape [9, 4], not [8, 4]");
  Weights surplus;
  surplus.attention("", 4);
  attn::MultiHeadAttention<double> unbiased({.embed_dim = 4, .num_heads = 2, .bias = false});
  EXPECT_EQ(error_text<attn::FormatError>([&] { load_pytorch(surplus.map, unbiased); }),
            "attn: test weights: weight 'in_proj_bias' is there, but the module is configured without it");
  attn::MultiHeadAttention<double> partial({.embed_dim = 4, .num_heads = 2, .k_bias = false});
  EXPECT_EQ(error_text<attn::ShapeError>([&] { load_pytorch(surplus.map, partial); }),
            "attn: load_pytorch: in_proj_bias holds the biases of q, k and v, but the module has q_bias 1, "
            "k_bias 0 and v_bias 1");
  attn::TransformerEncoderLayer<double> gated(
      {.embed_dim = 4, .num_heads = 2, .feed_forward_dim = 8, .gating = attn::Gating::gated});
  Weights plain;
  plain.encoder_layer("", 4, 8);
  EXPECT_EQ(error_text<attn::ShapeError>([&] { load_pytorch(plain.map, gated); }),
            "attn: load_pytorch: PyTorch's layers have no gated feed-forward network");
  EXPECT_EQ(layer.forward(x), before);
}

TEST(LoadPyTorch, RejectsAWeightOfATypeThatIsNoNumber) {
  Weights weights;
  weights.matrix("in_proj_weight", 12, 4).vector("in_proj_bias", 12).vector("out_proj.bias", 4);
  const Eigen::Matrix<std::int32_t, 4, 4> integers = Eigen::Matrix<std::int32_t, 4, 4>::Zero();
  weights.map.add("out_proj.weight", integers);
  attn::MultiHeadAttention<float> module({.embed_dim = 4, .num_heads = 2});
  EXPECT_EQ(error_text<attn::FormatError>([&] { load_pytorch(weights.map, module); }),
            "attn: test weights: weight 'out_proj.weight' has type int32, which does not convert to float32");
}

}  // namespace
