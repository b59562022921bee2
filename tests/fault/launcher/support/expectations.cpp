#include "tests/fault/launcher/support/expectations.hpp"

#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/support/dev_shm.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr milliseconds patience{8000 * time_scale};
/// From the death of a process to the end of the job.
constexpr double limit_ms = 2000.0 * time_scale;
/// From a stop until it is reported; ending the others takes additional time.
constexpr double stopped_told_ms = 2500.0 * time_scale;
constexpr double stopped_gone_ms = 3500.0 * time_scale;

std::string text_of(const std::vector<JobProcess>& processes) {
  std::string text;
  for (const JobProcess& process : processes) {
    text += fmt::format("{} ({}) ", process.role, process.pid);
  }
  return text;
}

void expect_nothing_left(const LauncherRun& run, const std::vector<std::string>& sockets) {
  EXPECT_THAT(still_bound(sockets), IsEmpty());
  EXPECT_THAT(dev_shm_entries(), IsEmpty());
  EXPECT_THAT(run.unexpected_files(), IsEmpty());
}

void expect_cause(const std::string& told, const Blow& blow, int pid) {
  const bool stopped = blow.signal_number == SIGSTOP;
  const std::string first_line = told.substr(0, told.find('\n'));
  if (blow.role == "agent") {
    EXPECT_THAT(first_line, HasSubstr("the agent of "));
    EXPECT_THAT(first_line, HasSubstr(fmt::format("(pid {})", pid)));
    EXPECT_THAT(first_line, HasSubstr(stopped ? "was silent for 1800 ms" : "signal 9 (SIGKILL)"));
  } else {
    EXPECT_THAT(first_line, HasSubstr(fmt::format("actor '{}'", blow.role)));
    EXPECT_THAT(first_line, HasSubstr(fmt::format("pid {},", pid)));
    EXPECT_THAT(first_line, HasSubstr(stopped ? "heartbeats" : "signal 9 (SIGKILL)"));
  }
  EXPECT_THAT(first_line, HasSubstr(fmt::format("out.jsonl.job/{}", blow.role)))
      << "the path of the log";
}

void expect_last_word(const LauncherRun& run, const Aftermath& seen, std::size_t answers) {
  EXPECT_EQ(seen.exit_code, std::optional<int>(3));
  EXPECT_THAT(run.stderr_text(),
              HasSubstr(fmt::format("{} of {} lines {} answered", answers, LauncherRun::lines,
                                    answers == 1 ? "is" : "are")));
}

}  // namespace

void strike_and_check(LauncherRun& run, const Blow& blow, const std::string& when) {
  const int pid = run.wait_for_role(blow.role, patience);
  ASSERT_NE(pid, 0) << "no " << blow.role << "; there are " << text_of(run.processes())
                    << "\nstderr: " << run.stderr_text();
  const std::vector<std::string> sockets = run.abstract_sockets();
  const bool stopped = blow.signal_number == SIGSTOP;
  const auto struck = Clock::now();
  ASSERT_EQ(::kill(pid, blow.signal_number), 0);
  const Aftermath seen = run.watch(struck, sockets, patience);
  std::printf("%-4s %-8s %-22s told after %6.1f ms, all gone after %6.1f ms (at most %.0f)\n",
              stopped ? "STOP" : "KILL", blow.role.c_str(), when.c_str(),
              seen.reported_ms.value_or(-1), seen.gone_ms.value_or(-1),
              stopped ? stopped_gone_ms : limit_ms);

  SCOPED_TRACE(fmt::format("signal {} to {} ({}) {}; stderr: {}", blow.signal_number, blow.role,
                           pid, when, run.stderr_text()));
  ASSERT_TRUE(seen.gone_ms.has_value())
      << "left: " << text_of(seen.left) << testing::PrintToString(still_bound(sockets));
  EXPECT_LT(*seen.gone_ms, stopped ? stopped_gone_ms : limit_ms);
  expect_nothing_left(run, sockets);
  const auto answers = count_whole_answers(run.output_text());
  ASSERT_TRUE(answers.ok()) << answers.error().message;
  if (blow.role == "driver") return;
  ASSERT_TRUE(seen.reported_ms.has_value());
  EXPECT_LT(*seen.reported_ms, stopped ? stopped_told_ms : limit_ms);
  expect_cause(run.stderr_text(), blow, pid);
  expect_last_word(run, seen, *answers);
}

}  // namespace troupe::test
