#include <algorithm>
#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/hosts/support/host_change.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HostPreflight : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
  }

  /// A job of a stage on each of three hosts.
  static std::vector<std::string> on_three_hosts(std::vector<std::string> arguments = {},
                                                 const std::string& first = "h1") {
    arguments.insert(arguments.end(), {"--set", "cluster.launch=ssh", "--set",
                                       "cluster.hosts=[" + first + ", h2, h3]", "--set",
                                       "parallel.pipeline_parallel_size=3"});
    return arguments;
  }

  /// Expects `launcher check` to refuse, a run to break off before anything is loaded, and both to
  /// say all of `texts` in one line.
  static void expect_refused(const std::string& what, const std::vector<std::string>& texts,
                             const std::string& first = "h1",
                             const std::vector<std::string>& settings = {}) {
    const LauncherJob job;
    job.write_input(golden_input());
    std::vector<std::string> arguments;
    for (const std::string& setting : settings) {
      arguments.insert(arguments.end(), {"--set", setting});
    }
    std::vector<std::string> check{"check"};
    check.insert(check.end(), arguments.begin(), arguments.end());
    const Ended checked = job.run(on_three_hosts(check, first));
    EXPECT_EQ(checked.code, 2) << what << checked.describe();
    expect_line(checked.err, texts);
    const Ended ran = job.run(on_three_hosts(arguments, first));
    EXPECT_EQ(ran.code, 3) << what << ran.describe();
    expect_line(ran.err, texts);
    EXPECT_THAT(ran.err, Not(HasSubstr("worker-"))) << what;
    EXPECT_FALSE(std::filesystem::exists(job.output())) << what;
  }

  static void expect_line(const std::string& text, const std::vector<std::string>& parts) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const auto has = [&](const std::string& part) { return line.find(part) != line.npos; };
      if (std::ranges::all_of(parts, has)) return;
    }
    ADD_FAILURE() << "no line has all of " << testing::PrintToString(parts) << ":\n" << text;
  }
};

TEST_F(HostPreflight, shows_a_line_for_each_host_and_lets_good_ones_pass) {
  const LauncherJob job;
  job.write_input(golden_input());
  const Ended checked = job.run(on_three_hosts({"check"}));
  EXPECT_EQ(checked.code, 0) << checked.describe();
  EXPECT_THAT(
      checked.out,
      AllOf(HasSubstr("node         cores CPU    GPUs   memory     disk    clock latency   "
                      "MB/s  model\n"),
            HasSubstr("\nh1  "), HasSubstr("\nh3  "), HasSubstr("  same\n3 nodes looked at")));
  const auto begin = checked.out.find("3 nodes looked at in ");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_LT(std::stod(checked.out.substr(begin + 21)), 2.0 * test::time_scale);
}

TEST_F(HostPreflight, refuses_a_host_that_is_down) {
  test::set_link(2, false);
  expect_refused("down", {"h2", "ssh: connect to host h2", "take it out of cluster.hosts"});
  test::set_link(2, true);
}

TEST_F(HostPreflight, refuses_a_host_that_refuses_the_key) {
  const test::HostChange key(3, "mount --bind /dev/null /run/ssh/user_key.pub",
                             "umount /run/ssh/user_key.pub");
  expect_refused("the key", {"h3", "Permission denied", "ssh-copy-id h3"});
}

TEST_F(HostPreflight, refuses_a_host_with_fewer_gpus_than_workers) {
  const LauncherJob job;
  job.write_input(golden_input());
  const Ended checked =
      job.run({"check", "--set", "cluster.launch=ssh", "--set", "cluster.hosts=[h1]", "--set",
               "cluster.device=cuda", "--set", "cluster.devices_per_node=64", "--set",
               "parallel.data_parallel_size=64"});
  EXPECT_EQ(checked.code, 2) << checked.describe();
  expect_line(checked.err, {"h1: it has ", " that this build runs on, but 64 workers are to run",
                            "lower cluster.devices_per_node"});
}

TEST_F(HostPreflight, refuses_a_host_with_another_build) {
  const std::string here = std::filesystem::read_symlink("/proc/self/exe");
  const test::HostChange build(2, "mount --bind " + here + " " TROUPE_LAUNCHER,
                               "umount " TROUPE_LAUNCHER);
  expect_refused("another build", {"h2", "no program of this build", "cluster.copy_program: true"},
                 "h1", {"cluster.copy_program=false"});
}

TEST_F(HostPreflight, refuses_a_host_without_the_program) {
  const test::HostChange build(2, "mount --bind /dev/null " TROUPE_LAUNCHER,
                               "umount " TROUPE_LAUNCHER);
  expect_refused("no program", {"h2", "no program of this build", "install the same Troupe"}, "h1",
                 {"cluster.copy_program=false"});
}

TEST_F(HostPreflight, refuses_a_host_without_the_checkpoint_and_one_with_another) {
  const std::string model = demo_model();
  const test::HostChange gone(2, "mount -t tmpfs none " + model, "umount " + model);
  const test::HostChange other(3, "mount --bind /etc/hostname " + model + "/model.safetensors",
                               "umount " + model + "/model.safetensors");
  expect_refused("no checkpoint", {"h2: there is no checkpoint in ", "copy the launcher's there"});
  expect_refused("another checkpoint",
                 {"h3: ", "model.safetensors has ", " bytes, but the launcher's"});
}

TEST_F(HostPreflight, refuses_hosts_that_do_not_reach_each_other) {
  const test::HostChange wall(1, "ip route add blackhole 10.77.0.2",
                              "ip route del blackhole 10.77.0.2");
  expect_refused("a wall", {"h1: it does not reach h2", "cluster.ports"});
}

TEST_F(HostPreflight, refuses_a_low_limit_of_open_files) {
  // A hard limit that is once lowered stays so: a second sshd has the low one.
  const test::HostChange limit(
      1,
      "(ulimit -n 100 && /usr/sbin/sshd -f /run/ssh/sshd_config -p 2222 -o "
      "PidFile=/run/ssh/low.pid)"
      " && echo \"[h1]:2222 $(cut -d\\  -f1,2 /run/ssh/host_key.pub)\" >>~/.ssh/known_hosts",
      "kill $(cat /run/ssh/low.pid)");
  expect_refused("open files", {"h1: a process may have 100 open files", "ulimit -Hn"}, "h1:2222");
}

}  // namespace
}  // namespace troupe::launcher_test
