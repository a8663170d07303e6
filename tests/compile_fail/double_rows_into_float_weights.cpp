// What is computed in double wants weights of double.
// must say: attn: activations of double need weights of double
#include "attn/modules/multi_head_attention.hpp"

#if defined(ATTN_TEST_MISTAKE)
using Rows = attn::Matrix<double>;
#else
using Rows = attn::Matrix<float>;
#endif

Rows attend(const attn::MultiHeadAttention<float>& layer, const Rows& x) { return layer.forward(x); }
