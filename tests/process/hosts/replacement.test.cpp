#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/hosts/support/host_change.hpp"
#include "tests/process/hosts/support/host_job.hpp"
#include "tests/support/hosts/test_hosts.hpp"

// Nodes that come in place of lost ones are judged as those at the start.

namespace troupe::launcher_test {
namespace {

using ::testing::HasSubstr;

std::string hide(const std::filesystem::path& folder) {
  return "mount -t tmpfs none " + folder.string();
}
std::string show(const std::filesystem::path& folder) { return "umount " + folder.string(); }

class Replacement : public HostJob {
 protected:
  /// A job of two tensor ranks, one on each of two hosts, that has begun to answer.
  void start(std::vector<std::string> settings) {
    settings.emplace_back("parallel.tensor_parallel_size=2");
    HostJob::start(golden_input(), std::move(settings));
  }
  /// The same with agents that join from h1 and h2.
  void start_joined() {
    for (const int host : {1, 2}) let_join(host);
    ASSERT_NO_FATAL_FAILURE(start(joined_by(2)));
  }
  static void kill_agent_of(const std::string& host) {
    const bool has_first = process_named("worker-0 on " + host) != 0;
    kill_agent_with((has_first ? "worker-0 on " : "worker-1 on ") + host);
  }
};

TEST_F(Replacement, that_joins_is_judged_and_the_wait_goes_on_after_those_that_are_refused) {
  ASSERT_NO_FATAL_FAILURE(start_joined());
  ASSERT_NO_FATAL_FAILURE(kill_agent_of("h2"));
  ASSERT_TRUE(
      is_told("for a node in place of 'h2'; on a node that is to take its place run:\n"
              "  launcher agent --join 10.77.0.254:7070 --token-file "))
      << job_.log();
  const auto of_another_build = join(3, std::filesystem::canonical("/proc/self/exe").string());
  EXPECT_EQ(of_another_build->wait(), 1);
  EXPECT_TRUE(is_told("is of another build")) << job_.log();
  {
    const test::HostChange gone(3, hide(demo_model()), show(demo_model()));
    const auto without_model = join(3);
    EXPECT_EQ(without_model->wait(), 2);
    EXPECT_THAT(without_model->log(), HasSubstr("this node is refused: there is no checkpoint in"));
    EXPECT_TRUE(is_told("refused h3: there is no checkpoint in")) << job_.log();
  }
  const auto good = join(3);
  const Ended ended = wait();
  expect_all_answers(ended);
  EXPECT_THAT(ended.err, HasSubstr("; the wait goes on"));
  EXPECT_THAT(ended.err, HasSubstr("'h3' takes the place of 'h2'"));
  EXPECT_THAT(good->log(), HasSubstr("worker-"));
}

TEST_F(Replacement, that_joins_before_the_loss_is_found_out_gets_the_place) {
  ASSERT_NO_FATAL_FAILURE(start_joined());
  const auto early = join(3);
  ASSERT_TRUE(is_logged("an agent on h3 waits for a place"));
  ASSERT_NO_FATAL_FAILURE(kill_agent_of("h2"));
  expect_all_answers(wait());
  EXPECT_THAT(early->log(), HasSubstr("worker-"));
}

TEST_F(Replacement, gets_the_checkpoint_where_that_is_copied) {
  const test::HostChange hidden(3, hide(demo_model()), show(demo_model()));
  std::vector<std::unique_ptr<test::HostChange>> disks;
  for (const int host : {1, 2, 3}) {
    disks.push_back(std::make_unique<test::HostChange>(
        host, "mount -t tmpfs -o size=100m none /mnt", "umount /mnt"));
  }
  for (const int host : {1, 2}) let_join(host);
  std::vector<std::string> joined = joined_by(2);
  joined.emplace_back("model.stage=copy");
  joined.emplace_back("model.stage_folder=/mnt/copies");
  ASSERT_NO_FATAL_FAILURE(start(joined));
  ASSERT_NO_FATAL_FAILURE(kill_agent_of("h2"));
  ASSERT_TRUE(is_told("for a node in place of 'h2'")) << job_.log();
  const auto instead = join(3);
  expect_all_answers(wait());
  EXPECT_THAT(instead->log(), HasSubstr("worker-"));
  test::on_host(3, "ls /mnt/copies/fable-moe-*/config.json && ! test -L /mnt/copies/fable-moe-*");
}

TEST_F(Replacement, that_is_started_again_is_judged_as_well) {
  ASSERT_NO_FATAL_FAILURE(start(on_hosts(2, 1)));
  {
    const test::HostChange gone(2, hide(demo_model()), show(demo_model()));
    ASSERT_NO_FATAL_FAILURE(kill_agent_of("h2"));
    ASSERT_TRUE(is_told("refused h2: there is no checkpoint in")) << job_.log();
  }
  const Ended ended = wait();
  expect_all_answers(ended);
  EXPECT_THAT(ended.err, HasSubstr("'h2' takes the place of 'h2'"));
}

}  // namespace
}  // namespace troupe::launcher_test
