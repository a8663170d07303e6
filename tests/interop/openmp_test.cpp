// Built with -fopenmp where the compiler has it; openmp_absent_test.cpp is the other half.
#include "attn/interop/openmp.hpp"

#include <gtest/gtest.h>

#include "interop/executor_laws.hpp"
#include "support/error_text.hpp"

namespace {

TEST(OpenMp, KeepsThePromisesOfAnExecutor) {
  attn::OpenMp one(1), three(3), as_many_as_openmp_would_use;
  attn_test::expect_executor_laws(one);
  attn_test::expect_executor_laws(three);
  attn_test::expect_executor_laws(as_many_as_openmp_would_use);
}

#if defined(_OPENMP)
TEST(OpenMp, HasAsManyThreadsAsItIsToldTo) {
  EXPECT_EQ(attn::OpenMp(3).concurrency(), 3);
  EXPECT_EQ(attn::OpenMp().concurrency(), omp_get_max_threads());
}
#endif

TEST(OpenMp, NeedsAThread) {
  EXPECT_EQ(attn_test::error_text<std::invalid_argument>([] { attn::OpenMp(0); }),
            "attn: OpenMp: num_threads 0 must be at least 1");
}

}  // namespace
