// Knows the library's types by name only.
#include "forward/user.hpp"

int main() {
  const float difference =
      attn_test::difference(*attn_test::attention(), attn_test::executor(), attn_test::workspace());
  return difference == 0 ? 0 : 1;
}
