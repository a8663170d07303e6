// What lies behind attn::io compiles with the target's own usage requirements.
#include <attn/io/safetensors.hpp>

int main() { return 0; }
