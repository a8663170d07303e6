// A transformer block written out: x = x + attn(norm1(x)); x = x + ffn(norm2(x)). And the class that is it.
#include <cstdio>

#include "attn/attn.hpp"

int main() {
  attn::TransformerEncoderLayer<float> layer({.embed_dim = 128,
                                              .num_heads = 8,
                                              .num_kv_heads = 2,
                                              .feed_forward_dim = 512,
                                              .activation = attn::Activation::gelu,
                                              .norm = attn::NormPlacement::pre});
  attn::xavier_uniform(layer, 1);

  attn::Matrix<float> x = attn::Matrix<float>::Random(20, 128);  // 20 tokens
  const attn::Matrix<float> expected = layer.forward(x, attn::Causal{});

  x += layer.self_attention().forward(layer.norm1().forward(x), attn::Causal{});
  x += layer.feed_forward().forward(layer.norm2().forward(x));

  const float difference = (x - expected).cwiseAbs().maxCoeff() / expected.cwiseAbs().maxCoeff();
  std::printf("block of %lld parameters, written out against the class: %.1e\n",
              static_cast<long long>(attn::parameter_count(layer)), static_cast<double>(difference));
  return difference < 1e-5F ? 0 : 1;
}
