// tests/fuzz/require.hpp - what a fuzz target says of input that was accepted.
#pragma once
#include <cstdlib>

namespace attn_fuzz {

/// Ends the program where libFuzzer sees it, whatever the build thinks of assertions.
inline void require(bool ok) {
  if (!ok) std::abort();
}

}  // namespace attn_fuzz
