#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/checkpoint_folder.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(LauncherOpsBench, times_a_worker_s_operations_on_its_cpu) {
  const LauncherJob job;
  const Ended ended = job.run_plain({"bench", "ops", "--config", "cluster.yaml", "--rows", "1,4,40",
                                     "--context", "32", "--seconds", "0.001", "--set",
                                     "engine.max_num_seqs=8", "--json", "f.json"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.out, HasSubstr("decode 4 at context 32"));
  EXPECT_THAT(ended.out, HasSubstr("prefill 40 in parts of 32"));
  const json figures = json::parse(golden::file_bytes(job.folder() / "f.json"), nullptr, false);
  ASSERT_TRUE(figures.is_object());
  EXPECT_GT(figures["ceilings"]["bytes_per_second"], 0);
  ASSERT_EQ(figures["passes"].size(), 3U);
  for (const json& pass : figures["passes"]) EXPECT_GT(pass["roofline_seconds"], 0) << pass;
  const bool experts = std::ranges::any_of(
      figures["ops"], [](const json& op) { return op["op"] == "experts' gates"; });
  EXPECT_TRUE(experts) << "fable-moe has experts";
}

TEST(LauncherOpsBench, refuses_what_it_does_not_know) {
  const LauncherJob job;
  const Ended ended = job.run_plain({"bench", "ops", "--config", "cluster.yaml", "--row", "1"});
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("--rows"));
}

}  // namespace
}  // namespace troupe::launcher_test
