// Built with -fno-exceptions: results are right, and an error prints its text and aborts.
#include <csignal>
#include <cstdlib>

#include "attn/interop/eigen_thread_pool.hpp"
#include "attn/interop/openmp.hpp"
#include "house/variants/attention_is_right.hpp"

#if defined(__cpp_exceptions)
#error "this program is about -fno-exceptions"
#endif

int main() {
  if (!attn_test::attention_is_right()) return 1;
  std::signal(SIGABRT, [](int) { std::_Exit(0); });
  const attn::Matrix<float> q(6, 8), k(9, 4);
  (void)attn::sdpa(q, k, k);
  return 1;
}
