#include <gmock/gmock.h>

#include "tests/process/runtime/state/state_fixture.hpp"

namespace troupe::test {
namespace {

using ::testing::HasSubstr;

/// Files of clusters that have ended without removing them.
class LeftFiles : public State {
 protected:
  ClusterFile file_of_program() const {
    const auto path = std::filesystem::directory_iterator(clusters())->path();
    auto file = ClusterFile::parse(text_of(path));
    if (!file.ok()) throw std::runtime_error(file.error().message);
    return *std::move(file);
  }
  /// Writes a file, as a driver does.
  void leave(const ClusterFile& file) const {
    const auto path = clusters() / file.file_name();
    std::ofstream(path) << file.text();
    std::filesystem::permissions(path, std::filesystem::perms(0600));
  }
  json status(std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"status", "--json"});
    return json::parse(troupe(options).text);
  }
};

TEST_F(LeftFiles, a_cluster_of_before_a_reboot_is_known_to_have_ended) {
  const auto program = start_program("one");
  ClusterFile before = file_of_program();
  before.name = "before";
  before.id = "0b";
  before.driver.boot = "11111111-2222-3333-4444-555555555555";
  leave(before);
  const Said said = troupe({"status"});
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_THAT(said.text, HasSubstr("before (pid " + std::to_string(program.pid())));
  EXPECT_THAT(said.text, HasSubstr("has ended and left its file, which is removed"));
  EXPECT_EQ(files(), 1U);
  leave(before);
  const json again = status();
  ASSERT_EQ(again["ended"].size(), 1U);
  EXPECT_EQ(again["ended"][0]["name"], "before");
  ASSERT_EQ(again["clusters"].size(), 1U);
  EXPECT_EQ(again["clusters"][0]["name"], "one");
}

TEST_F(LeftFiles, the_next_cluster_of_the_machine_removes_them) {
  {
    const auto program = start_program("one");
    ClusterFile before = file_of_program();
    before.id = "0b";
    before.driver.boot = "11111111-2222-3333-4444-555555555555";
    leave(before);
    EXPECT_EQ(files(), 2U);
  }  // killed: it leaves its own
  EXPECT_EQ(files(), 2U);
  const auto next = start_program("two");
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(status()["clusters"][0]["name"], "two");
}

TEST_F(LeftFiles, those_of_other_machines_go_only_if_they_are_named_and_do_not_answer) {
  const auto program = start_program("one");
  ClusterFile elsewhere = file_of_program();
  elsewhere.driver.machine = "another machine";
  elsewhere.driver.boot = "11111111-2222-3333-4444-555555555555";
  elsewhere.host = "elsewhere";
  elsewhere.port = 1;
  elsewhere.name = "on-its-loopback";
  elsewhere.id = "01";
  leave(elsewhere);
  elsewhere.name = "killed";
  elsewhere.id = "02";
  elsewhere.address = "0.0.0.0";  // this machine, but not said to be its loopback
  leave(elsewhere);
  json shown = status();
  ASSERT_EQ(shown["clusters"].size(), 3U);
  for (const auto& cluster : shown["clusters"]) {
    EXPECT_EQ(cluster["answers"], cluster["name"] == "one") << cluster;
  }
  const Said refused = troupe({"status", "killed"});
  EXPECT_THAT(refused.text, HasSubstr("or a firewall"));
  EXPECT_THAT(refused.text, HasSubstr("--clean"));
  EXPECT_EQ(troupe({"status", "--clean"}).code, 2) << "a refused connection proves nothing";
  const std::string place = "elsewhere:" + std::to_string(program.pid());
  EXPECT_EQ(troupe({"status", "--clean", place}).code, 2) << "two are meant";
  EXPECT_EQ(files(), 3U);
  const Said said = troupe({"status", "--clean", "killed"});
  EXPECT_EQ(said.code, 0) << said.text;
  EXPECT_THAT(said.text, HasSubstr("its file is removed"));
  EXPECT_EQ(files(), 2U);
  EXPECT_EQ(troupe({"nodes"}).code, 0) << "the only one that answers is meant";
  EXPECT_EQ(troupe({"stop"}).code, 2) << "but not to be ended";
  shown = status({"--clean", "on-its-loopback"});
  EXPECT_EQ(shown["clusters"][0]["removed"], true) << shown;
  EXPECT_EQ(files(), 1U);
}

TEST_F(LeftFiles, clean_leaves_the_file_of_a_cluster_that_runs) {
  const auto program = start_program("one");
  EXPECT_EQ(status({"--clean", "one"})["clusters"][0]["removed"], false);
  ASSERT_EQ(::kill(program.pid(), SIGSTOP), 0);
  const Said stopped = troupe({"status", "--clean", "one"});
  ASSERT_EQ(::kill(program.pid(), SIGCONT), 0);
  EXPECT_THAT(stopped.text, HasSubstr("its file stays"));
  EXPECT_EQ(files(), 1U);
}

TEST_F(LeftFiles, what_is_no_cluster_file_is_passed_over_with_the_reason) {
  const auto program = start_program("one");
  const std::string good = file_of_program().text();
  const auto bad = clusters() / "x-1-2.cluster";
  std::ofstream(bad) << "nonsense";
  std::filesystem::permissions(bad, std::filesystem::perms(0600));
  std::ofstream(clusters() / "y-1-2.cluster") << good;  // others may read it
  std::filesystem::create_symlink(bad, clusters() / "z-1-2.cluster");
  const Said said = troupe({"status"});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.text, HasSubstr("x-1-2.cluster is no file of a cluster"));
  EXPECT_THAT(said.text, HasSubstr("y-1-2.cluster can be read or written by others"));
  EXPECT_THAT(said.text, HasSubstr("z-1-2.cluster cannot be opened"));
  EXPECT_THAT(said.text, HasSubstr("one "));
  EXPECT_EQ(troupe({"nodes"}).code, 0);
}

}  // namespace
}  // namespace troupe::test
