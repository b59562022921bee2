#include "tests/process/launcher/support/many_nodes.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/process/child_process.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::launcher_test {
namespace {

TEST(ManyNodes, are_refused_if_the_launcher_may_not_open_enough_files) {
  const LauncherJob job;
  job.write_input(requests_of(batch_folder() / "batch-64.jsonl", 1));
  const std::string output = job.folder() / "printed";
  const std::string command = fmt::format(
      "cd {} && ulimit -n 200 && exec {} --config cluster.yaml --set cluster.launch=join --set "
      "cluster.listen=127.0.0.1:0 --set cluster.nodes=16 --set cluster.token_file=job.token --set "
      "parallel.data_parallel_size=16",
      job.folder().string(), launcher_file().string());
  auto launcher = ChildProcess::start(
      {.arguments = {"sh", "-c", command}, .output_path = output, .program = "sh"});
  ASSERT_TRUE(launcher.ok()) << launcher.error().message;
  const auto ended = launcher->wait(run_limit);
  ASSERT_TRUE(ended && !ended->signalled) << golden::file_bytes(output);
  EXPECT_EQ(ended->code, 3);
  EXPECT_THAT(golden::file_bytes(output),
              testing::HasSubstr("the launcher may have 200 open files, but needs up to 256 for 16 "
                                 "nodes: raise the hard limit here (ulimit -Hn 256)"));
}

TEST(ManyNodes, all_answer_if_their_agents_join_on_one_machine) {
  // Under sanitizers the processes of 16 keep two cores so busy that agents miss their heartbeats.
  expect_all_nodes_to_answer(test::time_scale == 1 ? 16 : 4);
}

}  // namespace
}  // namespace troupe::launcher_test
