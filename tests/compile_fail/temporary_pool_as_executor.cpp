// An executor is borrowed: a temporary would be gone before it is used.
// must say: lvalue
#include "attn/core/executor.hpp"

attn::ExecutorRef choose(attn::Sequential& mine) {
#if defined(ATTN_TEST_MISTAKE)
  return attn::ExecutorRef(attn::Sequential(mine));
#else
  return attn::ExecutorRef(mine);
#endif
}
