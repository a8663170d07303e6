// The pairing of a rotary embedding has no default: the wrong one gives wrong numbers without an error.
// must say: Required<.*RopePairing>
#include "attn/ops/rope.hpp"

attn::RopeConfig make() {
#if defined(ATTN_TEST_MISTAKE)
  return attn::RopeConfig{.head_dim = 64};
#else
  return attn::RopeConfig{.pairing = attn::RopePairing::half, .head_dim = 64};
#endif
}
