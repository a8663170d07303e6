// A file that uses the library as a program does; tools/isa_symbols.sh compiles it for two instruction sets.
#include "attn/attn.hpp"
#include "attn/core/thread_pool.hpp"

attn::Matrix<float> attend_float(const attn::Matrix<float>& q) { return attn::sdpa(q, q, q, attn::Causal{}); }
attn::Matrix<double> attend_double(const attn::Matrix<double>& q) {
  attn::ThreadPool pool(2);
  return attn::sdpa(q, q, q, attn::NoMask{}, {.executor = pool});
}
