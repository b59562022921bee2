#include "tests/fault/launcher/support/survival.hpp"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/fault/launcher/support/crashes.hpp"
#include "tests/fault/launcher/support/launcher_run.hpp"
#include "tests/fault/launcher/support/undisturbed_run.hpp"
#include "tests/support/time_scale.hpp"

// Workers are killed in the middle of a batch, which goes on by itself.

namespace troupe::test {
namespace {

using namespace std::chrono_literals;

constexpr int requests = seconds_of_requests;

TEST(Survival, of_tensor_ranks_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "tensor_parallel_size: 2", .requests = requests});
}

TEST(Survival, of_two_tensor_ranks_at_once_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "tensor_parallel_size: 2", .at_once = 2, .requests = requests});
}

TEST(Survival, of_stages_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "pipeline_parallel_size: 2", .requests = requests});
}

TEST(Survival, of_replicas_with_common_experts_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills(
      {.parallel = "data_parallel_size: 2, expert_parallel_size: 2", .requests = requests});
}

TEST(Survival, of_independent_replicas_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "data_parallel_size: 2", .requests = requests});
}

TEST(Survival, of_stages_of_tensor_ranks_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "pipeline_parallel_size: 2, tensor_parallel_size: 2, "
                             "expert_parallel_size: 2, sequence_parallel: true",
                 .requests = requests});
}

TEST(Survival, of_kills_in_the_middle_of_a_recovery_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "tensor_parallel_size: 2", .in_a_row = 4, .requests = requests});
}

TEST(Survival, over_network_links_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills(
      {.parallel = "tensor_parallel_size: 2, collectives: network", .requests = requests});
}

TEST(Survival, of_context_ranks_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "context_parallel_size: 2", .requests = requests});
}

struct KindOfAnswer {
  const char* name;
  const char* body;           ///< of all requests
  const char* sections = "";  ///< of the YAML
  int share = 1;              ///< this part of the usual number of requests
};

class ExecutorSurvival : public testing::TestWithParam<KindOfAnswer> {};

TEST_P(ExecutorSurvival, gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "tensor_parallel_size: 2",
                 .requests = requests / GetParam().share,
                 .victims = "executor",
                 .body = GetParam().body,
                 .sections = GetParam().sections});
}

INSTANTIATE_TEST_SUITE_P(
    With, ExecutorSurvival,
    testing::Values(
        KindOfAnswer{"greedy_tokens", R"({"stop": ["fox said", " the"]})"},
        KindOfAnswer{"seeded_tokens", R"({"temperature": 0.8, "top_p": 0.9, "seed": 5})"},
        KindOfAnswer{"seeds_of_the_job", R"({"temperature": 1.0, "repetition_penalty": 1.1})"},
        KindOfAnswer{"several_choices", R"({"temperature": 1.0, "n": 3, "best_of": 4})", "", 2},
        KindOfAnswer{"logprobs", R"({"logprobs": 4, "echo": true})"},
        KindOfAnswer{"beams", R"({"use_beam_search": true, "n": 2, "best_of": 3,
                                  "ignore_eos": false, "logprobs": 1})",
                     "", 4},
        KindOfAnswer{"prompt_lookup", "{}",
                     "engine: {threads_per_worker: 1, speculative_method: ngram, "
                     "num_speculative_tokens: 3}\n"},
        KindOfAnswer{"a_common_prefix",
                     R"({"temperature": 0.9, "prompt": "Once upon a time there lived a fox )"
                     R"(that was known in the whole forest for his wit. The crow"})"}),
    [](const auto& info) { return info.param.name; });

TEST(Survival, of_an_executor_and_a_worker_at_once_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "tensor_parallel_size: 2",
                 .requests = requests,
                 .with_executor = true,
                 .body = R"({"temperature": 0.7})"});
}

TEST(Survival, of_executors_twice_in_a_row_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "tensor_parallel_size: 2",
                 .in_a_row = 2,
                 .requests = requests,
                 .victims = "executor",
                 .body = R"({"temperature": 0.7})"});
}

TEST(Survival, of_all_processes_but_the_agent_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "pipeline_parallel_size: 2",
                 .at_once = 2,
                 .requests = requests,
                 .with_executor = true,
                 .body = R"({"temperature": 0.7, "n": 2})"});
}

TEST(Survival, of_one_of_two_executors_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills(
      {.parallel = "data_parallel_size: 2", .requests = requests, .victims = "executor-"});
}

TEST(Survival, of_a_node_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "tensor_parallel_size: 2",
                 .requests = requests,
                 .victims = "agent",
                 .body = R"({"temperature": 0.7})"});
}

