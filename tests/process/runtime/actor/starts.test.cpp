#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/runtime/actor/test_actors.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::test {
namespace {

using ::testing::HasSubstr;

/// A cluster whose processes cannot be started while its folder of logs is not there.
class Starts : public testing::Test {
 protected:
  Starts() {
    ClusterOptions options;
    options.nodes = {{"node0", 200, {}}};
    options.log_folder = logs();
    std::filesystem::create_directory(logs());
    cluster_ = start_cluster(std::move(options));
    (void)must(cluster_->spawn<Counter>({}, 0).get(limit));  // the agent has opened its own log
  }
  std::string logs() const { return (folder_.path() / "logs").string(); }
  Cluster& cluster() { return *cluster_; }

 private:
  const tests::TemporaryFolder folder_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(Starts, that_fail_tell_all_actors_of_the_process_why_and_later_ones_succeed) {
  std::filesystem::rename(logs(), logs() + "-away");
  std::vector<Future<ActorHandle<Counter>>> spawned;
  for (int i = 0; i < 8; ++i) {  // two actors in each of four processes
    spawned.push_back(cluster().spawn<Counter>({.process = fmt::format("p{}", i / 2)}, i));
  }
  for (std::size_t i = 0; i < spawned.size(); ++i) {
    const auto failed = spawned[i].get(limit);
    ASSERT_FALSE(failed.ok());
    if (i % 2 != 0) continue;  // it may come when its process is gone already
    EXPECT_THAT(failed.error().message, HasSubstr("cannot open the log file"));
  }
  std::filesystem::rename(logs() + "-away", logs());
  const auto again = must(cluster().spawn<Counter>({.process = "p0"}, 7).get(limit));
  EXPECT_EQ(must(again.call<&Counter::add>(1).get(limit)), 8);
}

TEST_F(Starts, that_wait_while_the_cluster_is_shut_down_end_with_it) {
  std::vector<Future<ActorHandle<Counter>>> spawned;
  for (int i = 0; i < 150; ++i) spawned.push_back(cluster().spawn<Counter>({}, i));
  const auto begin = std::chrono::steady_clock::now();
  cluster().shutdown();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  for (auto& one : spawned) {
    const auto outcome = one.get(1s);
    if (!outcome.ok()) {
      EXPECT_NE(outcome.error().code, ErrorCode::timed_out) << outcome.error().message;
    }
  }
}

TEST_F(Starts, of_many_actors_at_once_all_succeed) {
  std::vector<Future<ActorHandle<Counter>>> spawned;
  for (int i = 0; i < 100; ++i) spawned.push_back(cluster().spawn<Counter>({}, i));
  for (int i = 0; i < 100; ++i) {
    const auto actor = must(spawned[static_cast<std::size_t>(i)].get(limit));
    EXPECT_EQ(must(actor.call<&Counter::add>(1).get(limit)), i + 1);
  }
}

}  // namespace
}  // namespace troupe::test
