#include <csignal>
#include <cstdlib>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/checkpoint_folder.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// `launcher bench faults` on fable-moe with two workers, in a job's folder; temporary files go
/// there too.
class FaultsBench : public testing::Test {
 public:
  FaultsBench() : temporary_(job_.folder() / "tmp") {
    std::filesystem::create_directory(temporary_);
    setenv("TMPDIR", temporary_.c_str(), 1);
  }
  ~FaultsBench() override { unsetenv("TMPDIR"); }

 protected:
  static std::vector<std::string> arguments(const std::vector<std::string>& more) {
    std::vector<std::string> all{
        "bench",         "faults", "--config",    "cluster.yaml",
        "--json",        "f.json", "--set",       "parallel.tensor_parallel_size=2",
        "--num-prompts", "8",      "--input-len", "10:40",
        "--output-len",  "20:120", "--interval",  "0.2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Ended bench(const std::vector<std::string>& more) const {
    Ended ended = job_.run_plain(arguments(more));
    EXPECT_EQ(processes_left_in(job_.folder(), std::chrono::milliseconds(0)),
              std::vector<std::string>());
    return ended;
  }
  json figures() const {
    return json::parse(golden::file_bytes(job_.folder() / "f.json"), nullptr, false);
  }

  LauncherJob job_;
  std::filesystem::path temporary_;
};

TEST_F(FaultsBench, compares_the_answers_of_a_batch_that_loses_processes) {
  const Ended ended = bench({"--count", "6", "--seed", "1"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json found = figures();
  ASSERT_EQ(found["faults"].size(), 6U) << found;
  EXPECT_TRUE(found["is_complete"]);
  EXPECT_EQ(found["answers_different"], 0);
  EXPECT_GE(found["answers_compared"], 8);
  EXPECT_EQ(found["answers_compared"].get<int>() % 8, 0) << "whole rounds";
  for (const char* kind : {"worker", "executor", "stop"}) {
    EXPECT_EQ(found["kinds"][kind]["count"], 2) << kind;
  }
  for (const json& fault : found["faults"]) {
    const double noticed = fault["noticed_ms"].get<double>();
    EXPECT_GT(noticed, fault["kind"] == "stop" ? 500.0 : 0.0) << fault << " by its lease";
    EXPECT_GT(fault["next_step_seconds"].get<double>() * 1e3, noticed) << fault;
    EXPECT_GE(fault["lost_processes"], 1) << fault;
    // At most 8 requests of 40 + 120 tokens are under way.
    EXPECT_LE(fault["kv_tokens"], 8 * 160) << fault;
    EXPECT_LE(fault["in_flight_tokens"], 3 * 8) << fault;
    if (fault["kind"] != "executor") {
      EXPECT_EQ(fault["unsaved_tokens"], 0) << fault << " the executor knows them";
    }
  }
  EXPECT_GT(found["kinds"]["worker"]["kv_tokens"]["most"], 0);
  EXPECT_EQ(found["saved_tokens_sampled_again"], 0);
  EXPECT_EQ(found["tokens_sampled_again"], found["tokens_not_handed_over"]);
  EXPECT_GT(found["memory_after"]["driver_bytes"], 1 << 20);
  EXPECT_EQ(found["memory_after"]["agents"].size(), 1U);
  EXPECT_THAT(ended.err, HasSubstr("noticed"));
  EXPECT_THAT(ended.out, HasSubstr("none of these had been handed over"));
  EXPECT_THAT(ended.out, HasSubstr("are the bytes of the undisturbed run"));
  EXPECT_TRUE(std::filesystem::is_empty(temporary_));
}

TEST_F(FaultsBench, lets_a_step_hang_until_it_is_found) {
  const Ended ended = bench({"--count", "1", "--kinds", "hang"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json found = figures();
  ASSERT_EQ(found["faults"].size(), 1U) << found;
  EXPECT_GT(found["faults"][0]["noticed_ms"], 10000.0) << "by its step, not by its lease";
  EXPECT_EQ(found["answers_different"], 0);
}

TEST_F(FaultsBench, finds_an_answer_that_is_another_one) {
  const Ended ended = bench({"--count", "1", "--kinds", "worker", "--alter-request", "-q"});
  ASSERT_EQ(ended.code, 1) << ended.describe();
  const json found = figures();
  ASSERT_GE(found["differences"].size(), 1U) << found;
  for (const json& one : found["differences"]) EXPECT_EQ(one["request"], 8) << one;
  EXPECT_EQ(found["answers_different"].get<int>(), found["answers_compared"].get<int>() / 8);
  EXPECT_THAT(ended.out, HasSubstr("round 1, request 8: "));
  EXPECT_EQ(ended.err, "");
}

TEST_F(FaultsBench, tells_the_faults_before_a_signal) {
  LauncherProcess process(arguments({"--count", "1000", "--kinds", "worker,executor"}),
                          job_.folder(), temporary_.parent_path());
  ASSERT_TRUE(process.wait_for_stderr("    1   ", run_limit)) << process.wait({}).describe();
  process.signal(SIGINT);
  const Ended ended = process.wait(run_limit);
  EXPECT_EQ(ended.code, 4) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("stopped by a signal; the figures are of "));
  EXPECT_THAT(ended.err, HasSubstr("of 1000 faults"));
  EXPECT_GE(figures()["faults"].size(), 1U);
  EXPECT_FALSE(figures()["is_complete"]);
  EXPECT_EQ(processes_left_in(job_.folder(), std::chrono::milliseconds(0)),
            std::vector<std::string>());
}

TEST_F(FaultsBench, makes_the_same_faults_of_the_requests_of_a_file) {
  job_.write_input(requests_of(batch_folder() / "batch-64.jsonl", 6));
  const Ended ended = job_.run_plain({"bench", "faults", "--config", "cluster.yaml", "--workload",
                                      "in.jsonl", "--count", "2", "--kinds", "worker,executor",
                                      "--interval", "0.1", "--json", "f.json"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_EQ(figures()["requests"], 6);
  EXPECT_EQ(figures()["answers_different"], 0);
}

TEST_F(FaultsBench, refuses_faults_that_this_job_cannot_have) {
  const Ended link = bench({"--kinds", "link", "--link-device", "lo"});
  EXPECT_EQ(link.code, 2) << link.describe();
  EXPECT_THAT(link.err, HasSubstr("the only node is this machine"));
  EXPECT_FALSE(std::filesystem::exists(job_.folder() / "f.json"));
}

}  // namespace
}  // namespace troupe::launcher_test
