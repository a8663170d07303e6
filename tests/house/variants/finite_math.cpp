// Built with -ffast-math and ATTN_ALLOW_FINITE_MATH: results for finite inputs are right.
#include "house/variants/attention_is_right.hpp"

#if !defined(__FAST_MATH__)
#error "this program is about -ffast-math"
#endif

int main() { return attn_test::attention_is_right() ? 0 : 1; }
