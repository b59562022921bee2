#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/hosts/support/host_job.hpp"

// Jobs that go on with fewer replicas while nodes are missing, and with more once they are back.

namespace troupe::launcher_test {
namespace {

using namespace std::chrono_literals;
using test::CutLink;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Elastic : public HostJob {
 protected:
  /// A job of replicas that has begun to answer `input`.
  void start(const std::string& input, std::vector<std::string> settings, int replicas = 2) {
    settings.insert(settings.begin(), "cluster.elastic=true");
    settings.push_back(fmt::format("parallel.data_parallel_size={}", replicas));
    HostJob::start(input, std::move(settings));
  }
};

TEST_F(Elastic, job_hands_the_requests_of_a_lost_host_to_the_other_replica) {
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), on_hosts(2, 1)));
  const CutLink cut(2);
  const Ended ended = wait();
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("step domain 1 on 'h2' is dropped: 1 of 2 step domains serve; its "),
                    HasSubstr("unanswered requests go to the others"),
                    HasSubstr("it comes back as soon as there is a node"),
                    Not(HasSubstr("waiting at most"))));
  const nlohmann::json found = changes();
  ASSERT_EQ(found.size(), 1U) << found;
  EXPECT_EQ(found[0].at("change"), "dropped");
  EXPECT_EQ(found[0].at("domain"), 1);
  EXPECT_GT(found[0].at("requests"), 0);
}

TEST_F(Elastic, job_takes_a_host_back_that_is_there_again) {
  // One replica has to have work left when the other one is back.
  ASSERT_NO_FATAL_FAILURE(start(long_input(400), on_hosts(2, 1)));
  {
    const CutLink cut(2);
    ASSERT_TRUE(is_told("step domain 1 on 'h2' is dropped")) << job_.log();
  }
  ASSERT_TRUE(is_told("step domain 1 is back on 'h2' after")) << job_.log();
  // Only that one is left now, and finishes the batch.
  const CutLink cut(1);
  const Ended ended = wait();
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
  EXPECT_THAT(ended.err, HasSubstr("step domain 0 on 'h1' is dropped: 1 of 2"));
}

TEST_F(Elastic, job_gives_a_dropped_replica_to_an_agent_that_joins) {
  for (const int host : {1, 2}) let_join(host);
  ASSERT_NO_FATAL_FAILURE(start(long_input(), joined_by(2)));
  const std::string lost = process_named("worker-1 on h2") != 0 ? "h2" : "h1";
  ASSERT_NO_FATAL_FAILURE(kill_agent_with("worker-1 on " + lost));
  ASSERT_TRUE(is_told("step domain 1 on '" + lost + "' is dropped")) << job_.log();
  ASSERT_TRUE(is_told("on a node that is to take its place run:\n  launcher agent --join "));
  let_join(3);
  ASSERT_TRUE(is_told("step domain 1 is back on 'h3' after")) << job_.log();
  ASSERT_TRUE(is_logged("step domain 1 has answered a request")) << job_.log();
  ASSERT_NO_FATAL_FAILURE(kill_agent_with("worker-0 on "));
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(wait()));
  EXPECT_THAT(agents_.back()->log(), HasSubstr("worker-1"));
  const auto first = first_answers(changes());
  ASSERT_TRUE(first.contains("h3")) << changes();
  EXPECT_LE(first.at("h3"), 5s * test::time_scale);
}

TEST_F(Elastic, job_refuses_an_agent_of_another_build_and_goes_on) {
  for (const int host : {1, 2}) let_join(host);
  ASSERT_NO_FATAL_FAILURE(start(long_input(), joined_by(2)));
  ASSERT_NO_FATAL_FAILURE(kill_agent_with("worker-1 on "));
  ASSERT_TRUE(is_told("is dropped: 1 of 2 step domains serve")) << job_.log();
  const auto other = join(3, std::filesystem::canonical("/proc/self/exe").string());
  EXPECT_EQ(other->wait(), 1);
  EXPECT_TRUE(is_told("not taken: ")) << job_.log();
  const Ended ended = wait();
  expect_all_answers(ended);
  EXPECT_THAT(ended.err, HasSubstr("is of another build"));
}