TEST(Survival, of_a_node_twice_in_a_row_gives_the_bytes_of_an_undisturbed_run) {
  survive_kills({.parallel = "data_parallel_size: 2",
                 .kills = 2,
                 .in_a_row = 2,
                 .requests = requests,
                 .victims = "agent"});
}

TEST(Survival, of_a_request_that_crashes_workers_gives_up_that_request_alone) {
  expect_one_request_to_be_given_up("worker-1");
}

/// What is killed, and how many signals follow at once.
class SignalsInARecovery : public testing::TestWithParam<const char*> {};

TEST_P(SignalsInARecovery, finish_what_runs_and_leave_the_rest_to_the_next_run) {
  auto run = LauncherRun::start("tensor_parallel_size: 2", requests, 64, "restart: {max: 9}\n");
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(run->wait_for_answers(5, 30s * time_scale)) << run->stderr_text();
  ASSERT_EQ(::kill(run->wait_for_role(GetParam(), 5s * time_scale), SIGKILL), 0);
  ASSERT_EQ(::kill(run->wait_for_role("driver", 5s * time_scale), SIGINT), 0);
  const Aftermath seen = run->watch(Clock::now(), {}, 30s * time_scale);
  ASSERT_TRUE(seen.gone_ms.has_value()) << run->stderr_text();
  if (seen.exit_code != std::optional<int>(0)) {  // all had begun
    EXPECT_EQ(seen.exit_code, std::optional<int>(4)) << run->stderr_text();
    ASSERT_TRUE(run->start_again().ok());
  }
  finish_as_undisturbed(
      *run, {.parallel = "tensor_parallel_size: 2", .requests = requests, .longest_answer = 64},
      60s * time_scale);
}

TEST_P(SignalsInARecovery, end_the_job_at_once_if_there_are_two) {
  auto run = LauncherRun::start("tensor_parallel_size: 2", requests, 64, "restart: {max: 9}\n");
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(run->wait_for_answers(5, 30s * time_scale)) << run->stderr_text();
  const int driver = run->wait_for_role("driver", 5s * time_scale);
  ASSERT_EQ(::kill(run->wait_for_role(GetParam(), 5s * time_scale), SIGKILL), 0);
  // A second signal that comes before the first is taken counts as one with it.
  for (int i = 0; i < 200 && ::kill(driver, SIGINT) == 0; ++i) {
    if (run->processes().empty()) break;
    std::this_thread::sleep_for(20ms);
  }
  const Aftermath seen = run->watch(Clock::now(), {}, 5s * time_scale);
  ASSERT_TRUE(seen.gone_ms.has_value()) << run->stderr_text();
  EXPECT_EQ(seen.exit_code, std::optional<int>(130)) << run->stderr_text();
  ASSERT_TRUE(run->start_again().ok());
  finish_as_undisturbed(
      *run, {.parallel = "tensor_parallel_size: 2", .requests = requests, .longest_answer = 64},
      60s * time_scale);
}

INSTANTIATE_TEST_SUITE_P(AfterTheLossOf, SignalsInARecovery,
                         testing::Values("executor", "worker-1", "agent"), [](const auto& info) {
                           std::string role = info.param;
                           std::replace(role.begin(), role.end(), '-', '_');
                           return role;
                         });

TEST(Survival, ends_when_restart_max_is_used_up_and_names_the_last_loss) {
  auto run =
      LauncherRun::start("tensor_parallel_size: 2", LauncherRun::lines, 200, "restart: {max: 1}\n");
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(run->wait_for_answers(1, 30s * time_scale)) << run->stderr_text();
  const int first = run->wait_for_role("worker-1", 5s * time_scale);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  const auto limit = Clock::now() + 20s * time_scale;
  while (run->log_text("launcher").find("recovered in") == std::string::npos) {
    ASSERT_LT(Clock::now(), limit) << run->stderr_text();
  }
  ASSERT_EQ(::kill(run->wait_for_role("worker-0", 5s * time_scale), SIGKILL), 0);
  const Aftermath seen = run->watch(Clock::now(), {}, 10s * time_scale);
  EXPECT_EQ(seen.exit_code, std::optional<int>(3));
  const std::string told = run->stderr_text();
  EXPECT_NE(told.find("actor 'worker-0'"), std::string::npos) << told;
  EXPECT_NE(told.find("one recovery more than restart.max (1) allows"), std::string::npos) << told;
}

}  // namespace
}  // namespace troupe::test
