// `launcher check` reports what a job would run into before it runs.
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using testing::HasSubstr;

std::string good(int number) {
  return completion(fmt::format("r{}", number), "Once", {{"max_tokens", 4}});
}

/// Checks the job and expects a refusal whose message has all `words`.
void expect_refused(const LauncherJob& job, std::vector<std::string> arguments,
                    const std::vector<std::string>& words) {
  SCOPED_TRACE(testing::PrintToString(arguments));
  arguments.insert(arguments.begin(), "check");
  const Ended ended = job.run(arguments);
  EXPECT_EQ(ended.code, 2) << ended.describe();
  for (const std::string& word : words) EXPECT_THAT(ended.err, HasSubstr(word));
  EXPECT_FALSE(std::filesystem::exists(job.output().string() + ".job"));
}

TEST(Check, refuses_a_job_whose_input_is_not_there) {
  const LauncherJob job;
  expect_refused(job, {}, {"in.jsonl", "No such file"});
}

TEST(Check, refuses_an_output_that_cannot_be_written) {
  const LauncherJob job;
  job.write_input(good(1));
  expect_refused(job, {"-o", "nowhere/out.jsonl"}, {"nowhere", "does not exist"});
  expect_refused(job, {"-o", "in.jsonl"}, {"in.jsonl"});
  std::ofstream(job.folder() / "out.jsonl.job") << "a file";
  const Ended ended = job.run({"check"});
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("must be the folder of the job's logs"));
}

TEST(Check, counts_the_bad_lines_and_tells_the_first) {
  const LauncherJob job;
  std::string input = good(1) + completion("long", "Once", {{"max_tokens", 100'000}});
  for (int i = 2; i < 10; ++i) input += good(i) + "{\"custom_id\": \"b\"\n";
  job.write_input(input);
  const Ended ended = job.run({"check"});
  EXPECT_EQ(ended.code, 1) << ended.describe();
  EXPECT_THAT(
      ended.out,
      HasSubstr("input in.jsonl: of all 18 lines, 9 cannot run and would have an error line "
                "each (1 context_length_exceeded, 8 invalid_json)"));
  EXPECT_THAT(ended.out, HasSubstr("  line 2: context_length_exceeded: "));
  EXPECT_THAT(ended.out, HasSubstr("  line 4: invalid_json: "));
  expect_refused(job, {"--set", "job.max_failures=3"}, {"9 bad lines", "job.max_failures (3)"});
}

TEST(Check, looks_only_at_the_lines_of_the_jobs_shard) {
  const LauncherJob job;
  job.write_input("{\"custom_id\": \"b\"\n" + good(1) + good(2) + good(3));
  const Ended ended = job.run({"check", "--set", "job.num_shards=2", "--set", "job.shard_index=1"});
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.out, HasSubstr("input in.jsonl: all 2 lines can run"));
}

TEST(Check, refuses_an_input_of_which_no_line_can_run) {
  const LauncherJob job;
  std::string input;
  for (int i = 0; i < 3; ++i) {
    input += chat(fmt::format("r{}", i), "Hello", {{"model", "gpt-9"}});
  }
  job.write_input(input);
  expect_refused(job, {}, {"none of the 3 lines", "gpt-9"});
}

TEST(Check, refuses_more_kv_blocks_than_memory_as_a_run_does) {
  const LauncherJob job;
  job.write_input(good(1));
  const std::vector<std::string> too_many = {"--set", "engine.kv_cache_blocks=100000000"};
  expect_refused(job, too_many, {"engine.kv_cache_blocks: 100000000 blocks", "give at most"});
  const Ended ran = job.run(too_many);
  EXPECT_EQ(ran.code, 2) << ran.describe();
  EXPECT_THAT(ran.err, HasSubstr("engine.kv_cache_blocks: 100000000 blocks"));
  EXPECT_FALSE(std::filesystem::exists(job.output()));
}

TEST(Check, takes_a_job_for_gpus_on_a_machine_without) {
  const LauncherJob job;
  job.write_input(good(1));
  const std::vector<std::string> for_gpus = {"--set", "cluster.device=cuda", "--set",
                                             "parallel.tensor_parallel_size=4"};
  std::vector<std::string> arguments = for_gpus;
  arguments.insert(arguments.begin(), {"check", "--assume-gpu", "H200:8"});
  const Ended ended = job.run(arguments);
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.out, HasSubstr("GPUs: 8 assumed, memory of each: 140 GiB"));
  arguments = for_gpus;
  arguments.insert(arguments.begin(), {"--assume-gpu", "H100:2"});
  expect_refused(job, arguments, {"4 workers", "the assumed machine has 2"});
}

}  // namespace
}  // namespace troupe::launcher_test
