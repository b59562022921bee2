#include <algorithm>
#include <tuple>

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/fault/launcher/support/expectations.hpp"
#include "tests/support/time_scale.hpp"

// The real launcher on a long batch; sends a signal to one of its processes at a certain moment.

namespace troupe::test {
namespace {

using namespace std::chrono_literals;

enum class Moment { start, first_answers, middle };

class LauncherFaults : public testing::TestWithParam<std::tuple<const char*, Moment>> {};

std::string describe(Moment moment) {
  switch (moment) {
    case Moment::start:
      return "while_it_starts";
    case Moment::first_answers:
      return "at_the_first_answers";
    case Moment::middle:
      return "in_the_middle";
  }
  return "";
}

void wait_for(const LauncherRun& run, Moment moment) {
  if (moment == Moment::start) return;
  const int middle = 80 / time_scale;
  ASSERT_TRUE(run.wait_for_answers(moment == Moment::middle ? middle : 1, 30s * time_scale))
      << run.stderr_text();
  ASSERT_FALSE(run.abstract_sockets().empty());
}

template <class Fixture>
std::string name_of(const testing::TestParamInfo<typename Fixture::ParamType>& info) {
  std::string role = std::get<0>(info.param);
  std::replace(role.begin(), role.end(), '-', '_');
  return role + "_" + describe(std::get<1>(info.param));
}

TEST_P(LauncherFaults, a_killed_process_ends_the_job_in_time_and_is_named) {
  const auto [role, moment] = GetParam();
  auto run = LauncherRun::start();
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_NO_FATAL_FAILURE(wait_for(*run, moment));
  strike_and_check(*run, {role, SIGKILL}, describe(moment));
}

INSTANTIATE_TEST_SUITE_P(
    Kill, LauncherFaults,
    testing::Combine(testing::Values("driver", "agent", "executor", "worker-0", "worker-1"),
                     testing::Values(Moment::start, Moment::first_answers, Moment::middle)),
    name_of<LauncherFaults>);

class LauncherStops : public testing::TestWithParam<std::tuple<const char*, Moment>> {};

TEST_P(LauncherStops, a_stopped_process_is_noticed_in_time_and_named) {
  const auto [role, moment] = GetParam();
  auto run = LauncherRun::start();
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_NO_FATAL_FAILURE(wait_for(*run, moment));
  strike_and_check(*run, {role, SIGSTOP}, describe(moment));
}

// Without the agent while it starts: it has 10 s to report for the first time.
INSTANTIATE_TEST_SUITE_P(WhileItStarts, LauncherStops,
                         testing::Combine(testing::Values("executor", "worker-1"),
                                          testing::Values(Moment::start)),
                         name_of<LauncherStops>);
INSTANTIATE_TEST_SUITE_P(AtWork, LauncherStops,
                         testing::Combine(testing::Values("agent", "executor", "worker-0",
                                                          "worker-1"),
                                          testing::Values(Moment::first_answers)),
                         name_of<LauncherStops>);

/// Two stages of two tensor ranks with expert parallelism: every kind of group.
class FaultsInAMix : public testing::TestWithParam<std::tuple<const char*, const char*, int>> {};

TEST_P(FaultsInAMix, end_the_job_in_time_and_are_named) {
  const auto [collectives, role, signal_number] = GetParam();
  auto run = LauncherRun::start(
      fmt::format("pipeline_parallel_size: 2, tensor_parallel_size: 2, expert_parallel_size: 2, "
                  "sequence_parallel: true, collectives: {}",
                  collectives));
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_NO_FATAL_FAILURE(wait_for(*run, Moment::first_answers));
  ASSERT_EQ(run->processes().size(), 7U);
  strike_and_check(*run, {role, signal_number}, fmt::format("two stages, {}", collectives));
}

INSTANTIATE_TEST_SUITE_P(Launcher, FaultsInAMix,
                         testing::Combine(testing::Values("shm", "network"),
                                          testing::Values("worker-0", "worker-3", "executor"),
                                          testing::Values(SIGKILL, SIGSTOP)),
                         [](const auto& info) {
                           std::string role = std::get<1>(info.param);
                           std::replace(role.begin(), role.end(), '-', '_');
                           return fmt::format(
                               "{}_{}_{}", std::get<0>(info.param), role,
                               std::get<2>(info.param) == SIGKILL ? "killed" : "stopped");
                         });

TEST(FaultsInAStepDomain, end_the_job_in_time_and_are_named) {
  auto run = LauncherRun::start("data_parallel_size: 2, expert_parallel_size: 2");
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_NO_FATAL_FAILURE(wait_for(*run, Moment::first_answers));
  strike_and_check(*run, {"worker-1", SIGKILL}, "two replicas");
}

}  // namespace
}  // namespace troupe::test
