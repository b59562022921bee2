#include "launcher/job/stop_signals.hpp"

#include <cerrno>
#include <csignal>

#include <gtest/gtest.h>
#include <unistd.h>

namespace troupe {
namespace {

TEST(StopSignals, counts_what_asks_the_job_to_end) {
  auto signals = StopSignals::block();
  ASSERT_TRUE(signals.ok()) << signals.error().message;
  EXPECT_EQ(signals->count(), 0);
  ASSERT_EQ(::kill(::getpid(), SIGINT), 0);
  EXPECT_EQ(signals->count(), 1);
  ASSERT_EQ(::kill(::getpid(), SIGTERM), 0);
  EXPECT_EQ(signals->count(), 2);
  EXPECT_EQ(signals->count(), 2) << "a signal is counted once";
}

TEST(StopSignals, take_the_warning_of_a_time_limit_for_the_first_signal_alone) {
  auto signals = StopSignals::block();
  ASSERT_TRUE(signals.ok()) << signals.error().message;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(::kill(::getpid(), SIGUSR1), 0);
    EXPECT_EQ(signals->count(), 1) << "a batch script may send it once more";
  }
  ASSERT_EQ(::kill(::getpid(), SIGTERM), 0);
  EXPECT_EQ(signals->count(), 2);
  ASSERT_EQ(::kill(::getpid(), SIGUSR1), 0);
  EXPECT_EQ(signals->count(), 2);
}

TEST(StopSignals, count_a_hangup_but_not_under_nohup) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  auto ignoring = StopSignals::block();
  ASSERT_TRUE(ignoring.ok()) << ignoring.error().message;
  ASSERT_EQ(::kill(::getpid(), SIGHUP), 0);
  EXPECT_EQ(ignoring->count(), 0);
  std::signal(SIGHUP, before == SIG_IGN ? SIG_DFL : before);
  auto heeding = StopSignals::block();
  ASSERT_TRUE(heeding.ok()) << heeding.error().message;
  ASSERT_EQ(::kill(::getpid(), SIGHUP), 0);
  EXPECT_EQ(heeding->count(), 1);
}

TEST(StopSignals, leave_a_closed_pipe_an_error_of_the_write) {
  const auto signals = StopSignals::block();
  ASSERT_TRUE(signals.ok()) << signals.error().message;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(::write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  ::close(ends[1]);
}

}  // namespace
}  // namespace troupe
