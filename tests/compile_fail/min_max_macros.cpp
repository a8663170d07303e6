// windows.h defines min and max as macros, unless it is told not to.
// must say: attn: min and max must not be macros.*NOMINMAX
#include <vector>

#if defined(ATTN_TEST_MISTAKE)
#define max(a, b) (((a) > (b)) ? (a) : (b))
#endif

#include "attn/core/config.hpp"

int main() {}
