#include "launcher/job/stop_request.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Wish = StopRequest::Wish;

TEST(StopRequest, drains_for_the_grace_time_from_the_first_signal_on_and_then_gives_up) {
  StopRequest stop(seconds(30));
  const StopRequest::Clock::time_point start{};
  EXPECT_EQ(stop.wish(0, start), Wish::none);
  EXPECT_EQ(stop.wish(0, start + seconds(100)), Wish::none);
  for (milliseconds at = seconds(101); at < seconds(131); at += milliseconds(200)) {
    EXPECT_EQ(stop.wish(1, start + at), Wish::drain) << at.count();
  }
  EXPECT_EQ(stop.wish(1, start + seconds(131)), Wish::give_up);
  EXPECT_EQ(stop.wish(2, start + seconds(131)), Wish::at_once);
}

TEST(StopRequest, does_not_count_the_time_in_which_the_job_was_stopped) {
  StopRequest stop(seconds(30));
  const StopRequest::Clock::time_point start{};
  EXPECT_EQ(stop.wish(1, start), Wish::drain);
  EXPECT_EQ(stop.wish(1, start + seconds(3600)), Wish::drain);
}

TEST(StopRequest, without_grace_gives_up_at_once_and_obeys_two_signals_that_come_together) {
  StopRequest none(seconds(0));
  EXPECT_EQ(none.wish(1, {}), Wish::give_up);
  StopRequest two(seconds(30));
  EXPECT_EQ(two.wish(2, {}), Wish::at_once);
}

}  // namespace
}  // namespace troupe
