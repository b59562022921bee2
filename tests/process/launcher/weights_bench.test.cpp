#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/checkpoint_folder.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(LauncherWeightsBench, makes_a_checkpoint_and_times_its_reading) {
  const LauncherJob job;
  const Ended ended =
      job.run_plain({"bench", "weights", "--config", "cluster.yaml", "--make", "made", "--repeat",
                     "2", "--set", "model.load_format=dummy", "--json", "f.json"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.out, HasSubstr("a plain reading of the files"));
  const json figures = json::parse(golden::file_bytes(job.folder() / "f.json"), nullptr, false);
  ASSERT_TRUE(figures.is_object());
  EXPECT_GT(figures["weight_bytes"], 0);
  EXPECT_GT(figures["reading_bytes_per_second"], 0);
  EXPECT_EQ(figures["loadings"].size(), 2U);
  EXPECT_TRUE(std::filesystem::exists(job.folder() / "made/model.safetensors.index.json"));
}

TEST(LauncherWeightsBench, refuses_to_read_weights_that_are_not_there) {
  const LauncherJob job;
  const Ended ended = job.run_plain(
      {"bench", "weights", "--config", "cluster.yaml", "--set", "model.load_format=dummy"});
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("--make"));
}

TEST(LauncherWeightsBench, leaves_the_weights_of_a_model_alone) {
  const LauncherJob job;
  const auto folder = job.folder() / "model";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << "{}";
  const Ended ended = job.run_plain({"bench", "weights", "--config", "cluster.yaml", "--make",
                                     "model", "--set", "model.load_format=dummy"});
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("--make model: a config.json is there"));
  EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors.index.json"));
}

}  // namespace
}  // namespace troupe::launcher_test
