#include "common/head_cost.hpp"

#include "attn/core/error.hpp"

namespace attn::examples {

std::vector<HeadCounts> head_sweep(const HeadCounts& base, const std::vector<Index>& head_counts) {
  std::vector<HeadCounts> sweep;
  for (const Index heads : head_counts) {
    check<std::invalid_argument>(heads >= 1 && base.d_model % heads == 0, "head_sweep: d_model ",
                                 base.d_model, " does not divide into ", heads, " heads");
    for (Index kv_heads = heads; kv_heads >= 1; --kv_heads) {
      if (heads % kv_heads != 0) continue;
      HeadCounts counts = base;
      counts.num_heads = heads;
      counts.num_kv_heads = kv_heads;
      sweep.push_back(counts);
    }
  }
  return sweep;
}

}  // namespace attn::examples
