// Numbers are a bias only where the caller says so.
// must say: Mask
#include "attn/masks/tensor_mask.hpp"
#include "attn/ops/sdpa.hpp"

attn::Matrix<float> attend(const Eigen::MatrixXf& q, const Eigen::MatrixXf& bias) {
#if defined(ATTN_TEST_MISTAKE)
  return attn::sdpa(q, q, q, bias);
#else
  return attn::sdpa(q, q, q, attn::AdditiveBias(bias));
#endif
}
