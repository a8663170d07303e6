// The output must be writable.
// must say: WritableTensor
#include "attn/ops/sdpa.hpp"

#if defined(ATTN_TEST_MISTAKE)
using Output = const Eigen::MatrixXf;
#else
using Output = Eigen::MatrixXf;
#endif

void attend(const Eigen::MatrixXf& q, Output& out) { attn::sdpa_into(q, q, q, out); }
