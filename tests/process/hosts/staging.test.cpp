#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/hosts/support/host_change.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Hosts h1 and h2 with disks of their own at /mnt, where copies go, and no checkpoint on h2.
class HostStaging : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
  }

  static std::string hidden_model() { return "mount -t tmpfs none " + demo_model().string(); }
  static std::string shown_model() { return "umount " + demo_model().string(); }
  static std::string disk(const std::string& size) {
    return "mount -t tmpfs -o size=" + size + " none /mnt";
  }

  static std::vector<std::string> settings() {
    return as_arguments({"cluster.launch=ssh", "cluster.hosts=[h1, h2]",
                         "parallel.pipeline_parallel_size=2", "model.stage=copy",
                         "model.stage_folder=/mnt/copies"});
  }
};

TEST_F(HostStaging, copies_the_checkpoint_to_the_host_without_it_and_links_it_on_the_other) {
  const test::HostChange hidden(2, hidden_model(), shown_model());
  const test::HostChange first(1, disk("100m"), "umount /mnt");
  const test::HostChange second(2, disk("100m"), "umount /mnt");
  const LauncherJob job;
  job.write_input(golden_input());
  const Ended ended = job.run(settings());
  ASSERT_EQ(ended.code, 0) << ended.describe();
  expect_same_payloads(answers_to(golden_input()), job.answers(), "a copied checkpoint");
  test::on_host(1, "test -L /mnt/copies/fable-moe-*");
  test::on_host(2, "test $(stat -c %a /mnt/copies) = 700 && test $(ls /mnt/copies | wc -l) = 1");

  // The copy is kept: it is neither sent nor written again.
  test::on_host(2, "mount -o remount,ro /mnt");
  const Ended again =
      job.run_plain({"check", "--config", "cluster.yaml", "--set", "cluster.launch=ssh", "--set",
                     "cluster.hosts=[h1, h2]", "--set", "model.stage=copy", "--set",
                     "model.stage_folder=/mnt/copies"});
  EXPECT_EQ(again.code, 0) << again.describe();
  EXPECT_THAT(again.out, Not(HasSubstr("  copy\n")));
  auto arguments = settings();
  arguments.emplace_back("--overwrite");
  const Ended second_run = job.run(arguments);
  ASSERT_EQ(second_run.code, 0) << second_run.describe();
  expect_same_payloads(answers_to(golden_input()), job.answers(), "a copy that was there");
}

TEST_F(HostStaging, copies_the_checkpoint_once_for_hosts_that_share_the_folder) {
  const test::HostChange first(1, hidden_model(), shown_model());
  const test::HostChange second(2, hidden_model(), shown_model());
  const test::HostChange third(3, hidden_model(), shown_model());
  const LauncherJob job;
  job.write_input(golden_input());
  const auto folder = job.folder() / "copies";  // the same one on h1 and h2
  std::filesystem::create_directory(folder);
  const test::HostChange disk_of_third(3, "mount -t tmpfs none " + folder.string(),
                                       "umount " + folder.string());
  auto arguments = settings();
  arguments.insert(arguments.end(), {"--set", "cluster.hosts=[h1, h2, h3]", "--set",
                                     "parallel.pipeline_parallel_size=3", "--set",
                                     "model.stage_folder=" + folder.string()});
  const Ended ended = job.run(arguments);
  ASSERT_EQ(ended.code, 0) << ended.describe();
  expect_same_payloads(answers_to(golden_input()), job.answers(), "a shared copy");
  std::vector<std::filesystem::path> left(std::filesystem::directory_iterator(folder), {});
  ASSERT_EQ(left.size(), 1U);
  EXPECT_THAT(left.front().filename(), ::testing::StartsWith("fable-moe-"));
  std::uint64_t copy_bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(left.front())) {
    copy_bytes += file.file_size();
  }
  EXPECT_THAT(job.log("launcher"),
              HasSubstr(fmt::format("copied the checkpoint 2 times for 3 nodes, {} bytes in all",
                                    2 * copy_bytes)));
}

TEST_F(HostStaging, refuses_a_host_whose_disk_is_full_before_anything_is_copied) {
  const test::HostChange hidden(2, hidden_model(), shown_model());
  const test::HostChange first(1, disk("1m"), "umount /mnt");  // needs no room for a link
  const test::HostChange second(2, disk("1m"), "umount /mnt");
  const LauncherJob job;
  job.write_input(golden_input());
  auto check = settings();
  check.insert(check.begin(), "check");
  const Ended checked = job.run(check);
  EXPECT_EQ(checked.code, 2) << checked.describe();
  EXPECT_THAT(checked.err, HasSubstr("h2: 1.00 MiB are free in /mnt/copies, but the copy of the "
                                     "checkpoint takes 15.8 MiB: free space there"));
  EXPECT_THAT(checked.err, Not(HasSubstr("h1: ")));
  const Ended ran = job.run(settings());
  EXPECT_EQ(ran.code, 3) << ran.describe();
  EXPECT_THAT(ran.err, HasSubstr("h2: 1.00 MiB are free"));
  test::on_host(2, "test -z \"$(ls /mnt)\"");
}

TEST(HostInit, writes_a_configuration_for_hosts_that_runs_on_them) {
  if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
  const LauncherJob job;
  job.write_input(golden_input());
  const Ended written = job.run_plain({"init", "--model", demo_model().string(), "--hosts",
                                       "h1,root@h2:22", "--output", "mine.yaml"});
  ASSERT_EQ(written.code, 0) << written.describe();
  const Ended ended =
      job.run_plain({"--config", "mine.yaml", "--input", "in.jsonl", "--output", "out.jsonl"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  expect_same_payloads(answers_to(golden_input()), job.answers(), "what init wrote for two hosts");
  EXPECT_TRUE(std::filesystem::exists(job.folder() / "out.jsonl.job" / "agent-h2.log"));
}

TEST_F(HostStaging, refuses_a_copy_that_is_damaged) {
  const test::HostChange first(1, disk("100m"), "umount /mnt");
  const LauncherJob job;
  job.write_input(golden_input());
  auto arguments = settings();
  arguments.insert(arguments.end(),
                   {"--set", "cluster.hosts=[h1]", "--set", "parallel.pipeline_parallel_size=1"});
  {
    const test::HostChange hidden(1, hidden_model(), shown_model());
    const Ended ended = job.run(arguments);
    ASSERT_EQ(ended.code, 0) << ended.describe();
  }
  test::on_host(1, "cp /etc/hostname /mnt/copies/fable-moe-*/config.json");
  arguments.emplace_back("--overwrite");
  const Ended ended = job.run(arguments);
  EXPECT_EQ(ended.code, 3) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("is damaged: remove it"));
}

}  // namespace
}  // namespace troupe::launcher_test
