#include "launcher/init/init.hpp"

#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/config/cluster_config.hpp"
#include "launcher/job/job_plan.hpp"
#include "models/families/family.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
const std::string demo = test::source_path("configs/demo/fable-moe");

ModelConfig demo_model() {
  auto model = load_model_config(demo);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return *std::move(model);
}

Machine with_gpus(int count, std::uint64_t memory_bytes) {
  return {.cores = 64,
          .free_memory_bytes = 512 * gib,
          .gpus = {.count = count, .memory_bytes = memory_bytes, .assumed = true}};
}

/// Plans like a job with a model of this many bytes: its largest tensor size is 8, and a full
/// context takes another eighth of the weights.
PlanArrangement a_model_of(std::uint64_t weight_bytes, std::uint64_t memory_bytes) {
  return [=](const Arrangement& arrangement) -> Result<JobPlan> {
    JobPlan plan;
    const auto tensor = static_cast<std::uint64_t>(arrangement.tensor);
    plan.ranks.resize(tensor);
    plan.ranks.front().weight_bytes = weight_bytes / tensor;
    plan.engine.max_model_len = 1600;
    plan.engine.block_size = 16;
    const std::uint64_t block = weight_bytes / 8 / 100 / tensor;
    if (weight_bytes / tensor + block > memory_bytes) {
      plan.problems.push_back("too large");
    } else {
      plan.kv_blocks = static_cast<std::int64_t>((memory_bytes - weight_bytes / tensor) / block);
    }
    return plan;
  };
}

TEST(Arrangement, is_one_worker_on_all_cores_without_gpus) {
  const auto one = arrange(Machine{.cores = 16}, gib, a_model_of(gib, gib));
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->data, 1);
  EXPECT_THAT(one->reason, HasSubstr("(16)"));
}

TEST(Arrangement, is_the_smallest_tensor_size_that_holds_model_and_context_then_replicas) {
  struct Case {
    std::uint64_t weights, memory;
    int gpus, tensor, data;
  };
  for (const Case& c : {Case{15 * gib, 79 * gib, 8, 1, 8},   // fits each
                        Case{131 * gib, 79 * gib, 8, 2, 4},  // 70B: in halves
                        Case{150 * gib, 79 * gib, 8, 4, 2},  // halves leave no room for a context
                        Case{600 * gib, 79 * gib, 8, 8, 1},  // no context at all: what starts
                        Case{15 * gib, 79 * gib, 1, 1, 1}, Case{131 * gib, 79 * gib, 3, 2, 1}}) {
    const auto chosen =
        arrange(with_gpus(c.gpus, c.memory), c.weights, a_model_of(c.weights, c.memory));
    ASSERT_TRUE(chosen.ok()) << chosen.error().message;
    EXPECT_EQ(chosen->tensor, c.tensor) << c.weights / gib;
    EXPECT_EQ(chosen->data, c.data) << c.weights / gib;
    EXPECT_FALSE(chosen->reason.empty());
  }
}

TEST(Arrangement, is_refused_with_the_number_of_gpus_that_a_model_takes) {
  const auto chosen = arrange(with_gpus(2, 79 * gib), 600 * gib, a_model_of(600 * gib, 79 * gib));
  ASSERT_FALSE(chosen.ok());
  EXPECT_THAT(chosen.error().message, HasSubstr("2 GPUs of 79.0 GiB: it takes about 11 of them"));
}

TEST(StartingConfig, is_accepted_by_what_checks_it_and_fits_80_columns) {
  const Arrangement arrangement{.tensor = 2, .data = 4, .reason = "Two words, and why."};
  for (const Machine& machine :
       {Machine{.cores = 2, .free_memory_bytes = 4 * gib}, with_gpus(8, 79 * gib), Machine{}}) {
    const std::string text = starting_config(demo, demo_model(), 15 << 20, machine, arrangement);
    SCOPED_TRACE(text);
    auto config = parse_config(text, "cluster.yaml", {}, Purpose::run);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->parallel.data_parallel_size, 4);
    EXPECT_EQ(config->parallel.tensor_parallel_size, 2);
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
  const std::string text = starting_config(path, demo_model(), gib, Machine{}, Arrangement{});
  const auto config = parse_config(text, "cluster.yaml", {}, Purpose::check);
  ASSERT_TRUE(config.ok()) << config.error().message << "\n" << text;
  EXPECT_EQ(config->model.path, path);
  EXPECT_EQ(config->name, "a \"b\": {c}");
}

TEST(StartingConfig, names_a_model_of_the_current_folder_as_the_parser_does) {
  const std::string here = std::filesystem::current_path().filename().string();
  for (const char* path : {".", "./", "x/.."}) {
    const auto written =
        parse_config(starting_config(path, demo_model(), gib, Machine{}, Arrangement{}),
                     "cluster.yaml", {}, Purpose::check);
    ASSERT_TRUE(written.ok()) << written.error().message;
    EXPECT_EQ(written->name, here);
    EXPECT_EQ(written->model.served_model_name, std::vector<std::string>{here});
  }
}

TEST(StartingConfig, gives_each_of_the_hosts_a_replica_and_splits_a_model_that_one_does_not_hold) {
  const Machine machine{.cores = 8, .free_memory_bytes = 16 * gib, .gpus = {}};
  const Arrangement arrangement{.tensor = 1, .data = 1, .reason = "One worker."};
  const InitNodes hosts{"ssh", {"h1", "alice@h2:2222", "h3"}};
  const std::string small = starting_config(demo, demo_model(), gib, machine, arrangement, hosts);
  EXPECT_THAT(small, HasSubstr("\n  launch: ssh\n"));
  EXPECT_THAT(small, HasSubstr("\n  hosts: [h1, alice@h2:2222, h3]"));
  EXPECT_THAT(small, HasSubstr("\n  data_parallel_size: 3"));
  const std::string large =
      starting_config(demo, demo_model(), 12 * gib, machine, arrangement, hosts);
  EXPECT_THAT(large, HasSubstr("\n  data_parallel_size: 1"));
  EXPECT_THAT(large, HasSubstr("\n  pipeline_parallel_size: 3"));
  const auto config = parse_config(large, "cluster.yaml", {}, Purpose::check);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->cluster.hosts.size(), 3U);
  const std::string slurm =
      starting_config(demo, demo_model(), gib, machine, arrangement, {"slurm", {"n1", "n2"}});
  EXPECT_THAT(slurm, HasSubstr("\n  launch: slurm\n"));
  EXPECT_THAT(slurm, testing::Not(HasSubstr("hosts:")));
}

}  // namespace
}  // namespace troupe
