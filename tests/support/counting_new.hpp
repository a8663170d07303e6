// tests/support/counting_new.hpp - how many allocations the code under test has made.
#pragma once
#include <cstddef>

namespace attn_test {

/// Allocations of this process so far, from any thread: calls of any operator new and, where the linker can
/// wrap malloc and its kin (Eigen's matrices use them), calls of those from the program's own code.
std::size_t allocations();

/// Allocations while `f` runs.
template <class F>
std::size_t allocations_in(F&& f) {
  const std::size_t before = allocations();
  f();
  return allocations() - before;
}

}  // namespace attn_test
