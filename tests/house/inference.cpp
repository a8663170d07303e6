// The least program that runs a layer of multi-head attention: what the library adds to a program's size.
#include <cstdio>

#include "attn/masks/causal.hpp"
#include "attn/modules/multi_head_attention.hpp"

int main() {
  const attn::MultiHeadAttention<float> attention({.embed_dim = 512, .num_heads = 8});
  const attn::Matrix<float> x = attn::Matrix<float>::Ones(32, 512);
  std::printf("%g\n", static_cast<double>(attention.forward(x, attn::Causal{}).sum()));
}
