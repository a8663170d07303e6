#include "two_units/second.hpp"

#include "all_headers.hpp"

const std::type_info& attn_test::type_of_causal() { return typeid(attn::Causal); }
auto attn_test::address_of_parallel_for() -> decltype(&attn::Sequential::parallel_for) {
  return &attn::Sequential::parallel_for;
}
