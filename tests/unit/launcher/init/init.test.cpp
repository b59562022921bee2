#include "launcher/init/init.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/config/cluster_config.hpp"
#include "launcher/job/job_plan.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
const std::string demo = TROUPE_SOURCE_DIR "/configs/demo/fable-moe";

ModelConfig demo_model() {
  auto model = ModelConfig::load(demo);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return *std::move(model);
}

TEST(Machine, counts_the_nodes_of_a_list) {
  EXPECT_EQ(count_numa_nodes("0"), 1);
  EXPECT_EQ(count_numa_nodes("0-3\n"), 4);
  EXPECT_EQ(count_numa_nodes("0-1,4,6-7"), 5);
  for (const char* nonsense : {"", "\n", "x", "3-1", "-", "0,x"}) {
    EXPECT_EQ(count_numa_nodes(nonsense), 1) << nonsense;
  }
  EXPECT_GE(this_machine().cores, 1);
  EXPECT_GE(this_machine().numa_nodes, 1);
}

TEST(Arrangement, is_one_worker_in_one_memory) {
  const Arrangement one = arrange({16, 1, 64 * gib}, demo_model(), gib);
  EXPECT_EQ(one.data, 1);
  EXPECT_EQ(one.tensor, 1);
  EXPECT_THAT(one.reason, HasSubstr("(16)"));
}

TEST(Arrangement, is_a_replica_for_each_numa_node_while_their_weights_fit) {
  const Arrangement two = arrange({32, 2, 64 * gib}, demo_model(), 16 * gib);
  EXPECT_EQ(two.data, 2);
  EXPECT_EQ(two.tensor, 1);
  EXPECT_EQ(arrange({32, 2, 0}, demo_model(), 16 * gib).data, 2);
}

TEST(Arrangement, splits_tensors_where_replicas_do_not_fit_as_far_as_the_sizes_allow) {
  EXPECT_EQ(arrange({32, 2, 64 * gib}, demo_model(), 17 * gib).data, 1);
  EXPECT_EQ(arrange({32, 2, 64 * gib}, demo_model(), 17 * gib).tensor, 2);
  EXPECT_EQ(arrange({32, 3, 64 * gib}, demo_model(), 40 * gib).tensor, 2);
  EXPECT_EQ(arrange({64, 8, 64 * gib}, demo_model(), 40 * gib).tensor, 4);  // 4 heads
  ModelConfig odd = demo_model();
  odd.heads = odd.kv_heads = 3;
  EXPECT_EQ(arrange({64, 8, 64 * gib}, odd, 40 * gib).tensor, 1);
}

TEST(StartingConfig, is_accepted_by_what_checks_it_and_fits_80_columns) {
  for (const Machine& machine :
       {Machine{2, 1, 4 * gib}, Machine{64, 2, 256 * gib}, Machine{64, 4, 60 << 20}, Machine{}}) {
    const std::string text = starting_config(demo, demo_model(), 15 << 20, machine);
    SCOPED_TRACE(text);
    auto config = parse_config(text, "cluster.yaml", {}, Purpose::run);
    ASSERT_TRUE(config.ok()) << config.error().message;
    const Arrangement arrangement = arrange(machine, demo_model(), 15 << 20);
    EXPECT_EQ(config->parallel.data_parallel_size, arrangement.data);
    EXPECT_EQ(config->parallel.tensor_parallel_size, arrangement.tensor);
    EXPECT_EQ(config->model.path, demo);
    EXPECT_EQ(config->model.served_model_name, std::vector<std::string>{"fable-moe"});
    EXPECT_EQ(config->engine.max_model_len, 2048);
    EXPECT_FALSE(config->metrics.port.has_value());
    const auto plan = plan_job(*std::move(config));
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const bool has_path = line.find(demo) != line.npos;
      EXPECT_TRUE(has_path || line.size() <= 80) << line;
    }
  }
}

TEST(StartingConfig, writes_odd_names_so_that_they_read_back) {
  const std::string path = "models/a \"b\": {c}/";
  const std::string text = starting_config(path, demo_model(), gib, Machine{});
  const auto config = parse_config(text, "cluster.yaml", {}, Purpose::check);
  ASSERT_TRUE(config.ok()) << config.error().message << "\n" << text;
  EXPECT_EQ(config->model.path, path);
  EXPECT_EQ(config->name, "a \"b\": {c}");
}

}  // namespace
}  // namespace troupe
