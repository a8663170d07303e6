// Built without -fopenmp, in the same program as the unit that is built with it.
#include <gtest/gtest.h>

#include <thread>

#include "attn/interop/openmp.hpp"
#include "interop/executor_laws.hpp"

namespace {

TEST(OpenMp, IsTheCallingThreadWhereTheCompilerIsNotTold) {
  attn::OpenMp four(4);
  EXPECT_EQ(four.concurrency(), 1);
  four.parallel_for(10, [caller = std::this_thread::get_id()](attn::Index, attn::Index worker) {
    EXPECT_EQ(worker, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
  attn_test::expect_executor_laws(four);
}

}  // namespace
