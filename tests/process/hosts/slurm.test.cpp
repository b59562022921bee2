#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/hosts/test_hosts.hpp"

namespace troupe::launcher_test {
namespace {

TEST(Slurm, a_job_in_an_allocation_gives_the_bytes_of_one_worker_over_its_nodes) {
  if (const auto missing = test::missing_for_hosts(
          {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/munged", "/sbin/ip"});
      !missing.empty())
    GTEST_SKIP() << missing;
  const LauncherJob job;
  job.write_input(golden_input());
  const auto command = fmt::format(
      "cd {} && timeout 100 " TROUPE_SOURCE_DIR "/tests/support/hosts/with-slurm 2 " TROUPE_LAUNCHER
      " --config cluster.yaml --set cluster.launch=slurm --set cluster.network=lo --set "
      "parallel.pipeline_parallel_size=2 --set parallel.tensor_parallel_size=2 >slurm.log 2>&1",
      job.folder().string());
  ASSERT_EQ(std::system(command.c_str()), 0) << golden::file_bytes(job.folder() / "slurm.log");
  expect_same_payloads(answers_to(golden_input()), job.answers(), "pp2 x tp2 over two Slurm nodes");
  for (const char* node : {"n1", "n2"}) {
    EXPECT_TRUE(std::filesystem::exists(job.folder() / "out.jsonl.job" /
                                        fmt::format("agent-{}.log", node)));
  }
}

TEST(Slurm, a_job_outside_of_an_allocation_is_refused_with_the_remedy) {
  const LauncherJob job;
  job.write_input(golden_input());
  const Ended ended = job.run({"--set", "cluster.launch=slurm"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.describe().find("run the launcher in salloc or sbatch"), std::string::npos)
      << ended.describe();
}

}  // namespace
}  // namespace troupe::launcher_test
