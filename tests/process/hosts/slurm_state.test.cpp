#include <cstdlib>
#include <fstream>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// A job of Slurm on a compute node, seen from a login node, which is another host.
class StateInSlurm : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_slurm(); !missing.empty()) GTEST_SKIP() << missing;
    job_.emplace();
    // More than is answered before it has been looked at.
    std::string input = golden_input();
    for (int i = 0; i < 100; ++i) {
      input +=
          fmt::format(R"({{"custom_id":"long-{}","method":"POST","url":"/v1/completions","body":)"
                      R"({{"prompt":[5],"max_tokens":400,"ignore_eos":true}}}})"
                      "\n",
                      i);
    }
    job_->write_input(input);
  }
  const LauncherJob& job() const { return *job_; }

  /// Runs the shell commands in the job's folder beside `nodes` idle nodes; `login` stands for the
  /// words that run a command on the login node. Returns what they printed.
  std::string run(int nodes, const std::string& commands) const {
    std::ofstream(job().folder() / "script.sh")
        << "cd " << job().folder().string() << "\n"
        << "export XDG_STATE_HOME=$PWD/home\n"
        << "login() { /run/slurm/on-login \"$@\"; }\n"
        // A requeued job would be another one than that which was stopped.
        << "wait_for() { for i in $(seq 400); do eval \"$1\" && return; sleep 0.1; done; "
           "echo \"not within 40 s: $1\"; squeue; tail -n 20 *.log out*.job/*.log; exit 9; }\n"
        << "set -e\n"
        << commands;
    const auto command = fmt::format("timeout 100 " TROUPE_SOURCE_DIR
                                     "/tests/support/hosts/with-slurm --no-allocation {} bash "
                                     "{}/script.sh >{}/slurm.log 2>&1",
                                     nodes, job().folder().string(), job().folder().string());
    const int code = std::system(command.c_str());
    const std::string printed = golden::file_bytes(job().folder() / "slurm.log");
    EXPECT_EQ(code, 0) << printed;
    return printed;
  }

 private:
  std::optional<LauncherJob> job_;
};

/// Waits until the job has answers, looks at it from the login node, stops it from there, and waits
/// until Slurm has no job any more.
constexpr const char* look_and_stop =
    "wait_for '[ -s out.jsonl ]'\n"
    "login " TROUPE_TOOL
    " status\n"
    "login " TROUPE_TOOL
    " actors\n"
    "login " TROUPE_TOOL
    " logs driver -n 3\n"
    "login " TROUPE_LAUNCHER
    " stop --wait 40\n"
    "login " TROUPE_TOOL
    " status\n"
    "wait_for '[ -z \"$(squeue --noheader)\" ]'\n";

void expect_seen_and_stopped(const std::string& printed) {
  EXPECT_THAT(printed, ContainsRegex("NAME +HOST +PID"));
  EXPECT_THAT(printed, ContainsRegex("executor +Executor"));
  EXPECT_THAT(printed, HasSubstr("has ended"));
  EXPECT_THAT(printed, HasSubstr("no cluster of yours runs"));
}

TEST_F(StateInSlurm, a_submitted_job_over_two_nodes_is_seen_and_stopped_from_a_login_node) {
  const std::string printed =
      run(2, std::string("login " TROUPE_LAUNCHER " submit --config cluster.yaml --set "
                         "engine.max_num_seqs=1 --set parallel.pipeline_parallel_size=2 -- "
                         "--nodes=2\n") +
                 look_and_stop);
  expect_seen_and_stopped(printed);
  EXPECT_THAT(printed, ContainsRegex("n2 +agent-n2|worker-1"));
}

TEST_F(StateInSlurm, a_submitted_job_on_one_node_is_seen_and_stopped_from_a_login_node) {
  expect_seen_and_stopped(
      run(1, std::string("login " TROUPE_LAUNCHER " submit --config cluster.yaml --set "
                         "engine.max_num_seqs=1 -- --nodes=1\n") +
                 look_and_stop));
}

TEST_F(StateInSlurm, a_job_that_knows_nothing_of_slurm_is_seen_and_stopped_from_a_login_node) {
  expect_seen_and_stopped(
      run(1, std::string("login sbatch --wrap '" TROUPE_LAUNCHER " --config cluster.yaml --set "
                         "engine.max_num_seqs=1'\n") +
                 look_and_stop));
}

TEST_F(StateInSlurm, a_job_in_an_allocation_is_seen_by_a_step_of_it) {
  const std::string printed =
      run(1, "salloc --quiet --nodes=1 sh -c '" TROUPE_LAUNCHER
             " --config cluster.yaml --set cluster.launch=slurm --set engine.max_num_seqs=1 & "
             "for i in $(seq 400); do [ -s out.jsonl ] && break; sleep 0.1; done; "
             "srun --overlap " TROUPE_TOOL " status; srun --overlap " TROUPE_TOOL " stop; wait'\n");
  EXPECT_THAT(printed, ContainsRegex("NAME +HOST +PID"));
  EXPECT_THAT(printed, HasSubstr("has ended"));
}

}  // namespace
}  // namespace troupe::launcher_test
