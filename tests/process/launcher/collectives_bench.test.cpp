#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/checkpoint_folder.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(LauncherCollectivesBench, times_the_groups_of_a_topology_on_its_cpu) {
  const LauncherJob job;
  const Ended ended =
      job.run_plain({"bench", "collectives", "--config", "cluster.yaml", "--bytes", "8,4096",
                     "--seconds", "0.001", "--set", "parallel.tensor_parallel_size=2", "--set",
                     "parallel.pipeline_parallel_size=2", "--json", "f.json"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.out, HasSubstr("tensor of 2 ranks"));
  const json figures = json::parse(golden::file_bytes(job.folder() / "f.json"), nullptr, false);
  ASSERT_TRUE(figures.is_object());
  EXPECT_GT(figures["ceiling"]["bytes_per_second"], 0);
  ASSERT_FALSE(figures["groups"].empty());
  EXPECT_EQ(figures["groups"].front()["group"], "tensor");
  EXPECT_EQ(figures["groups"].front()["calls"].size(), 8U);
  EXPECT_EQ(figures["groups"].back()["group"], "stages");
  EXPECT_EQ(figures["groups"].back()["calls"].size(), 2U);
}

TEST(LauncherCollectivesBench, refuses_one_worker_and_options_that_it_does_not_know) {
  const LauncherJob job;
  const Ended alone = job.run_plain({"bench", "collectives", "--config", "cluster.yaml"});
  EXPECT_EQ(alone.code, 2) << alone.describe();
  EXPECT_THAT(alone.err, HasSubstr("tensor_parallel_size"));
  const Ended unknown =
      job.run_plain({"bench", "collectives", "--config", "cluster.yaml", "--byte", "8"});
  EXPECT_EQ(unknown.code, 2) << unknown.describe();
  EXPECT_THAT(unknown.err, HasSubstr("--bytes"));
}

}  // namespace
}  // namespace troupe::launcher_test
