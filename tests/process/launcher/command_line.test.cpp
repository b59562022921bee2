#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string short_requests() {
  std::string input;
  for (int i = 0; i < 4; ++i) {
    input += completion(fmt::format("r{}", i), "Once upon a time", {{"max_tokens", 4}});
  }
  return input;
}

TEST(CommandLine, help_fits_80_columns_and_names_every_option) {
  const LauncherJob job;
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> table = {
      {{}, {"--version", "run ", "check ", "init ", "bench ", "reference "}},
      {{"run"},
       {"-c, --config FILE", "-i, --input FILE", "-o, --output FILE", "--set", "--overwrite",
        "--quiet", "--show-answers", "--log-level"}},
      {{"check"}, {"--assume-gpu GPU:COUNT", "--input"}},
      {{"init"}, {"-m, --model FOLDER", "default cluster.yaml"}},
      {{"bench"}, {"throughput ", "latency ", "sweep ", "schedule "}},
      {{"bench", "throughput"}, {"--num-prompts N", "default 64"}},
      {{"bench", "latency"}, {"--output-len"}},
      {{"bench", "startup"}, {"--repeat N"}},
      {{"bench", "sweep"}, {"--rates LIST", "--html FILE"}},
      {{"bench", "faults"}, {"--kinds LIST", "--interval SECONDS"}},
      {{"bench", "ops"}, {"--rows LIST"}},
      {{"bench", "collectives"}, {"--bytes LIST"}},
      {{"bench", "weights"}, {"--make FOLDER"}},
      {{"bench", "schedule"}, {"--policies LIST"}},
      {{"status"}, {"--clean", "--json"}},
      {{"actors"}, {"--ended N"}},
      {{"logs"}, {"-f, --follow", "launcher logs worker-0"}},
      {{"stop"}, {"--wait SECONDS"}},
      {{"reference"}, {"docs/configuration.md"}},
  };
  for (auto [command, options] : table) {
    command.emplace_back("--help");
    const Ended ended = job.run_plain(command);
    EXPECT_EQ(ended.code, 0) << ended.describe();
    EXPECT_EQ(ended.err, "");
    std::istringstream lines(ended.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
    for (const std::string& option : options) EXPECT_THAT(ended.out, HasSubstr(option));
  }
}

TEST(CommandLine, runs_a_model_without_a_file) {
  const LauncherJob job;
  job.write_input(short_requests());
  const Ended ended =
      job.run_plain({"run", "--model", demo_model().string(), "-i", "in.jsonl", "-o", "out.jsonl"});
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_EQ(job.answers().size(), 4U);
}

TEST(CommandLine, check_prints_the_plan_and_starts_and_writes_nothing) {
  const LauncherJob job;
  job.write_input(short_requests());
  const Ended ended = job.run({"check", "--set", "parallel.tensor_parallel_size=2"});
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_EQ(ended.err, "");
  for (const char* words :
       {"tensor_parallel_size: 2", "Qwen3MoeForCausalLM", "4 layers", "2048 tokens of context",
        "block_size: 16", "KV blocks of 16 tokens", "input in.jsonl: all 4 lines can run"}) {
    EXPECT_THAT(ended.out, HasSubstr(words));
  }
  EXPECT_FALSE(std::filesystem::exists(job.output()));
  EXPECT_FALSE(std::filesystem::exists(job.output().string() + ".job"));
}

TEST(CommandLine, check_prints_a_table_of_the_mesh_that_fits_80_columns) {
  const LauncherJob job;
  job.write_input(short_requests());
  const Ended ended =
      job.run({"check", "--set", "parallel.tensor_parallel_size=2", "--set",
               "parallel.pipeline_parallel_size=2", "--set", "engine.kv_cache_blocks=1024"});
  EXPECT_EQ(ended.code, 0) << ended.describe();
  // Half of the layers and half of the experts each: 4.4 of the 17.6 MB that one rank holds.
  EXPECT_THAT(
      ended.out,
      HasSubstr(
          "rank  node   device  data stage tensor  layers  experts       weights        KV\n"
          "0     node0  0       0    0     0       0-1     0-7          4.41 MiB  16.0 MiB\n"
          "1     node0  1       0    0     1       0-1     8-15         4.41 MiB  16.0 MiB\n"
          "2     node0  2       0    1     0       2-3     0-7          4.41 MiB  16.0 MiB\n"
          "3     node0  3       0    1     1       2-3     8-15         4.41 MiB  16.0 MiB\n"
          "total                                                        17.6 MiB  64.0 MiB\n"));
  std::istringstream lines(ended.out.substr(ended.out.find("rank  node")));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST(CommandLine, quiet_prints_nothing_on_success) {
  const LauncherJob job;
  job.write_input(short_requests());
  const Ended ended = job.run({"--quiet"});
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_EQ(ended.out + ended.err, "");
  EXPECT_EQ(job.answers().size(), 4U);
}

TEST(CommandLine, a_run_without_a_terminal_prints_plain_lines_and_where_the_answers_are) {
  const LauncherJob job;
  job.write_input(short_requests());
  const Ended ended = job.run({"--show-answers", "1"});
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("4 answers in"));
  EXPECT_THAT(ended.err, Not(HasSubstr("\x1b")));
  EXPECT_THAT(ended.err, Not(HasSubstr("\r")));
  EXPECT_THAT(ended.out, HasSubstr("answers: out.jsonl"));
  EXPECT_THAT(ended.out, HasSubstr("logs:    out.jsonl.job/"));
  const Answers answers = job.answers();
  const bool shown = std::any_of(answers.begin(), answers.end(), [&](const auto& entry) {
    const std::string text = entry.second.choice().at("text");
    return ended.out.find(entry.first + ": " + text) != std::string::npos;
  });
  EXPECT_TRUE(shown) << ended.out;
}

TEST(CommandLine, options_for_input_and_output_go_before_the_yaml) {
  const LauncherJob job;
  std::filesystem::copy_file(batch_folder() / "batch-64.jsonl", job.folder() / "in.jsonl");
  std::ofstream(job.folder() / "other.jsonl") << short_requests();
  const Ended ended = job.run({"--input", "other.jsonl", "--output", "other-out.jsonl"});
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_FALSE(std::filesystem::exists(job.output()));
  const std::string text = golden::file_bytes(job.folder() / "other-out.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
}

TEST(FirstToken, comes_within_a_second_and_a_half_of_the_start) {
  constexpr int limit_ms = 1500 * test::time_scale;
  constexpr int attempts = 3;  // the machine may be busy; the best run counts
  int best = -1;
  for (int i = 0; i < attempts && (best < 0 || best > limit_ms); ++i) {
    const LauncherJob job;
    job.write_input(short_requests());
    const Ended ended = job.run({"--set", "parallel.tensor_parallel_size=2"});
    ASSERT_EQ(ended.code, 0) << ended.describe();
    const int first = job.first_token_ms();
    ASSERT_GT(first, 0) << "launcher.log does not tell when the first token came";
    best = best < 0 ? first : std::min(best, first);
  }
  EXPECT_LE(best, limit_ms);
  RecordProperty("first_token_ms", best);
}

}  // namespace
}  // namespace troupe::launcher_test
