// Attention in a project that knows attn only as a package: uniform weights give the mean of the values.
#include <attn/attn.hpp>

int main() {
  const attn::Matrix<float> q = attn::Matrix<float>::Zero(3, 4);
  const attn::Matrix<float> v = attn::Matrix<float>::Random(5, 2);
  const attn::Matrix<float> out = attn::sdpa(q, attn::Matrix<float>::Ones(5, 4).eval(), v);
  return (out.rowwise() - v.colwise().mean()).cwiseAbs().maxCoeff() < 1e-6F ? 0 : 1;
}
