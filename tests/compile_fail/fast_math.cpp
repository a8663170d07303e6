// Masked scores are -inf: a compiler that assumes there is no infinity is refused, unless it is allowed.
// mistake: -ffast-math
// must say: attn: -ffast-math/-ffinite-math-only lets the compiler assume that no value is infinite or NaN
// must say: define ATTN_ALLOW_FINITE_MATH to accept right results
#include "attn/core/config.hpp"

int main() {}