TEST_F(Elastic, job_with_no_replica_left_waits_and_ends_resumable) {
  std::vector<std::string> settings = on_hosts(2, 1);
  settings.emplace_back("restart.wait_seconds=4");
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), settings));
  CutLink first(1), second(2);
  const Ended ended = wait();
  first.mend();
  second.mend();
  EXPECT_THAT(ended.err, HasSubstr("within restart.wait_seconds (4)"));
  expect_goes_on(ended);
}

TEST_F(Elastic, job_that_has_lost_all_hosts_goes_on_when_one_is_back) {
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), on_hosts(2, 1)));
  const CutLink first(1);
  CutLink second(2);
  ASSERT_TRUE(is_told("restart.wait_seconds")) << job_.log();
  second.mend();
  expect_all_answers(wait());
}

TEST_F(Elastic, job_survives_links_that_are_cut_again_and_again) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  std::vector<std::string> settings = on_hosts(3, 1);
  settings.emplace_back("restart.max=100");
  ASSERT_NO_FATAL_FAILURE(start(long_input(), settings, 3));
  for (int i = 0; i < 5 && !has_ended(); ++i) {
    const int host = 1 + static_cast<int>(random() % 3);
    // The first cut is so long that the job must notice it.
    const unsigned shortest = i == 0 ? 4000U : 1000U;
    const auto cut = std::chrono::milliseconds(shortest + random() % (7000 - shortest));
    std::printf("h%d is cut off for %d ms\n", host, static_cast<int>(cut.count()));
    {
      const CutLink link(host);
      // The length of the cut is what this test varies.
      std::this_thread::sleep_for(cut);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 3000));
  }
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(wait(2 * run_limit)));
  EXPECT_THAT(job_.log(), AnyOf(HasSubstr("recovered in "), HasSubstr("is dropped: ")))
      << "no loss was told";
}

TEST_F(Elastic, job_drops_all_replicas_that_share_experts_together) {
  std::vector<std::string> settings = on_hosts(2, 2);
  settings.emplace_back("parallel.expert_parallel_size=2");
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), settings, 4));
  const CutLink cut(2);
  const Ended ended = wait();
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
  EXPECT_THAT(ended.err, HasSubstr("step domain 1 on 'h2' is dropped: 1 of 2 step domains serve"));
}

TEST_F(Elastic, job_makes_one_replica_of_the_hosts_that_two_have_left) {
  std::vector<std::string> settings = on_hosts(4, 1);
  settings.emplace_back("parallel.pipeline_parallel_size=2");
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), settings));
  const CutLink second(2), third(3);
  const Ended ended = wait();
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
  EXPECT_THAT(ended.err, HasSubstr("is dropped: "));
  const nlohmann::json found = changes();
  ASSERT_EQ(found.size(), 1U) << found;
  EXPECT_EQ(found[0].at("change"), "dropped");
  EXPECT_EQ(found[0].at("domains"), 2);
}

TEST_F(Elastic, job_lets_a_node_go_and_takes_another_one_in) {
  for (const int host : {1, 2}) let_join(host);
  ASSERT_NO_FATAL_FAILURE(start(long_input(), joined_by(2)));
  const bool is_second = process_named("worker-1 on h2") != 0;
  const std::string node = is_second ? "h2" : "h1";
  const Ended unknown = drain("h9");
  EXPECT_EQ(unknown.code, 2) << unknown.describe();
  EXPECT_THAT(unknown.err, HasSubstr("no node is named 'h9'; there is "));
  const Ended drained = drain(node);
  ASSERT_EQ(drained.code, 0) << drained.describe();
  EXPECT_THAT(drained.out, HasSubstr("node '" + node +
                                     "' is drained; step domain 1 is dropped; 1 "
                                     "of 2 step domains serve"));
  EXPECT_EQ(agents_[is_second ? 1 : 0]->wait(), 0) << "its agent ends in order";
  const Ended last = drain(is_second ? "h1" : "h2");
  EXPECT_EQ(last.code, 2) << last.describe();
  EXPECT_THAT(last.err, HasSubstr("no other step domain serves at the moment"));
  let_join(3);
  ASSERT_TRUE(is_told("step domain 1 is back on 'h3' after")) << job_.log();
  const Ended ended = wait();
  expect_all_answers(ended);
  EXPECT_THAT(ended.err, HasSubstr("node '" + node + "' is drained"));
  EXPECT_THAT(job_.log(), Not(HasSubstr("the agent of node '" + node + "' is gone")));
  EXPECT_EQ(report().at("recoveries").at("count"), 0);
}

