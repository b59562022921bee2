#include "tests/fault/launcher/support/survival.hpp"

#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "tests/fault/launcher/support/launcher_run.hpp"
#include "tests/fault/launcher/support/undisturbed_run.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
constexpr milliseconds whole_run{120'000 * time_scale};
constexpr milliseconds patience{20'000 * time_scale};
constexpr int longest_answer = 64;

std::vector<JobProcess> processes_of(const LauncherRun& run, std::string_view role) {
  std::vector<JobProcess> found = run.processes();
  std::erase_if(found, [&](const JobProcess& p) { return !p.role.starts_with(role); });
  return found;
}

/// Kills some victims of these.
void kill_some(std::vector<JobProcess> processes, int count, std::mt19937& random) {
  std::shuffle(processes.begin(), processes.end(), random);
  const auto victims = std::min(processes.size(), static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < victims; ++i) {
    if (::kill(processes[i].pid, SIGKILL) != 0) continue;  // it was being replaced
    std::printf("killed %s (%d)\n", processes[i].role.c_str(), processes[i].pid);
  }
}

void expect_report(const LauncherRun& run, const Kills& kills) {
  const auto report = nlohmann::json::parse(run.report_text());
  const auto& recoveries = report.at("recoveries");
  EXPECT_GE(recoveries.at("count"), 1);
  for (const auto& event : recoveries.at("events")) {
    std::printf("%s: to the next step %.0f ms, %d sequences\n",
                event.at("lost").at(0).at("process").get<std::string>().c_str(),
                1000 * event.at("seconds").get<double>(), event.at("sequences").get<int>());
    EXPECT_THAT(event.at("lost").at(0).at("message").get<std::string>(),
                HasSubstr("signal 9 (SIGKILL)"));
    EXPECT_LT(event.at("seconds").get<double>(), 2.0 * kills.in_a_row * time_scale);
  }
}

}  // namespace

void survive_kills(const Kills& kills) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  auto run = LauncherRun::start(kills.parallel, kills.requests, longest_answer,
                                "restart: {max: 100}\n" + kills.sections, kills.body);
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(run->wait_for_answers(1, patience)) << run->stderr_text();
  const std::size_t share = static_cast<std::size_t>(kills.requests / (kills.kills + 1));
  for (int i = 0; i < kills.kills; ++i) {
    for (int row = 0; row < kills.in_a_row; ++row) {
      kill_some(processes_of(*run, kills.victims), kills.at_once, random);
      if (kills.with_executor) kill_some(processes_of(*run, "executor"), 1, random);
      // The test varies the elapsed time; it waits for nothing.
      std::this_thread::sleep_for(milliseconds(random() % 100));
    }
    (void)run->wait_for_answers(1 + static_cast<std::size_t>(i) * share + random() % share,
                                patience);
  }
  ASSERT_NO_FATAL_FAILURE(
      finish_as_undisturbed(*run,
                            {.parallel = kills.parallel,
                             .requests = kills.requests,
                             .longest_answer = longest_answer,
                             .sections = std::string(LauncherRun::no_restarts) + kills.sections,
                             .body = kills.body},
                            whole_run));
  ASSERT_NO_FATAL_FAILURE(expect_report(*run, kills));
}

}  // namespace troupe::test
