#include "tests/fault/launcher/support/freeze.hpp"

#include <cstdio>
#include <fstream>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/fault/launcher/support/launcher_run.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using ::testing::IsSupersetOf;

constexpr auto patience = 30s * time_scale;

char state_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const auto end_of_name = text.rfind(") ");
  return end_of_name == std::string::npos ? 0 : text[end_of_name + 2];
}

std::set<int> pids_of(const LauncherRun& run) {
  std::set<int> pids;
  for (const JobProcess& process : run.processes()) pids.insert(process.pid);
  return pids;
}

int pid_of(const LauncherRun& run, std::string_view role) { return run.wait_for_role(role, 1s); }

/// A job that has begun to answer.
class RunningJob {
 public:
  static Result<RunningJob> start() {
    TROUPE_TRY(auto run, LauncherRun::start());
    if (!run.wait_for_answers(1, patience)) {
      return fail(ErrorCode::timed_out, "no answer: {}", run.stderr_text());
    }
    return RunningJob(std::move(run));
  }
  const LauncherRun& run() const { return run_; }
  const std::set<int>& pids() const { return pids_; }
  std::size_t answers() const {
    const std::string text = run_.output_text();
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  void expect_it_goes_on() {
    const std::size_t before = answers();
    EXPECT_TRUE(run_.wait_for_answers(before + 20, patience)) << run_.stderr_text();
    EXPECT_THAT(pids_of(run_), IsSupersetOf(pids_)) << run_.stderr_text();
  }

 private:
  explicit RunningJob(LauncherRun run) : run_(std::move(run)), pids_(pids_of(run_)) {}
  LauncherRun run_;
  std::set<int> pids_;
};

bool wait_until_stopped(const std::set<int>& pids) {
  const auto limit = Clock::now() + patience;
  const auto is_stopped = [](int pid) { return state_of(pid) == 'T'; };
  while (!std::all_of(pids.begin(), pids.end(), is_stopped)) {
    if (Clock::now() > limit) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

}  // namespace

void freeze_and_check(std::chrono::milliseconds duration) {
  auto job = RunningJob::start();
  ASSERT_TRUE(job.ok()) << job.error().message;
  ASSERT_EQ(job->pids().size(), 5U) << "driver, agent, executor and two workers";
  for (const int pid : job->pids()) ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  std::this_thread::sleep_for(duration);
  for (const int pid : job->pids()) ASSERT_EQ(::kill(pid, SIGCONT), 0);
  const auto thawed = Clock::now();
  job->expect_it_goes_on();
  std::printf(
      "frozen as a whole for %.0f s: the same processes have 20 more answers after %.1f s\n",
      std::chrono::duration<double>(duration).count(),
      std::chrono::duration<double>(Clock::now() - thawed).count());
}

void press_ctrl_z_and_check(std::chrono::milliseconds duration) {
  auto job = RunningJob::start();
  ASSERT_TRUE(job.ok()) << job.error().message;
  const int driver = pid_of(job->run(), "driver");
  std::set<int> stopped = job->pids();
  stopped.erase(pid_of(job->run(), "agent"));
  ASSERT_EQ(::kill(driver, SIGTSTP), 0);
  ASSERT_TRUE(wait_until_stopped(stopped)) << "all but the agent are to stop";
  const std::size_t answers = job->answers();
  std::this_thread::sleep_for(duration);
  EXPECT_EQ(job->answers(), answers);
  EXPECT_THAT(pids_of(job->run()), IsSupersetOf(job->pids())) << job->run().stderr_text();
  ASSERT_EQ(::kill(driver, SIGCONT), 0);
  job->expect_it_goes_on();
}

}  // namespace troupe::test
