// tests/house/two_units/second.hpp - what the second translation unit sees of the library.
#pragma once
#include <typeinfo>

#include "attn/core/executor.hpp"

namespace attn_test {

const std::type_info& type_of_causal();
auto address_of_parallel_for() -> decltype(&attn::Sequential::parallel_for);

}  // namespace attn_test
