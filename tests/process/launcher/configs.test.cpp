// Every file in configs/ can be checked and run from the folder above it, as its comment says.

#include <algorithm>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/source_path.hpp"

namespace troupe::launcher_test {
namespace {

using testing::HasSubstr;

/// configs/, as paths relative to the folder above it. tests/process/hosts runs the one that needs
/// other hosts; those of configs/bench are for `launcher bench` and have no job.
std::vector<std::string> config_files() {
  const std::filesystem::path root = test::source_path();
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "configs")) {
    if (entry.path().extension() != ".yaml" || entry.path().stem() == "two-hosts") continue;
    if (entry.path().parent_path().filename() == "bench") continue;
    files.push_back(std::filesystem::relative(entry.path(), root).string());
  }
  std::ranges::sort(files);
  return files;
}

/// A job's folder with access to configs/.
class TopologyFile : public testing::TestWithParam<std::string> {
 protected:
  TopologyFile() {
    std::filesystem::create_directory_symlink(test::source_path("configs"),
                                              job_.folder() / "configs");
  }

  Ended run(const std::string& file, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--config", file, "--input", "in.jsonl", "--output",
                                         "out.jsonl", "--overwrite"});
    return job_.run_plain(arguments);
  }

  const LauncherJob job_;
};

TEST_P(TopologyFile, passes_the_check_without_a_remark_but_of_cores) {
  const Ended ended = job_.run_plain({"check", "--config", GetParam()});
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_EQ(ended.err, "");
  EXPECT_THAT(ended.out, HasSubstr("\ntotal "));
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    if (line.starts_with("warning: ")) {
      EXPECT_THAT(line, HasSubstr(" cores "));
    }
  }
}

TEST_P(TopologyFile, begins_with_a_comment_that_says_how_to_start_it) {
  std::ifstream file(job_.folder() / GetParam());
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str().starts_with("# ")) << GetParam();
  EXPECT_THAT(text.str(), HasSubstr("launcher --config " + GetParam()));
}

TEST_P(TopologyFile, gives_the_answers_that_one_worker_gives) {
  job_.write_input(requests_of(batch_folder() / "batch-64.jsonl", 6, {{"max_tokens", 8}}));
  ASSERT_EQ(run("configs/one-worker.yaml", {}).code, 0);
  const Answers expected = job_.answers();
  ASSERT_EQ(expected.size(), 6U);
  const Ended ended = run(GetParam(), {});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  expect_same_payloads(expected, job_.answers(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Configs, TopologyFile, testing::ValuesIn(config_files()),
                         [](const auto& info) {
                           std::string name = info.param.substr(std::string("configs/").size());
                           std::ranges::replace_if(
                               name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace troupe::launcher_test
