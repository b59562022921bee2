// `launcher init` and `launcher reference`.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/source_path.hpp"

namespace troupe::launcher_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Init, writes_a_file_that_check_accepts_and_a_job_runs_with) {
  const LauncherJob job;
  const Ended written =
      job.run_plain({"init", "--model", demo_model().string(), "--output", "mine.yaml"});
  ASSERT_EQ(written.code, 0) << written.describe();
  EXPECT_THAT(written.out, HasSubstr("wrote mine.yaml"));
  job.write_input(completion("r1", "Once", {{"max_tokens", 4}}));
  const Ended checked =
      job.run_plain({"check", "--config", "mine.yaml", "--set", "job.input=in.jsonl"});
  EXPECT_EQ(checked.code, 0) << checked.describe();
  const Ended ran =
      job.run_plain({"--config", "mine.yaml", "--input", "in.jsonl", "--output", "out.jsonl"});
  EXPECT_EQ(ran.code, 0) << ran.describe();
  EXPECT_TRUE(job.answers().at("r1").ok());
}

TEST(Init, leaves_a_file_that_is_there_alone) {
  const LauncherJob job;
  const std::string before = golden::file_bytes(job.folder() / "cluster.yaml");
  const Ended ended = job.run_plain({"init", "--model", demo_model().string()});
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("cluster.yaml is there already"));
  EXPECT_EQ(golden::file_bytes(job.folder() / "cluster.yaml"), before);
}

TEST(Init, writes_to_standard_output_where_asked) {
  const LauncherJob job;
  const Ended ended = job.run_plain({"init", "--model", demo_model().string(), "--output", "-"});
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.out, StartsWith("# Written by launcher init for "));
}

TEST(Init, refuses_what_is_no_model) {
  const LauncherJob job;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"init", "--output", "x.yaml"},
        {"init", "--model", "nowhere", "--output", "x.yaml"},
        {"init", "--modle", "x"}}) {
    const Ended ended = job.run_plain(arguments);
    EXPECT_EQ(ended.code, 2) << ended.describe();
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err, StartsWith("launcher: "));
    EXPECT_FALSE(std::filesystem::exists(job.folder() / "x.yaml"));
  }
}

TEST(Reference, is_the_page_of_the_documentation) {
  const LauncherJob job;
  const Ended ended = job.run_plain({"reference"});
  EXPECT_EQ(ended.code, 0);
  const std::filesystem::path page = test::source_path("docs/configuration.md");
  EXPECT_TRUE(ended.out == golden::file_bytes(page))
      << "write it anew: launcher reference > docs/configuration.md";
}

TEST(Reference, that_cannot_be_written_does_not_end_well) {
  const std::string command = launcher_file().string() + " reference > /dev/full 2> /dev/null";
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

}  // namespace
}  // namespace troupe::launcher_test
