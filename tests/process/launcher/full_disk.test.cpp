#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/metrics_page.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/sorted_lines.hpp"

// The disk of the output, or of the logs, is full while a job runs.

namespace troupe::launcher_test {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

constexpr int requests = 60;
/// More than are in the engine at a time (request_window).
constexpr int many_requests = 100;
constexpr std::size_t disk_bytes = std::size_t{8} << 20;

std::string input(int count = requests, int tokens = 60) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    lines += completion(fmt::format("r{}", i), {326, 369, 524 + i},
                        {{"max_tokens", tokens}, {"ignore_eos", true}, {"return_token_ids", true}});
  }
  return lines;
}

/// A job whose output lies on a small disk of its own.
class FullDisk : public testing::Test {
 protected:
  void SetUp() override {
    job_.write_input(input_);
    std::filesystem::create_directory(folder_);
    auto disk = test::SmallDisk::mount(folder_, disk_bytes);
    if (!disk.ok()) GTEST_SKIP() << disk.error().message;
    disk_ = *std::move(disk);
  }

  /// Starts the job and fills its disk after some answers; waits until it pauses.
  void start_and_fill(std::vector<std::string> more = {}, const std::string& name = "out.jsonl") {
    output_ = folder_ / name;
    more.insert(more.end(), {"--output", output_.string(), "--set", "engine.max_num_seqs=2"});
    running_ = job_.start(std::move(more));
    ASSERT_TRUE(
        running_->wait_for_text(output_.string() + ".job/launcher.log", "first token", run_limit))
        << running_->wait({}).describe();
    if (output_.extension() == ".jsonl") {
      ASSERT_TRUE(running_->wait_for_lines(output_, 3, run_limit)) << running_->wait({}).describe();
    }
    disk_->fill();
    ASSERT_TRUE(running_->wait_for_stderr("the job pauses", run_limit))
        << running_->wait({}).describe();
  }

  /// Of a job with metrics.port: the sum of a metric's samples.
  double metric(const std::string& name) const {
    std::istringstream lines(scrape(metrics_port(output_.string() + ".job")));
    double sum = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(name + "{")) sum += std::stod(line.substr(line.rfind(' ')));
    }
    return sum;
  }
  /// Waits until all requests that the engine has are answered.
  bool wait_until_idle() const {
    for (int i = 0; i < 600; ++i) {
      if (metric("vllm:num_requests_running") + metric("vllm:num_requests_waiting") == 0) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }

  std::string output() const { return golden::file_bytes(output_); }
  void expect_undisturbed() const {
    const LauncherJob undisturbed;
    undisturbed.write_input(input_);
    ASSERT_EQ(undisturbed.run().code, 0);
    EXPECT_EQ(test::sorted_lines(output()),
              test::sorted_lines(golden::file_bytes(undisturbed.output())));
  }

  LauncherJob job_;
  std::string input_ = input();
  std::filesystem::path folder_ = job_.folder() / "disk";
  std::filesystem::path output_;
  std::unique_ptr<test::SmallDisk> disk_;
  std::unique_ptr<LauncherProcess> running_;
};

