#include <algorithm>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/process/open_files.hpp"
#include "runtime/process/prompt_threads.hpp"

namespace troupe {
namespace {

TEST(OpenFiles, are_limited_by_the_hard_limit_after_the_soft_one_is_raised) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(256, before.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(open_file_limit(), low.rlim_cur);
  raise_open_file_limit();
  EXPECT_EQ(open_file_limit(), std::min<rlim_t>(before.rlim_max, 1 << 20));
  ::setrlimit(RLIMIT_NOFILE, &before);
}

/// The calling thread's slice in nanoseconds, 0 if the kernel has none of its own for each thread.
std::uint64_t own_slice() {
  struct {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
  } attributes{};
  return ::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0
             ? attributes.runtime
             : 0;
}

TEST(PromptThreads, are_those_that_are_started_while_it_lives) {
  const std::uint64_t usual = own_slice();
  if (usual == 0) GTEST_SKIP() << "this kernel has no slices of single threads (Linux 6.12 has)";
  std::uint64_t slice = 0;
  {
    const PromptThreads prompt;
    std::thread([&] { slice = own_slice(); }).join();
  }
  EXPECT_LT(slice, usual);
  EXPECT_EQ(own_slice(), usual) << "the thread that started them keeps what it had";
  std::thread([&] { slice = own_slice(); }).join();
  EXPECT_EQ(slice, usual);
}

}  // namespace
}  // namespace troupe
