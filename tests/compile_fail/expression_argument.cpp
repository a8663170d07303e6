// An Eigen expression that is not evaluated has no storage to look at.
// must say: TensorLike
#include "attn/ops/sdpa.hpp"

attn::Matrix<float> attend(const Eigen::MatrixXf& q) {
#if defined(ATTN_TEST_MISTAKE)
  return attn::sdpa(q * 2.0F, q, q);
#else
  return attn::sdpa((q * 2.0F).eval(), q, q);
#endif
}
