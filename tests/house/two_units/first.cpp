// Two translation units that hold every header of the library, in one program: a definition that is not
// inline is an error of the linker, and what is inline exists once.
#include "all_headers.hpp"
#include "two_units/second.hpp"

int main() {
  const attn::ExecutorRef here;
  const bool same_types = typeid(attn::Causal) == attn_test::type_of_causal();
  const bool same_function = &attn::Sequential::parallel_for == attn_test::address_of_parallel_for();
  return here.concurrency() == 1 && same_types && same_function ? 0 : 1;
}
