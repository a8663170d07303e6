// Double goes with double only; there is no silent conversion of queries or results.
// must say: AttentionInputs
#include "attn/ops/sdpa.hpp"

#if defined(ATTN_TEST_MISTAKE)
using Values = Eigen::MatrixXd;
#else
using Values = Eigen::MatrixXf;
#endif

attn::Matrix<float> attend(const Eigen::MatrixXf& q, const Values& v) { return attn::sdpa(q, q, v); }
