// tests/ops/sdpa_exceptions_test.cpp - what an exception leaves behind: docs/threads-and-memory.md, Errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "attn/core/thread_pool.hpp"
#include "attn/masks/padding.hpp"
#include "attn/masks/score_mod.hpp"
#include "attn/ops/sdpa.hpp"
#include "support/error_text.hpp"
#include "support/random_values.hpp"

namespace {

using attn::Index;
using attn_test::error_text;
using attn_test::random_tensor;

TEST(SdpaExceptions, OfAMaskReachTheCallerAndLeaveExecutorAndWorkspaceAsTheyWere) {
  const auto x = random_tensor<float, 4>({2, 8, 90, 16}, 1);
  const auto want = attn::sdpa(x, x, x);
  const attn::Filter throws{[](const attn::Site& at) {
    if (at.head == 5 && at.q == 77 && at.k == 3) throw std::runtime_error("a mask's own error");
    return true;
  }};
  attn::ThreadPool pool(3);
  attn::Workspace workspace;
  attn::Tensor<float, 4> out(x.extents());
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(error_text<std::runtime_error>([&] {
                attn::sdpa_into(x, x, x, out, throws, {.executor = pool, .workspace = &workspace});
              }),
              "a mask's own error");
    attn::sdpa_into(x, x, x, out, attn::NoMask{}, {.executor = pool, .workspace = &workspace});
    EXPECT_EQ(out, want);
  }
}

TEST(SdpaExceptions, AboutArgumentsLeaveTheOutputUntouched) {
  const auto x = random_tensor<float, 4>({2, 4, 10, 8}, 1);
  attn::Tensor<float, 4> out(x.extents());
  std::fill_n(out.data(), out.size(), 7.0F);
  const std::vector<Index> one_length{10};
  const auto mask_error =
      error_text<attn::ShapeError>([&] { attn::sdpa_into(x, x, x, out, attn::KeyPadding{one_length}); });
  EXPECT_EQ(mask_error, "attn: KeyPadding: 1 lengths for a batch of 2");
  const auto option_error = error_text<std::invalid_argument>(
      [&] { attn::sdpa_into(x, x, x, out, attn::NoMask{}, {.soft_cap = -1}); });
  EXPECT_EQ(option_error, "attn: sdpa: options.soft_cap -1 must be a finite number and not negative");
  EXPECT_TRUE(std::all_of(out.data(), out.data() + out.size(), [](float value) { return value == 7.0F; }));
}

}  // namespace
