#include "launcher/init/init.hpp"

#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/config/cluster_config.hpp"
#include "launcher/job/job_plan.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
const std::string demo = TROUPE_SOURCE_DIR "/configs/demo/fable-moe";

ModelConfig demo_model() {
  auto model = ModelConfig::load(demo);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return *std::move(model);
}

TEST(Machine, has_cores) {
  EXPECT_GE(this_machine().cores, 1);
  EXPECT_GE(this_machine().gpus, 0);
}

TEST(Arrangement, is_one_worker_on_all_cores_without_gpus) {
  const Arrangement one = arrange({16, 0, 64 * gib}, gib);
  EXPECT_EQ(one.data, 1);
  EXPECT_THAT(one.reason, HasSubstr("(16)"));
}

TEST(Arrangement, is_a_replica_on_each_gpu) {
  const Arrangement four = arrange({64, 4, 64 * gib}, gib);
  EXPECT_EQ(four.data, 4);
  EXPECT_THAT(four.reason, HasSubstr("each of the 4 GPUs"));
  EXPECT_EQ(arrange({64, 1, 64 * gib}, gib).data, 1);
  EXPECT_THAT(arrange({64, 1, 64 * gib}, gib).reason, HasSubstr("the GPU"));
}

TEST(StartingConfig, is_accepted_by_what_checks_it_and_fits_80_columns) {
  for (const Machine& machine :
       {Machine{2, 0, 4 * gib}, Machine{64, 0, 256 * gib}, Machine{64, 2, 60 << 20}, Machine{}}) {
    const std::string text = starting_config(demo, demo_model(), 15 << 20, machine);
    SCOPED_TRACE(text);
    auto config = parse_config(text, "cluster.yaml", {}, Purpose::run);
    ASSERT_TRUE(config.ok()) << config.error().message;
    const Arrangement arrangement = arrange(machine, 15 << 20);
    EXPECT_EQ(config->parallel.data_parallel_size, arrangement.data);
    EXPECT_EQ(config->parallel.tensor_parallel_size, 1);
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

TEST(StartingConfig, names_a_model_of_the_current_folder_as_the_parser_does) {
  const std::string here = std::filesystem::current_path().filename().string();
  for (const char* path : {".", "./", "x/.."}) {
    const auto written = parse_config(starting_config(path, demo_model(), gib, Machine{}),
                                      "cluster.yaml", {}, Purpose::check);
    ASSERT_TRUE(written.ok()) << written.error().message;
    EXPECT_EQ(written->name, here);
    EXPECT_EQ(written->model.served_model_name, std::vector<std::string>{here});
  }
}

}  // namespace
}  // namespace troupe
