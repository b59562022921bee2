#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <exception>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/support/time_scale.hpp"

namespace troupe::fuzz {

/// How long a target runs: until the time is over, or this many inputs were tried.
struct Effort {
  std::chrono::milliseconds time{1000};
  std::uint64_t inputs = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t first_seed = 0;
};

/// The limit for one input, in processor time: a machine shared with other work takes longer.
constexpr std::chrono::seconds case_limit{1 * test::time_scale};

/// The processor time that this process has used.
inline std::chrono::nanoseconds processor_time() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

constexpr std::int64_t memory_limit_kib = std::int64_t{1} << 20;

/// The peak memory of this process.
inline std::int64_t peak_memory_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

/// Calls `one_case(seed)` for the seeds from `first_seed` on, until the time is over or a test has
/// failed or thrown, so that a failure recurs at the same seed. Each must end within case_limit;
/// all together may take memory_limit_kib more than at the start. (Sanitizers keep freed memory:
/// there memory is not checked.)
template <class Case>
void for_seeds(Effort effort, Case&& one_case) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + effort.time;
  const std::int64_t before = peak_memory_kib();
  std::chrono::nanoseconds longest{0};
  std::uint64_t tried = 0;
  for (auto used = processor_time();
       Clock::now() < end && tried < effort.inputs && !testing::Test::HasFailure(); ++tried) {
    SCOPED_TRACE(testing::Message() << "seed " << effort.first_seed + tried);
    try {
      one_case(effort.first_seed + tried);
    } catch (const std::exception& escaped) {
      ADD_FAILURE() << "an exception escaped: " << escaped.what();
      return;
    }
    const auto used_now = processor_time();
    longest = std::max(longest, used_now - used);
    EXPECT_LT(used_now - used, case_limit) << "this input takes too long";
    used = used_now;
  }
  testing::Test::RecordProperty("longest_ms",
                                std::to_string(longest / std::chrono::milliseconds(1)));
  EXPECT_GT(tried, 10U) << "hardly anything was tried";
  if (test::time_scale == 1) {
    EXPECT_LT(peak_memory_kib() - before, memory_limit_kib) << "after " << tried << " inputs";
  }
}

}  // namespace troupe::fuzz
