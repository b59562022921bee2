// Copies of the program for hosts that do not have it.
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/hosts/support/host_change.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/slow_link.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// An option of mount: room for the program's archive beside what is unpacked from it, both of
/// which sanitizers make larger than a gigabyte, and for the libraries that go with it.
std::string room_for_a_copy() {
  constexpr std::uintmax_t libraries = 1ull << 30;
  return fmt::format("size={}", 2 * std::filesystem::file_size(TROUPE_LAUNCHER) + libraries);
}

/// While it lives, a host has no program at the launcher's path, and a ~/.cache of its own.
class WithoutProgram {
 public:
  explicit WithoutProgram(int host, const std::string& cache_options = room_for_a_copy())
      : cache_(host, "mount -t tmpfs -o mode=0755," + cache_options + " none ~/.cache",
               "umount ~/.cache"),
        program_(host, "mount --bind /dev/null " TROUPE_LAUNCHER, "umount " TROUPE_LAUNCHER) {}

 private:
  const test::HostChange cache_, program_;
};

class ProgramCopies : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto missing = test::missing_hosts(); !missing.empty()) GTEST_SKIP() << missing;
    std::filesystem::create_directories(std::filesystem::path(std::getenv("HOME")) / ".cache");
  }

  static std::vector<std::string> on_two_hosts() {
    return {"--set", "cluster.launch=ssh",
            "--set", "cluster.hosts=[h1, h2]",
            "--set", "parallel.pipeline_parallel_size=2"};
  }
  /// Runs the job with a stage on each host, and expects the bytes of one worker; returns stderr.
  static std::string expect_answers(const std::string& what) {
    const LauncherJob job;
    job.write_input(golden_input());
    const Ended ended = job.run(on_two_hosts());
    EXPECT_EQ(ended.code, 0) << what << ended.describe();
    expect_same_payloads(answers_to(golden_input()), job.answers(), what);
    return ended.err;
  }
  static void expect_refused(const std::string& what, const std::string& why) {
    const LauncherJob job;
    job.write_input(golden_input());
    const Ended ended = job.run(on_two_hosts());
    EXPECT_EQ(ended.code, 3) << what << ended.describe();
    EXPECT_THAT(ended.err, HasSubstr(why)) << what;
  }

  static constexpr const char* copying = "copying the program to 1 host";
};

TEST_F(ProgramCopies, are_made_once_and_used_by_later_jobs) {
  const WithoutProgram host(2);
  // What a copier that was killed has left.
  test::on_host(2,
                "umask 077; mkdir -p ~/.cache/troupe/programs/.part-$(cat "
                "/proc/sys/kernel/random/boot_id)-$(readlink /proc/self/ns/pid | tr -dc 0-9)-"
                "999999/bin");
  EXPECT_THAT(expect_answers("a first job"), HasSubstr(copying));
  test::on_host(2, "! ls -a ~/.cache/troupe/programs | grep part");
  EXPECT_THAT(expect_answers("a second job"), Not(HasSubstr("copying")));
}

TEST_F(ProgramCopies, that_do_not_start_are_made_anew) {
  const WithoutProgram host(2);
  expect_answers("a first job");
  test::on_host(2, "truncate -s 1000 ~/.cache/troupe/programs/*/bin/launcher");
  EXPECT_THAT(expect_answers("a damaged program"), HasSubstr(copying));
}

TEST_F(ProgramCopies, that_find_no_room_are_refused_with_the_remedy) {
  const WithoutProgram host(2, "size=1m");
  expect_refused("a full disk",
                 "cannot write to /root/.cache/troupe/programs: No space left on device: make room "
                 "there, or set XDG_CACHE_HOME for ssh h2");
  test::on_host(2, "[ -z \"$(ls -A ~/.cache/troupe/programs)\" ]");
}

TEST_F(ProgramCopies, are_neither_made_nor_used_where_they_cannot_be_trusted) {
  const WithoutProgram host(2);
  test::on_host(2, "mkdir -p ~/.cache/troupe/programs && chmod 777 ~/.cache/troupe/programs");
  expect_refused("a folder of all", "others may write /root/.cache/troupe/programs: chmod go-w it");
  test::on_host(2, "chmod 700 ~/.cache/troupe/programs && chown ann ~/.cache/troupe/programs");
  expect_refused("a folder of ann's", "/root/.cache/troupe/programs belongs to somebody else");
}

TEST_F(ProgramCopies, that_do_not_run_there_are_refused) {
  const WithoutProgram host(2, "noexec");
  expect_refused("a folder without programs",
                 "Permission denied: set XDG_CACHE_HOME for ssh h2 to a folder that it can write "
                 "and execute");
}

TEST_F(ProgramCopies, end_with_ctrl_c) {
  if (const auto missing = test::missing_slow_links(); !missing.empty()) GTEST_SKIP() << missing;
  const WithoutProgram host(2);
  const test::SlowLink link(2, {.delay = std::chrono::milliseconds(1), .bytes_per_second = 1e6});
  const LauncherJob job;
  job.write_input(golden_input());
  const auto running = job.start(on_two_hosts());
  ASSERT_TRUE(running->wait_for_stderr(copying, run_limit));
  running->signal(SIGINT);
  const Ended ended = running->wait(run_limit);
  EXPECT_NE(ended.code, 0);
  EXPECT_LT(ended.seconds, 15 * test::time_scale) << ended.describe();
  EXPECT_TRUE(processes_left_in(job.folder(), std::chrono::seconds(3)).empty());
  // The host hears of it by its slow link, and then removes what has come.
  test::on_host(2,
                "for i in $(seq 200); do ls -a ~/.cache/troupe/programs | grep -q part || exit 0; "
                "sleep 0.1; done; exit 1");
}

}  // namespace
}  // namespace troupe::launcher_test
