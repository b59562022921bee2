#include "models/ops/cpu/thread_pool.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(ThreadPool, runs_every_member_exactly_once_per_section) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    std::vector<int> runs(threads);
    for (int section = 1; section <= 2000; ++section) {
      pool.run([&](int member) { ++runs[member]; });
      for (const int count : runs) ASSERT_EQ(count, section) << threads << " threads";
    }
  }
}

TEST(ThreadPool, wakes_members_that_went_to_sleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    // Longer than the members spin, so that they sleep; the section must start all the same.
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < until) {
    }
    std::atomic<int> runs{0};
    pool.run([&](int) { runs.fetch_add(1); });
    ASSERT_EQ(runs.load(), 2) << "round " << round;
  }
}

TEST(ThreadPool, splits_evenly_and_completely) {
  for (const std::int64_t total : {0, 1, 5, 64, 1001}) {
    for (const int members : {1, 2, 3, 8}) {
      std::int64_t at = 0;
      for (int member = 0; member < members; ++member) {
        const Range range = split_evenly(total, member, members);
        ASSERT_EQ(range.begin, at) << total << " over " << members;
        ASSERT_LE(range.end - range.begin, total / members + 1);
        at = range.end;
      }
      ASSERT_EQ(at, total);
    }
  }
}

}  // namespace
}  // namespace troupe
