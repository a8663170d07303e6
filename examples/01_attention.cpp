// Attention in five lines, on Eigen matrices.
#include <Eigen/Core>
#include <cstdio>

#include "attn/attn.hpp"

int main() {
  const Eigen::MatrixXf q = Eigen::MatrixXf::Random(4, 64);  // 4 queries, 6 keys, head_dim 64
  const Eigen::MatrixXf k = Eigen::MatrixXf::Random(6, 64);
  const Eigen::MatrixXf v = Eigen::MatrixXf::Random(6, 32);
  const attn::Matrix<float> out = attn::sdpa(q, k, v);  // softmax(q k^T / sqrt(64)) v

  // The same by the formula, with the full matrix of weights.
  Eigen::MatrixXf weights = (q * k.transpose() / 8).array().exp();
  weights.array().colwise() /= weights.rowwise().sum().array();
  const float difference = (out - weights * v).cwiseAbs().maxCoeff();
  std::printf("out is %lld x %lld, largest difference to the formula %.1e\n",
              static_cast<long long>(out.rows()), static_cast<long long>(out.cols()),
              static_cast<double>(difference));
  return difference < 1e-6F ? 0 : 1;
}
