#include <cstdlib>
#include <deque>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/hosts/support/joining_agent.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

// Each arrangement over 1, 2 and 4 hosts, started in each of the ways, with a model with experts
// and a dense one. Over as many hosts as ranks, tensor groups are split over hosts, too.

namespace troupe::launcher_test {
namespace {

struct Case {
  std::string model;
  Topology topology;
  int hosts = 1;
  std::string starter;  ///< ssh, slurm, join

  friend void PrintTo(const Case& of, std::ostream* out) {
    *out << of.topology.name << " over " << of.hosts << " by " << of.starter;
  }
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& of = info.param;
  return golden::name_in_test(
      fmt::format("{}_{}_over_{}_by_{}", of.model, of.topology.name, of.hosts, of.starter));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string starter : {"ssh", "slurm", "join"}) {
    for (const std::string model : {"fable-moe", "fable-dense"}) {
      for (const Topology& topology : topologies()) {
        if (topology.experts && model == "fable-dense") continue;
        for (const int hosts : {1, 2, 4}) {
          if (hosts <= workers_of(topology)) all.push_back({model, topology, hosts, starter});
        }
      }
    }
  }
  return all;
}

const Answers& answers_of_one_worker(const golden::GoldenModel& model) {
  static std::map<std::string, Answers> found;
  const auto [place, is_new] = found.try_emplace(model.name);
  if (is_new) place->second = answers_to(golden_input(), {}, 0, model.checkpoint);
  return place->second;
}

void run_by_ssh(const LauncherJob& job, const std::vector<std::string>& arguments) {
  const Ended ended = job.run(arguments);
  ASSERT_EQ(ended.code, 0) << ended.describe();
}

void run_by_join(const LauncherJob& job, int nodes, const std::vector<std::string>& arguments) {
  write_token(job.folder() / "job.token", 'a');
  std::deque<JoiningAgent> agents;
  for (int host = 1; host <= nodes; ++host) agents.emplace_back(job, host, "job.token");
  const Ended ended = job.run(arguments);
  ASSERT_EQ(ended.code, 0) << ended.describe() << agents.front().log();
  for (JoiningAgent& agent : agents) EXPECT_EQ(agent.wait(), 0) << agent.log();
}

void run_by_slurm(const LauncherJob& job, int nodes, const std::vector<std::string>& arguments) {
  std::string words;
  for (const std::string& argument : arguments) words += fmt::format(" '{}'", argument);
  const auto command =
      fmt::format("cd {} && timeout 200 " TROUPE_SOURCE_DIR
                  "/tests/support/hosts/with-slurm {} " TROUPE_LAUNCHER
                  " --config cluster.yaml --set cluster.launch=slurm --set cluster.network=lo{} "
                  ">slurm.log 2>&1",
                  job.folder().string(), nodes, words);
  ASSERT_EQ(std::system(command.c_str()), 0) << golden::file_bytes(job.folder() / "slurm.log");
}

class HostsAndArrangements : public testing::TestWithParam<Case> {};

TEST_P(HostsAndArrangements, give_the_bytes_of_one_worker) {
  const Case& of = GetParam();
  if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
  if (of.starter == "slurm") {
    const auto missing = test::missing_slurm();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  const auto model = golden::golden_model(of.model);
  if (!model) GTEST_SKIP() << golden::missing_model_message(of.model);
  const Answers& one = answers_of_one_worker(*model);
  ASSERT_FALSE(one.empty());

  const LauncherJob job(model->checkpoint);
  job.write_input(golden_input());
  const int each = (workers_of(of.topology) + of.hosts - 1) / of.hosts;
  std::vector<std::string> settings = settings_of(of.topology);
  const auto add = [&](const std::vector<std::string>& more) {
    settings.insert(settings.end(), more.begin(), more.end());
  };
  if (of.starter == "ssh") {
    add(on_hosts(of.hosts, each));
    run_by_ssh(job, as_arguments(settings));
  } else {
    add({fmt::format("cluster.devices_per_node={}", each)});
    if (of.starter == "join") {
      add(joined_by(of.hosts));
      run_by_join(job, of.hosts, as_arguments(settings));
    } else {
      run_by_slurm(job, of.hosts, as_arguments(settings));
    }
  }
  expect_same_payloads(one, job.answers(), "several hosts");
}

INSTANTIATE_TEST_SUITE_P(Full, HostsAndArrangements, testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace troupe::launcher_test
