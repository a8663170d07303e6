// Compiled as C++17, the default of many compilers: the first error says so, and no thousands follow.
// mistake: -std=c++17
// must say: attn: C\+\+20 is needed: compile with -std=c\+\+20
#include "attn/attn.hpp"

int main() {}
