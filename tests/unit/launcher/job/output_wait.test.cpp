#include "launcher/job/output_wait.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr OutputWait::Clock::time_point start{};
const OutputBacklog three{.reason = "cannot write the output out: full", .lines = 3, .bytes = 99};

std::string told(const Result<std::string>& result) {
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : "";
}

/// Looks a few times a second, as a job does.
Result<std::string> wait_on(OutputWait& wait, OutputWait::Clock::time_point& now,
                            std::chrono::seconds time) {
  for (const auto until = now + time; now < until;) {
    now += 250ms;
    auto told = wait.update(&three, now);
    if (!told.ok() || !told->empty()) return told;
  }
  return std::string();
}

TEST(OutputWait, is_told_once_and_when_it_is_over) {
  OutputWait wait("out", 300);
  auto now = start;
  EXPECT_EQ(told(wait.update(nullptr, now)), "");
  EXPECT_EQ(wait.notice(now), "");
  const std::string begun = told(wait.update(&three, now));
  EXPECT_THAT(begun, StartsWith("cannot write the output out: full; the job pauses"));
  EXPECT_THAT(begun, HasSubstr("Make room ("));
  EXPECT_THAT(begun, HasSubstr("After 5:00 (job.disk_full_wait_seconds)"));
  EXPECT_EQ(told(wait_on(wait, now, 12s)), "");
  EXPECT_EQ(wait.notice(now), "waiting 12 s of at most 5:00 for room on the disk of out");
  EXPECT_EQ(told(wait.update(nullptr, now)),
            "there is room for out again after 12 s: 3 lines that waited are written");
  EXPECT_EQ(wait.notice(now), "");
  EXPECT_EQ(told(wait.update(nullptr, now)), "");
}

TEST(OutputWait, ends_after_its_limit_and_says_what_is_lost) {
  OutputWait wait("out", 3);
  auto now = start;
  ASSERT_NE(told(wait.update(&three, now)), "");
  EXPECT_EQ(told(wait_on(wait, now, 2s)), "");
  const auto over = wait_on(wait, now, 2s);
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().code, ErrorCode::resource_exhausted);
  EXPECT_THAT(over.error().message,
              StartsWith("cannot write the output out: full; there was no room for 3 s "
                         "(job.disk_full_wait_seconds); 3 lines that the disk had no room for are "
                         "lost, and are computed again. Make room ("));
}

TEST(OutputWait, does_not_count_time_in_which_the_job_was_stopped) {
  OutputWait wait("out", 3);
  ASSERT_TRUE(wait.update(&three, start).ok());
  EXPECT_TRUE(wait.update(&three, start + 60s).ok());
}

TEST(OutputWait, of_no_seconds_ends_at_once) {
  OutputWait wait("-", 0);
  const auto over = wait.update(&three, start);
  ASSERT_FALSE(over.ok());
  EXPECT_THAT(over.error().message, HasSubstr("3 lines that the disk had no room for are lost"));
}

TEST(OutputWait, ends_when_too_much_waits) {
  OutputWait wait("out", 300);
  const OutputBacklog large{.reason = "full", .lines = 1, .bytes = OutputWait::max_bytes + 1};
  const auto over = wait.update(&large, start);
  ASSERT_FALSE(over.ok());
  EXPECT_THAT(over.error().message, HasSubstr("1.00 GiB of answers wait for room; 1 line that the "
                                              "disk had no room for is lost, and is computed"));
}

}  // namespace
}  // namespace troupe