TEST_F(FullDisk, pauses_the_job_until_there_is_room) {
  input_ = input(many_requests, 8);
  job_.write_input(input_);
  ASSERT_NO_FATAL_FAILURE(start_and_fill({"--set", "metrics.port=0"}));
  // What runs is finished, and nothing new is begun.
  ASSERT_TRUE(wait_until_idle());
  EXPECT_LT(metric("vllm:request_success_total"), many_requests) << "others have not begun";
  const double answered = metric("vllm:request_success_total");
  const double tokens = metric("vllm:generation_tokens_total");
  std::this_thread::sleep_for(seconds(1));
  EXPECT_EQ(metric("vllm:generation_tokens_total"), tokens);
  EXPECT_EQ(metric("vllm:request_success_total"), answered);
  const std::string before = output();
  EXPECT_EQ(before.back(), '\n') << "whole lines";
  EXPECT_LT(std::ranges::count(before, '\n'), answered) << "the rest waits in memory";
  disk_->make_room();
  const Ended ended = running_->wait(run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe();
  expect_undisturbed();
  EXPECT_THAT(ended.err, HasSubstr("cannot write the output " + output_.string() +
                                   ": No space left on device; the job pauses"));
  EXPECT_THAT(ended.err, HasSubstr("Make room (0 B are free in " + folder_.string() + ")"));
  EXPECT_THAT(ended.err, HasSubstr("After 5:00 (job.disk_full_wait_seconds)"));
  EXPECT_THAT(ended.err, HasSubstr("there is room for " + output_.string() + " again after "));
}

TEST_F(FullDisk, pauses_a_job_with_a_packed_output_until_there_is_room) {
  ASSERT_NO_FATAL_FAILURE(start_and_fill({}, "out.jsonl.gz"));
  disk_->make_room();
  const Ended ended = running_->wait(run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const auto plain = folder_ / "out.jsonl";
  ASSERT_EQ(std::system(("zcat " + output_.string() + " > " + plain.string()).c_str()), 0);
  output_ = plain;
  expect_undisturbed();
}

TEST_F(FullDisk, ends_the_job_after_a_while_so_that_it_can_be_gone_on_with) {
  ASSERT_NO_FATAL_FAILURE(start_and_fill({"--set", "job.disk_full_wait_seconds=2"}));
  const Ended ended = running_->wait(run_limit);
  ASSERT_EQ(ended.code, 3) << ended.describe();
  const std::string found = output();
  EXPECT_EQ(found.back(), '\n') << "whole lines";
  EXPECT_THAT(ended.err, HasSubstr("there was no room for 2 s (job.disk_full_wait_seconds)"));
  EXPECT_THAT(ended.err, HasSubstr("lost, and"));
  EXPECT_THAT(ended.err, HasSubstr(fmt::format("{} of {} lines are answered",
                                               std::ranges::count(found, '\n'), requests)));
  EXPECT_THAT(ended.err, HasSubstr("The same command goes on"));
  disk_->make_room();
  EXPECT_EQ(job_.run({"--output", output_.string()}).code, 0);
  expect_undisturbed();
}

TEST_F(FullDisk, does_not_hold_up_a_signal) {
  ASSERT_NO_FATAL_FAILURE(start_and_fill({"--set", "job.disk_full_wait_seconds=100000"}));
  running_->signal(SIGTERM);
  const Ended ended = running_->wait(run_limit);
  ASSERT_EQ(ended.code, 4) << ended.describe();
  EXPECT_EQ(output().back(), '\n') << "whole lines";
  EXPECT_THAT(ended.err, HasSubstr("that the disk had no room for"));
  disk_->make_room();
  EXPECT_EQ(job_.run({"--output", output_.string()}).code, 0);
  expect_undisturbed();
}

TEST_F(FullDisk, pauses_a_job_of_bad_lines_alone) {
  std::string bad;
  for (int i = 0; i < 500; ++i) bad += "{broken\n";
  job_.write_input(bad);
  disk_->fill(std::size_t{64} << 10);
  output_ = folder_ / "out.jsonl";
  running_ = job_.start({"--output", output_.string()});
  ASSERT_TRUE(running_->wait_for_stderr("the job pauses", run_limit))
      << running_->wait({}).describe();
  disk_->make_room();
  const Ended ended = running_->wait(run_limit);
  EXPECT_EQ(ended.code, 1) << ended.describe();
  EXPECT_EQ(std::ranges::count(output(), '\n'), 500);
}

TEST_F(FullDisk, of_the_logs_alone_drops_lines_of_them) {
  // The folder of logs lies on the small disk, the output does not.
  std::filesystem::create_directory_symlink(folder_, job_.output().string() + ".job");
  running_ = job_.start({"--log-level", "debug", "--set", "engine.max_num_seqs=2", "--set",
                         "parallel.tensor_parallel_size=2"});
  ASSERT_TRUE(running_->wait_for_lines(job_.output(), 3, run_limit))
      << running_->wait({}).describe();
  disk_->fill();
  ASSERT_TRUE(running_->wait_for_lines(job_.output(), requests / 2, run_limit))
      << running_->wait({}).describe();
  disk_->make_room();
  const Ended ended = running_->wait(run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.err, Not(HasSubstr("No space left"))) << "nothing that a person must do";
  output_ = job_.output();
  expect_undisturbed();
}

}  // namespace
}  // namespace troupe::launcher_test
