// attn/attn.hpp - everything that needs only Eigen/Core. Include by themselves: attn/core/thread_pool.hpp
// (<thread> is slow to compile), attn/io and attn/models (they need nlohmann-json).
#pragma once

#include "attn/core/config.hpp"
#include "attn/core/error.hpp"
#include "attn/core/executor.hpp"
#include "attn/core/random.hpp"
#include "attn/core/tensor.hpp"
#include "attn/core/tensor_traits.hpp"
#include "attn/core/tensor_view.hpp"
#include "attn/core/types.hpp"
#include "attn/core/workspace.hpp"
#include "attn/masks/causal.hpp"
#include "attn/masks/mask.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/score_block.hpp"
#include "attn/masks/tensor_mask.hpp"
#include "attn/version.hpp"