TEST_F(Elastic, job_takes_a_host_in_that_its_configuration_does_not_name) {
  ASSERT_NO_FATAL_FAILURE(start(long_input(), on_hosts(2, 1)));
  const Ended full = command({"join", pid(), "h3"});
  EXPECT_EQ(full.code, 2) << full.describe();
  EXPECT_THAT(full.err, HasSubstr("all 2 nodes are there"));
  const Ended drained = drain("h2");
  ASSERT_EQ(drained.code, 0) << drained.describe();
  const Ended joined = command({"join", pid(), "root@h3:22"});
  ASSERT_EQ(joined.code, 0) << joined.describe() << job_.log();
  EXPECT_THAT(joined.out, HasSubstr("h3 has come"));
  ASSERT_TRUE(is_told("step domain 1 is back on 'h3' after")) << job_.log();
  expect_all_answers(wait());
}

TEST_F(Elastic, job_takes_a_drained_node_back) {
  ASSERT_NO_FATAL_FAILURE(start(long_input(), on_hosts(2, 1)));
  const Ended drained = drain("h2");
  ASSERT_EQ(drained.code, 0) << drained.describe();
  const Ended joined = command({"join", pid()});
  ASSERT_EQ(joined.code, 0) << joined.describe() << job_.log();
  ASSERT_TRUE(is_told("step domain 1 is back on 'h2' after")) << job_.log();
  expect_all_answers(wait());
}

TEST_F(Elastic, job_moves_what_a_drained_node_had_to_a_spare_one) {
  std::vector<std::string> settings = on_hosts(3, 1);
  settings.emplace_back("cluster.spares=1");
  ASSERT_NO_FATAL_FAILURE(start(long_input(), settings));
  const Ended drained = drain("h2");
  ASSERT_EQ(drained.code, 0) << drained.describe();
  ASSERT_TRUE(is_told("step domain 1 is back on 'h3' after")) << job_.log();
  expect_all_answers(wait());
}

TEST_F(Elastic, job_alone_lets_a_node_with_workers_go) {
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), {"cluster.elastic=false"}));
  const Ended drained = drain("node0");
  EXPECT_EQ(drained.code, 2) << drained.describe();
  EXPECT_THAT(drained.err, HasSubstr("that takes cluster.elastic: true"));
  expect_all_answers(wait());
}

TEST_F(Elastic, or_not_a_job_gives_the_ranks_of_a_lost_host_to_a_spare_one_at_once) {
  std::vector<std::string> settings = on_hosts(3, 1);
  settings.emplace_back("cluster.spares=1");
  settings.emplace_back("cluster.elastic=false");
  ASSERT_NO_FATAL_FAILURE(start(golden_input(), settings));
  EXPECT_EQ(process_named("worker-1 on h3"), 0);
  const CutLink cut(2);
  const Ended ended = wait();
  ASSERT_NO_FATAL_FAILURE(expect_all_answers(ended));
  EXPECT_THAT(job_.log("agent-h3"), HasSubstr("worker-1: "));
  EXPECT_THAT(job_.log(), Not(HasSubstr("waiting for a node")));
}

TEST_F(Elastic, job_needs_to_be_allowed_to_recover) {
  job_.write_input(golden_input());
  EXPECT_THAT(
      job_.run({"--set", "cluster.elastic=true", "--set", "restart.max=0"}).describe(),
      HasSubstr("cluster.elastic: a job that may drop replicas must be able to recover: set "
                "restart.max, say to 10"));
}

}  // namespace
}  // namespace troupe::launcher_test
