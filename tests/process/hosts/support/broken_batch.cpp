#include "tests/process/hosts/support/broken_batch.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/process/shell_word.hpp"
#include "tests/process/hosts/support/cluster_settings.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/dev_shm.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

constexpr int hosts = 4;

std::vector<std::string> arguments_of(const BrokenBatch& batch) {
  std::vector<std::string> words{
      "bench",       "faults",    "--config",      "cluster.yaml",
      "--json",      "f.json",    "--num-prompts", "12",
      "--input-len", "10:40",     "--output-len",  "20:80",
      "--interval",  "0.5",       "--outage",      "3",
      "--kinds",     batch.kinds, "--count",       std::to_string(batch.faults)};
  if (batch.kinds.find("link") != std::string::npos) {
    words.insert(words.end(), {"--link-device", "eth0"});
  }
  std::vector<std::string> settings;
  if (batch.starter == "ssh") {
    settings = on_hosts(hosts, 1);
  } else {
    settings = {"cluster.launch=slurm", "cluster.network=lo", "cluster.devices_per_node=1"};
  }
  for (const std::string& size : batch.parallel) settings.push_back("parallel." + size);
  for (std::string& word : as_arguments(settings)) words.push_back(std::move(word));
  return words;
}

void expect_nothing_left_on_hosts(const LauncherJob& job) {
  EXPECT_THAT(processes_left_in(job.folder(), std::chrono::seconds(5)), ElementsAre());
  for (int host = 1; host <= hosts; ++host) {
    EXPECT_NO_THROW(test::on_host(host, "! grep @ /proc/net/unix")) << "an abstract socket";
    EXPECT_NO_THROW(test::on_host(host, "! ss -Hltn | grep -v \":22 \"")) << "a port";
  }
}

/// Runs the launcher with `words` on four nodes of Slurm, and expects that no process is left.
void run_in_slurm(const LauncherJob& job, const std::vector<std::string>& words) {
  std::string command = shell_word(TROUPE_LAUNCHER);
  for (const std::string& word : words) {
    command += ' ';
    command += shell_word(word);
  }
  std::ofstream(job.folder() / "script.sh")
      << command << "\ncode=$?\n"
      << "for i in $(seq 50); do ps -eo args | grep '^troupe: ' || exit $code; sleep 0.1; done\n"
      << "exit 9\n";
  const auto run = fmt::format("cd {} && timeout 800 " TROUPE_SOURCE_DIR
                               "/tests/support/hosts/with-slurm {} bash script.sh >slurm.log 2>&1",
                               shell_word(job.folder().string()), hosts);
  const int code = std::system(run.c_str());
  std::printf("%s\n", golden::file_bytes(job.folder() / "slurm.log").c_str());
  ASSERT_EQ(code, 0);
}

void run_over_ssh(const LauncherJob& job, const std::vector<std::string>& words) {
  LauncherProcess process(words, job.folder(), job.folder().parent_path());
  const Ended ended = process.wait(std::chrono::seconds(800) * test::time_scale);
  std::printf("%s%s\n", ended.err.c_str(), ended.out.c_str());
  ASSERT_EQ(ended.code, 0);
  expect_nothing_left_on_hosts(job);
}

}  // namespace

std::string missing_for(const BrokenBatch& batch) {
  if (batch.starter == "ssh") return test::missing_hosts();
  return test::missing_slurm();
}

void expect_survived(const LauncherJob& job, const BrokenBatch& batch) {
  const auto words = arguments_of(batch);
  ASSERT_NO_FATAL_FAILURE(batch.starter == "ssh" ? run_over_ssh(job, words)
                                                 : run_in_slurm(job, words));
  json found = json::parse(golden::file_bytes(job.folder() / "f.json"), nullptr, false);
  ASSERT_FALSE(found.is_discarded()) << "no figures";
  EXPECT_EQ(found["faults"].size(), static_cast<std::size_t>(batch.faults));
  EXPECT_TRUE(found["is_complete"]);
  EXPECT_EQ(found["answers_different"], 0) << found["differences"];
  EXPECT_GT(found["answers_compared"], 0);
  for (const json& fault : found["faults"]) {
    EXPECT_TRUE(fault["noticed_ms"].is_number()) << fault;
    EXPECT_TRUE(fault["next_step_seconds"].is_number()) << fault;
  }
  EXPECT_EQ(test::dev_shm_entries(), std::vector<std::string>());
}

}  // namespace troupe::launcher_test
