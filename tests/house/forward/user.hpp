// tests/house/forward/user.hpp - a user's header, which names types of the library without including them.
#pragma once
#include "attn/fwd.hpp"

#if defined(EIGEN_WORLD_VERSION)
#error "attn/fwd.hpp includes Eigen"
#endif

namespace attn_test {

attn::ExecutorRef* executor();
attn::Workspace* workspace();
attn::MultiHeadAttention<float>* attention();
/// The largest difference between two ways of the same attention, through every pointer that it is given.
float difference(const attn::MultiHeadAttention<float>& attention, attn::ExecutorRef* executor,
                 attn::Workspace* workspace);

}  // namespace attn_test
