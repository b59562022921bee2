#include "tests/fault/launcher/support/crashes.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "tests/fault/launcher/support/launcher_run.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr const char* parallel = "tensor_parallel_size: 2";
constexpr const char* culprit = "tale-1";
/// Under way from the beginning until long after the others are answered.
constexpr const char* body = R"({"only": {"tale-1": {"max_tokens": 1950}}})";
constexpr const char* few_at_a_time = "engine: {threads_per_worker: 1, max_num_seqs: 4}\n";
#if defined(__SANITIZE_ADDRESS__)  // which takes the signal, reports it and exits
constexpr const char* cause_of_crash = "exited with code 1";
#elif defined(__SANITIZE_THREAD__)  // so does this one
constexpr const char* cause_of_crash = "exited with code 66";
#else
constexpr const char* cause_of_crash = "signal 11 (SIGSEGV)";
#endif
constexpr int requests = 60;
constexpr int longest_answer = 24;

std::map<std::string, std::string> lines_by_name(const std::string& output) {
  std::map<std::string, std::string> lines;
  std::istringstream all(output);
  for (std::string line; std::getline(all, line);) {
    lines[nlohmann::json::parse(line).at("custom_id")] = line;
  }
  return lines;
}

std::string without_time(const std::string& line) {
  auto answer = nlohmann::json::parse(line);
  answer["response"]["body"].erase("created");
  return answer.dump();
}

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

bool is_given_up(const LauncherRun& run) {
  return run.output_text().find("process_crashed") != std::string::npos;
}

/// Kills a process as a crash does, and waits until the job has recovered. Progress reaches the
/// driver every 200 ms at most. So a second crash right after the recovery finds each request where
/// the first one did.
void crash(const LauncherRun& run, const char* role, std::size_t crashes_before) {
  const auto limit = Clock::now() + 20s * time_scale;
  while (true) {
    if (is_given_up(run)) return;  // and the job ends with its last request
    ASSERT_LT(Clock::now(), limit) << run.stderr_text();
    const int pid = run.wait_for_role(role, 50ms);
    if (pid != 0 && ::kill(pid, SIGSEGV) == 0) break;
  }
  while (count_of(run.log_text("launcher"), "recovered in ") <= crashes_before) {
    if (is_given_up(run)) return;
    ASSERT_LT(Clock::now(), limit) << run.stderr_text() << run.log_text("launcher");
    std::this_thread::sleep_for(5ms);
  }
}

}  // namespace

void expect_one_request_to_be_given_up(const char* role) {
  auto run = LauncherRun::start(parallel, requests, longest_answer,
                                std::string("restart: {max: 9}\n") + few_at_a_time, body);
  ASSERT_TRUE(run.ok()) << run.error().message;
  std::size_t crashes = 0;
  // The requests that run beside the culprit in this crash are answered before the next one.
  ASSERT_TRUE(run->wait_for_answers(2, 30s * time_scale)) << run->stderr_text();
  ASSERT_NO_FATAL_FAILURE(crash(*run, role, crashes++));
  ASSERT_TRUE(run->wait_for_answers(requests - 1, 30s * time_scale)) << run->stderr_text();
  // A crash that comes too late finds the culprit further than it was, and does not count.
  while (!is_given_up(*run)) {
    ASSERT_LT(crashes, 9U) << run->stderr_text() << run->log_text("launcher");
    ASSERT_NO_FATAL_FAILURE(crash(*run, role, crashes++));
  }
  const Aftermath seen = run->watch(Clock::now(), {}, 120s * time_scale);
  ASSERT_TRUE(seen.gone_ms.has_value()) << run->stderr_text();
  EXPECT_EQ(seen.exit_code, std::optional<int>(1)) << run->stderr_text();

  auto undisturbed =
      LauncherRun::start(parallel, requests, longest_answer,
                         std::string(LauncherRun::no_restarts) + few_at_a_time, body);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.error().message;
  ASSERT_TRUE(undisturbed->watch(Clock::now(), {}, 120s * time_scale).gone_ms.has_value());
  const auto found = lines_by_name(run->output_text());
  const auto expected = lines_by_name(undisturbed->output_text());
  ASSERT_EQ(found.size(), static_cast<std::size_t>(requests));
  ASSERT_EQ(expected.size(), found.size());
  for (const auto& [name, line] : found) {
    if (name == culprit) {
      const auto error = nlohmann::json::parse(line).at("error");
      EXPECT_EQ(error.at("code"), "process_crashed");
      EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr(cause_of_crash));
    } else {
      EXPECT_EQ(without_time(line), without_time(expected.at(name)));
    }
  }
  const auto recoveries = nlohmann::json::parse(run->report_text()).at("recoveries");
  EXPECT_GE(recoveries.at("count"), 3) << "with its last request the job ends before the fourth";
  EXPECT_GE(recoveries.at("suspects"), 1);
  ASSERT_EQ(recoveries.at("given_up_prompts").size(), 1U);
  EXPECT_EQ(recoveries.at("given_up_prompts").at(0).get<std::string>().size(), 32U);
}

}  // namespace troupe::test
