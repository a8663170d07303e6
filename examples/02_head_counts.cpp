// MHA, GQA and MQA are one class: the head counts alone say which.
#include <cstdio>
#include <cstdlib>

#include "attn/attn.hpp"

namespace {

using attn::Index;

/// A copy of `mqa` with every key-value head written out `copies` times.
attn::MultiHeadAttention<float> repeat_heads(const attn::MultiHeadAttention<float>& mqa, Index copies) {
  attn::MultiHeadAttentionConfig config = mqa.config();
  config.num_kv_heads *= copies;
  attn::MultiHeadAttention<float> mha(config);
  mha.q_proj() = mqa.q_proj();
  mha.out_proj() = mqa.out_proj();
  const auto repeat = [&](const attn::Linear<float>& from, attn::Linear<float>& to) {
    const auto weight = from.weight().view();
    to.weight().edit([&](const attn::TensorView<float, 2>& rows) {
      for (Index r = 0; r < rows.extent(0); ++r) attn::copy(weight[r % weight.extent(0)], rows[r]);
    });
  };
  repeat(mqa.k_proj(), mha.k_proj());
  repeat(mqa.v_proj(), mha.v_proj());
  return mha;
}

}  // namespace

int main() {
  const Eigen::MatrixXf tokens = Eigen::MatrixXf::Random(10, 512);
  for (const Index num_kv_heads : {8, 2, 1}) {
    attn::MultiHeadAttention<float> layer({.embed_dim = 512, .num_heads = 8, .num_kv_heads = num_kv_heads});
    attn::xavier_uniform(layer, 1);
    const attn::Matrix<float> out = layer.forward(tokens, attn::Causal{});
    std::printf("8 query heads, %lld key-value heads: %7lld parameters, out(0, 0) = %.4f\n",
                static_cast<long long>(num_kv_heads), static_cast<long long>(attn::parameter_count(layer)),
                static_cast<double>(out(0, 0)));
  }

  // One shared key-value head is the same as eight equal ones.
  attn::MultiHeadAttention<float> mqa({.embed_dim = 512, .num_heads = 8, .num_kv_heads = 1});
  attn::xavier_uniform(mqa, 2);
  const attn::MultiHeadAttention<float> mha = repeat_heads(mqa, 8);
  const float difference = (mqa.forward(tokens) - mha.forward(tokens)).cwiseAbs().maxCoeff();
  std::printf("MQA against MHA with repeated heads: %.1e\n", static_cast<double>(difference));
  return difference < 1e-5F && attn::parameter_count(mha) == Index{4} * 512 * 513 ? EXIT_SUCCESS
                                                                                  : EXIT_FAILURE;
}
