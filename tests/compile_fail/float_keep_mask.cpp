// KeepMask and DropMask hold flags, not numbers.
// must say: KeepMask
#include "attn/masks/tensor_mask.hpp"

#if defined(ATTN_TEST_MISTAKE)
using Flag = float;
#else
using Flag = bool;
#endif

bool sees(const Eigen::Matrix<Flag, Eigen::Dynamic, Eigen::Dynamic>& flags) {
  return attn::KeepMask(flags).allows({}, {});
}
