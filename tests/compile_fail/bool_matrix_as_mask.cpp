// A bare tensor does not say whether true means "seen": only KeepMask and DropMask do.
// must say: Mask
#include "attn/masks/tensor_mask.hpp"
#include "attn/ops/sdpa.hpp"

using Flags = Eigen::Matrix<bool, Eigen::Dynamic, Eigen::Dynamic>;

attn::Matrix<float> attend(const Eigen::MatrixXf& q, const Flags& seen) {
#if defined(ATTN_TEST_MISTAKE)
  return attn::sdpa(q, q, q, seen);
#else
  return attn::sdpa(q, q, q, attn::KeepMask(seen));
#endif
}
