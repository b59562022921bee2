#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// Runs the job and expects a refusal whose message has all `words`; no process and no output.
void expect_refused(const LauncherJob& job, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& words) {
  SCOPED_TRACE(testing::PrintToString(arguments));
  const Ended ended = job.run(arguments);
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_EQ(ended.out, "");
  for (const std::string& word : words) EXPECT_THAT(ended.err, HasSubstr(word));
  EXPECT_FALSE(std::filesystem::exists(job.output().string() + ".job"));
  EXPECT_THAT(processes_left_in(job.folder(), std::chrono::milliseconds(0)), IsEmpty());
}

class Mistake : public testing::Test {
 protected:
  Mistake() { job_.write_input(completion("r1", "Once", {{"max_tokens", 4}})); }

  void expect_no_output() const { EXPECT_FALSE(std::filesystem::exists(job_.output())); }

  const LauncherJob job_;
};

TEST_F(Mistake, in_a_key_is_answered_with_its_line_and_the_nearest_key) {
  job_.write_config("model: {path: " + demo_model().string() +
                    "}\nparallel:\n  tensor_paralel_size: 2\n"
                    "job: {input: in.jsonl, output: out.jsonl}\n");
  expect_refused(job_, {}, {"cluster.yaml:3", "parallel.tensor_parallel_size"});
  expect_no_output();
}

TEST_F(Mistake, in_an_override_names_the_option) {
  expect_refused(job_, {"--set", "engine.max_num_seq=4"},
                 {"--set engine.max_num_seq=4", "engine.max_num_seqs"});
  expect_refused(job_, {"--set", "engine.block_size=many"}, {"--set engine.block_size=many"});
  expect_no_output();
}

TEST_F(Mistake, in_the_tensor_parallel_size_says_what_it_does_not_divide) {
  for (const std::string ranks : {"3", "8"}) {
    expect_refused(job_, {"--set", "parallel.tensor_parallel_size=" + ranks},
                   {ranks + " does not divide", "heads", "4", "fable-moe"});
  }
  expect_no_output();
}

TEST_F(Mistake, in_another_parallel_size_says_what_it_does_not_fit) {
  const auto set = [](const std::string& key, int size) {
    return "parallel." + key + "=" + std::to_string(size);
  };
  expect_refused(job_, {"--set", set("pipeline_parallel_size", 5)},
                 {"pipeline_parallel_size 5 does not fit the model's 4 layers"});
  expect_refused(job_,
                 {"--set", set("data_parallel_size", 3), "--set", set("expert_parallel_size", 3)},
                 {"expert_parallel_size 3 does not divide the experts 16"});
  expect_refused(job_, {"--set", set("expert_parallel_size", 2)},
                 {"expert_parallel_size 2 does not divide tensor x context x data size 1"});
  expect_refused(job_,
                 {"--set", set("pipeline_parallel_size", 2), "--set", "cluster.devices_per_node=1"},
                 {"cluster.devices_per_node", "2 workers, but the node takes 1"});
  expect_no_output();
}

TEST_F(Mistake, of_a_step_smaller_than_the_running_requests_names_both_keys) {
  expect_refused(job_, {"--set", "engine.max_num_batched_tokens=7"},
                 {"engine.max_num_batched_tokens", "engine.max_num_seqs"});
}

TEST_F(Mistake, of_a_missing_file_names_it) {
  expect_refused(job_, {"--input", "nowhere.jsonl"}, {"nowhere.jsonl", "No such file"});
  expect_no_output();
  expect_refused(job_, {"--set", "model.path=nowhere"}, {"model.path", "nowhere"});
  expect_no_output();
  const Ended ended = job_.run_plain({"--config", "nowhere.yaml"});
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("nowhere.yaml: no such file"));
}

TEST_F(Mistake, of_an_output_that_cannot_be_written_says_why_and_what_to_do) {
  expect_refused(job_, {"--output", "nowhere/out.jsonl"},
                 {"nowhere/out.jsonl", "does not exist", "mkdir -p nowhere"});
  EXPECT_FALSE(std::filesystem::exists(job_.folder() / "nowhere"));
  expect_refused(job_, {"--output", "."}, {"is a folder"});
  expect_refused(job_, {"--output", "in.jsonl"}, {"in.jsonl", "input"});
}

TEST_F(Mistake, of_a_file_in_the_place_of_the_log_folder_leaves_no_output) {
  const auto log_folder = job_.folder() / "out.jsonl.job";
  std::ofstream(log_folder) << "not a folder\n";
  const Ended ended = job_.run();
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("out.jsonl.job"));
  EXPECT_EQ(golden::file_bytes(log_folder), "not a folder\n");
  expect_no_output();
}

TEST_F(Mistake, of_an_output_with_content_leaves_it_as_it_is_unless_overwrite_is_given) {
  const std::string precious = "precious\n";
  std::ofstream(job_.output()) << precious;
  expect_refused(job_, {}, {"out.jsonl", "has content", "--overwrite"});
  EXPECT_EQ(golden::file_bytes(job_.output()), precious);
  const Ended ended = job_.run({"--overwrite"});
  EXPECT_EQ(ended.code, 0) << ended.describe();
  EXPECT_TRUE(job_.answers().at("r1").ok());
}

TEST_F(Mistake, on_the_command_line_is_answered_with_the_nearest_option) {
  expect_refused(job_, {"--overwrit"}, {"--overwrit", "--overwrite"});
  const Ended ended = job_.run_plain({});
  EXPECT_EQ(ended.code, 2) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("--config"));
}

}  // namespace
}  // namespace troupe::launcher_test
