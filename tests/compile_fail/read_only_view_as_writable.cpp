// A read-only view never becomes a writable one.
// must say: TensorView<const float, 2>
#include "attn/core/tensor_view.hpp"

#if defined(ATTN_TEST_MISTAKE)
using Result = attn::TensorView<float, 2>;
#else
using Result = attn::TensorView<const float, 2>;
#endif

Result pass_on(const attn::TensorView<const float, 2>& view) { return view; }
