#include "runtime/process/process_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace troupe {
namespace {

using ::testing::StartsWith;

TEST(ProcessState, is_told_as_the_kernel_says_it) {
  EXPECT_THAT(describe_process_state(::getpid()), StartsWith("state R (running)"));
  EXPECT_EQ(describe_process_state(-1), "no such process");
}

}  // namespace
}  // namespace troupe
