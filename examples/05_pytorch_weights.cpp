// Weights of a PyTorch layer: from a file that torch.save / safetensors wrote, or from memory as here.
//
//   safetensors.torch.save_file(nn.MultiheadAttention(4, 2).state_dict(), "mha.safetensors")
//   attn::load_pytorch(attn::open_safetensors("mha.safetensors").weights, mha);
#include <array>
#include <cstdio>

#include "attn/attn.hpp"
#include "attn/models/pytorch.hpp"

int main() {
  // The state_dict of nn.MultiheadAttention(embed_dim=4, num_heads=2): q, k and v stacked in in_proj.
  std::array<float, 12 * 4> in_proj_weight{};
  std::array<float, 4 * 4> out_proj_weight{};
  for (std::size_t i = 0; i < in_proj_weight.size(); ++i)
    in_proj_weight[i] = static_cast<float>((5 * i + 1) % 17) / 8 - 1;
  for (std::size_t i = 0; i < out_proj_weight.size(); ++i)
    out_proj_weight[i] = static_cast<float>((7 * i + 2) % 17) / 8 - 1;
  const std::array<float, 12> in_proj_bias{0.5F};
  const std::array<float, 4> out_proj_bias{0.25F};

  attn::WeightMap weights;  // borrows; open_safetensors(path).weights reads a file
  weights.add("in_proj_weight", attn::TensorView<const float, 2>(in_proj_weight.data(), {12, 4}));
  weights.add("in_proj_bias", attn::TensorView<const float, 1>(in_proj_bias.data(), {12}));
  weights.add("out_proj.weight", attn::TensorView<const float, 2>(out_proj_weight.data(), {4, 4}));
  weights.add("out_proj.bias", attn::TensorView<const float, 1>(out_proj_bias.data(), {4}));

  attn::MultiHeadAttention<float> mha({.embed_dim = 4, .num_heads = 2});
  attn::load_pytorch(weights, mha);

  attn::Matrix<float> x(3, 4);
  x << 1, 2, 3, 4, -1, 0, 1, 2, 0.5F, -0.5F, 0.25F, 1;
  const attn::Matrix<float> out = mha.forward(x);
  attn::Matrix<float> torch(3, 4);  // what PyTorch printed for the same layer and input
  torch << 1.0734835F, -2.5859231F, 0.3585209F, 0.5445147F, 1.1384537F, -2.4293723F, 0.3063681F, 0.6305544F,
      1.3234365F, -2.4280729F, 0.2722666F, 0.8702512F;
  const float difference = (out - torch).cwiseAbs().maxCoeff();
  std::printf("largest difference to PyTorch: %.1e\n", static_cast<double>(difference));
  return difference < 1e-5F ? 0 : 1;
}
