#include <chrono>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/process/stopped_thread.hpp"
#include "tests/fault/launcher/support/launcher_run.hpp"
#include "tests/fault/launcher/support/undisturbed_run.hpp"
#include "tests/support/require.hpp"
#include "tests/support/time_scale.hpp"

// A rank is alive, answers heartbeats and does not arrive: its step's thread stands still.

namespace troupe::test {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int requests = seconds_of_requests;

struct Hang {
  const char* name;
  const char* parallel;
  const char* victim;
  const char* what;  ///< is said of it
};

class Hangs : public testing::TestWithParam<Hang> {};

TEST_P(Hangs, are_found_by_their_rank_and_recovered_from) {
  const Hang& hang = GetParam();
  auto run = LauncherRun::start(hang.parallel, requests, 64, "restart: {max: 9}\n");
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(run->wait_for_answers(5, 30s * time_scale)) << run->stderr_text();
  const int pid = run->wait_for_role(hang.victim, 5s * time_scale);
  const auto begin = Clock::now();
  {
    REQUIRE_OK(const int thread, thread_named(pid, "steps"));
    REQUIRE_OK(StoppedThread stopped, StoppedThread::stop(thread));
    while (!stopped.is_gone()) {
      ASSERT_LT(Clock::now() - begin, 60s * time_scale)
          << run->stderr_text() << run->log_text("launcher");
      std::this_thread::sleep_for(5ms);
    }
  }
  EXPECT_LT(Clock::now() - begin, 25s * time_scale) << "before the group's own timeout";
  ASSERT_NO_FATAL_FAILURE(finish_as_undisturbed(
      *run, {.parallel = hang.parallel, .requests = requests, .longest_answer = 64},
      60s * time_scale));
  EXPECT_THAT(run->log_text("launcher"), HasSubstr("the ranks are at:"));
  EXPECT_THAT(run->log_text("launcher"), HasSubstr("under way in that crash"))
      << "it does not count against its requests";
  const auto events = nlohmann::json::parse(run->report_text()).at("recoveries").at("events");
  ASSERT_EQ(events.size(), 1U) << events;
  EXPECT_EQ(events[0].at("lost")[0].at("process"), hang.victim);
  EXPECT_THAT(events[0].at("lost")[0].at("message").get<std::string>(),
              HasSubstr(std::string("it was killed as it hung: ") + hang.what));
  EXPECT_THAT(events[0].at("hang").get<std::vector<std::string>>(),
              Contains(HasSubstr("rank 0: step ")));
}

INSTANTIATE_TEST_SUITE_P(Of, Hangs,
                         testing::Values(Hang{"a_tensor_rank", "tensor_parallel_size: 2",
                                              "worker-1", "rank 1 did not come to call "},
                                         Hang{"the_first_stage", "pipeline_parallel_size: 2",
                                              "worker-0", "rank 0 did not"},
                                         Hang{"the_only_rank", "tensor_parallel_size: 1",
                                              "worker-0", "rank 0 did not "}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::test
