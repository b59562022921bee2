#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "tests/process/runtime/actor/cpu_reader.hpp"
#include "tests/process/runtime/actor/test_actors.hpp"

namespace troupe::test {
namespace {

using ::testing::HasSubstr;

class CpuBinding : public testing::Test {
 protected:
  void SetUp() override {
    if (own_.size() < 2) GTEST_SKIP() << "this process has one CPU";
  }
  void TearDown() override { run_on(own_); }

  static void run_on(const std::vector<int>& cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) CPU_SET(cpu, &set);
    EXPECT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
  }
  std::unique_ptr<Cluster> start(std::vector<NodeSpec> nodes) const {
    ClusterOptions options;
    options.nodes = std::move(nodes);
    return start_cluster(std::move(options));
  }
  /// A cluster with one node that counts all CPUs of this process.
  std::unique_ptr<Cluster> start() const { return start({{"node", cpus(), {}}}); }
  int cpus() const { return static_cast<int>(own_.size()); }

  static Result<ActorHandle<CpuReader>> spawn(Cluster& cluster, const SpawnOptions& options) {
    return cluster.spawn<CpuReader>(options).get(limit);
  }
  static ActorHandle<CpuReader> spawn_bound(Cluster& cluster, int cpus,
                                            std::optional<BundleId> bundle = {}) {
    return must(
        spawn(cluster, {.resources = {.cpus = cpus}, .bundle = bundle, .binds_cpus = true}));
  }
  static std::vector<int> cpus_of(const ActorHandle<CpuReader>& actor) {
    return must(actor.call<&CpuReader::cpus>().get(limit));
  }

  const std::vector<int> own_ = usable_cpus();
};

TEST_F(CpuBinding, gives_actors_in_bundles_cpus_of_their_own) {
  const auto cluster = start();
  const auto group = must(cluster->create_placement_group({"x", {{.cpus = 1}, {.cpus = 1}}}));
  const auto first = spawn_bound(*cluster, 1, group.bundle(0));
  const auto second = spawn_bound(*cluster, 1, group.bundle(1));
  EXPECT_EQ(cpus_of(first), std::vector<int>{own_[0]});
  EXPECT_EQ(cpus_of(second), std::vector<int>{own_[1]});
  EXPECT_EQ(must(second.call<&CpuReader::cpus_of_new_thread>().get(limit)),
            std::vector<int>{own_[1]});
}

TEST_F(CpuBinding, is_for_those_who_ask) {
  const auto cluster = start();
  const auto bound = spawn_bound(*cluster, 1);
  const auto free = must(spawn(*cluster, {.resources = {.cpus = 1}}));
  EXPECT_EQ(cpus_of(bound).size(), 1U);
  EXPECT_EQ(cpus_of(free), own_) << "as without the other one";
}

TEST_F(CpuBinding, lasts_over_restarts_and_ends_with_the_process) {
  const auto cluster = start();
  const auto first = must(
      spawn(*cluster, {.resources = {.cpus = cpus() - 1}, .binds_cpus = true, .max_restarts = 1}));
  const auto second = spawn_bound(*cluster, 1);
  const auto before = cpus_of(first);
  const Promise<ActorDown> died;
  const auto token = cluster->watch(first, [died](const ActorDown& down) { died.complete(down); });
  ASSERT_EQ(::kill(must(first.call<&CpuReader::pid>().get(limit)), SIGKILL), 0);
  must(died.future().get(limit));
  EXPECT_EQ(cpus_of(first), before) << "the next incarnation";
  const auto freed = cpus_of(second);
  ASSERT_TRUE(cluster->stop(second).ok());
  EXPECT_EQ(cpus_of(spawn_bound(*cluster, 1)), freed);
}

TEST_F(CpuBinding, stays_within_the_cpus_of_the_agent) {
  run_on({own_.back()});           // the agent inherits that, as it does a limit of Slurm
  const auto cluster = start({});  // one node that counts the CPUs that it may use
  EXPECT_EQ(cluster->nodes()[0].spec.cpus, 1);
  EXPECT_EQ(cpus_of(spawn_bound(*cluster, 1)), std::vector<int>{own_.back()});
}

TEST_F(CpuBinding, is_left_out_where_the_node_counts_more_cpus_than_there_are) {
  const auto cluster = start({{"node", cpus() + 1, {}}});
  EXPECT_EQ(cpus_of(spawn_bound(*cluster, 1)), own_);
}

TEST_F(CpuBinding, is_left_out_where_two_nodes_share_the_cpus) {
  const auto cluster = start({{"left", 1, {}}, {"right", 1, {}}});
  EXPECT_EQ(cpus_of(spawn_bound(*cluster, 1)), own_);
}

TEST_F(CpuBinding, needs_cpus_and_a_process_of_its_own) {
  const auto cluster = start();
  const auto without = spawn(*cluster, {.binds_cpus = true});
  ASSERT_FALSE(without.ok());
  EXPECT_EQ(without.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(without.error().message, HasSubstr("reserves none"));
  const auto shared =
      spawn(*cluster, {.resources = {.cpus = 1}, .process = "shared", .binds_cpus = true});
  ASSERT_FALSE(shared.ok());
  EXPECT_THAT(shared.error().message, HasSubstr("shares a process"));
}

}  // namespace
}  // namespace troupe::test
