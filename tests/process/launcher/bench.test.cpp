#include <csignal>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/time_scale.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// `launcher bench KIND` on fable-moe with two workers, in a job's folder; temporary files go there
/// too.
class LauncherBench : public testing::Test {
 public:
  LauncherBench() : temporary_(job_.folder() / "tmp") {
    std::filesystem::create_directory(temporary_);
    setenv("TMPDIR", temporary_.c_str(), 1);
  }
  ~LauncherBench() override { unsetenv("TMPDIR"); }

 protected:
  Ended bench(const std::string& kind, const std::vector<std::string>& options) const {
    std::vector<std::string> arguments{
        "bench",  kind,     "--config", "cluster.yaml",
        "--json", "f.json", "--set",    "parallel.tensor_parallel_size=2"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    Ended ended = job_.run_plain(arguments);
    EXPECT_EQ(processes_left_in(job_.folder(), std::chrono::milliseconds(0)),
              std::vector<std::string>());
    return ended;
  }
  json figures() const {
    return json::parse(golden::file_bytes(job_.folder() / "f.json"), nullptr, false);
  }
  bool left_nothing() const { return std::filesystem::is_empty(temporary_); }

  LauncherJob job_;
  std::filesystem::path temporary_;
};

TEST_F(LauncherBench, leaves_no_empty_file_for_figures_when_it_is_refused) {
  std::ofstream(job_.folder() / "old.json").close();
  for (const std::string file : {"f.json", "old.json"}) {
    const Ended ended = job_.run_plain({"bench", "sweep", "--config", "cluster.yaml", "--json",
                                        file, "--html", "nowhere/page.html"});
    EXPECT_EQ(ended.code, 2) << ended.describe();
    EXPECT_THAT(ended.err, HasSubstr("cannot write --html"));
  }
  EXPECT_FALSE(std::filesystem::exists(job_.folder() / "f.json"));
  EXPECT_TRUE(std::filesystem::exists(job_.folder() / "old.json")) << "it was there before";
}

TEST_F(LauncherBench, counts_the_tokens_of_random_requests) {
  const Ended ended =
      bench("throughput", {"--num-prompts", "5", "--input-len", "20", "--output-len", "6"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json found = figures();
  ASSERT_TRUE(found.is_object()) << found;
  EXPECT_EQ(found["answered"], 5);
  EXPECT_EQ(found["input_tokens"], 100);
  EXPECT_EQ(found["output_tokens"], 30);
  EXPECT_EQ(found["parallel"]["tensor_parallel_size"], 2);
  const double seconds = found["seconds"];
  EXPECT_GT(seconds, 0);
  EXPECT_NEAR(found["tokens_per_second"].get<double>() * seconds, 130, 1e-6);
  EXPECT_THAT(ended.out, HasSubstr("bench throughput"));
  EXPECT_FALSE(std::filesystem::exists(job_.output()));
  EXPECT_TRUE(left_nothing());
}

TEST_F(LauncherBench, times_first_and_further_tokens_apart) {
  const Ended ended =
      bench("latency", {"--num-prompts", "4", "--input-len", "200", "--output-len", "40"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json found = figures();
  ASSERT_TRUE(found.is_object()) << found;
  const double first = found["ttft_ms"]["mean"];
  const double further = found["tpot_ms"]["mean"];
  const double whole = found["end_to_end_ms"]["mean"];
  EXPECT_GT(first, 0);
  EXPECT_GT(further, 0);
  EXPECT_NEAR(first + 39 * further, whole, 1e-3 * whole);
  EXPECT_THAT(ended.out, HasSubstr("first token (TTFT)"));
}

TEST_F(LauncherBench, times_as_many_starts_as_are_asked_for) {
  const Ended ended = bench("startup", {"--repeat", "2"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json found = figures();
  ASSERT_EQ(found["starts"].size(), 2U) << found;
  for (const json& start : found["starts"]) {
    EXPECT_GT(start["ready_seconds"], 0.0);
    EXPECT_GT(start["first_token_seconds"], start["ready_seconds"]);
  }
  EXPECT_TRUE(left_nothing());
}

TEST_F(LauncherBench, sweeps_over_loads_and_plots_them) {
  for (const std::string loads : {"--at-once=1,8", "--rates=40,inf"}) {
    const Ended ended =
        bench("sweep", {loads, "--num-prompts", "12", "--input-len", "20", "--output-len", "6",
                        "--repeat", "2", "--ttft-ms", "60000", "--html", "s.html"});
    ASSERT_EQ(ended.code, 0) << ended.describe();
    const json found = figures();
    ASSERT_EQ(found["points"].size(), 2U) << found;
    EXPECT_GT(found["ceilings"]["operations_per_second"], 1e8);
    for (const json& point : found["points"]) {
      EXPECT_EQ(point["answered"], 24) << point;
      EXPECT_EQ(point["failed"], 0) << point;
      EXPECT_EQ(point["good_share"], 1.0) << point;
      EXPECT_GT(point["ttft_ms"]["p50"], 0.0) << point;
      EXPECT_GT(point["tpot_ms"]["p99"], 0.0) << point;
      EXPECT_GE(point["end_to_end_ms"]["p99"], point["end_to_end_ms"]["p50"]) << point;
      EXPECT_GT(point["mfu"], 0.0) << point;
      // Sanitizers instrument the ceiling's loop, but not the libraries' GEMMs.
      if (test::time_scale == 1) {
        EXPECT_LT(point["mfu"], 1.0) << point;
      }
      EXPECT_GT(point["memory_bandwidth_share"], 0.0) << point;
    }
    EXPECT_THAT(ended.out, HasSubstr("first token (TTFT)"));
    EXPECT_THAT(golden::file_bytes(job_.folder() / "s.html"), HasSubstr("id=\"report\">"));
    EXPECT_TRUE(left_nothing());
  }
}

TEST_F(LauncherBench, answers_the_requests_of_a_file) {
  job_.write_input(requests_of(batch_folder() / "batch-64.jsonl", 6));
  const Ended ended = bench("throughput", {"--workload", "in.jsonl", "--num-prompts", "4"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_EQ(figures()["answered"], 4);
}

TEST_F(LauncherBench, refuses_what_cannot_be_measured) {
  const Ended missing = bench("throughput", {"--workload", "none.csv"});
  EXPECT_EQ(missing.code, 2) << missing.describe();
  EXPECT_THAT(missing.err, HasSubstr("none.csv"));
  const Ended long_one = bench("latency", {"--input-len", "100000"});
  EXPECT_EQ(long_one.code, 2) << long_one.describe();
  EXPECT_THAT(long_one.err, HasSubstr("more than the context"));
  EXPECT_TRUE(left_nothing());
}

TEST_F(LauncherBench, measures_a_model_without_weights) {
  const golden::TemporaryFolder model;
  model.write("config.json", golden::file_bytes(demo_model() / "config.json"));
  const Ended ended =
      bench("throughput", {"--set", "model.path=" + model.path().string(), "--set",
                           "model.load_format=dummy", "--num-prompts", "2", "--output-len", "3"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_EQ(figures()["output_tokens"], 6);
  EXPECT_EQ(figures()["load_format"], "dummy");
}

TEST_F(LauncherBench, ends_at_a_signal) {
  LauncherProcess process({"bench", "throughput", "--config", "cluster.yaml", "--num-prompts",
                           "100000", "--input-len", "4", "--output-len", "900"},
                          job_.folder(), temporary_.parent_path());
  // The agent's log exists once processes have been started.
  const auto begun = [&] {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(temporary_)) {
      if (entry.path().extension() == ".log") return true;
    }
    return false;
  };
  const auto limit = std::chrono::steady_clock::now() + run_limit;
  while (!begun() && std::chrono::steady_clock::now() < limit) {
    processes_left_in(job_.folder(), std::chrono::milliseconds(5));
  }
  process.signal(SIGINT);
  const Ended ended = process.wait(run_limit);
  EXPECT_EQ(ended.code, 4) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("stopped by a signal; nothing was measured"));
  EXPECT_EQ(processes_left_in(job_.folder(), std::chrono::milliseconds(0)),
            std::vector<std::string>());
  EXPECT_TRUE(left_nothing());
}

TEST_F(LauncherBench, tells_the_loads_that_a_sweep_was_through_when_a_signal_stops_it) {
  std::string loads = "1";
  for (int load = 2; load <= 300; ++load) loads += fmt::format(",{}", load);
  LauncherProcess process(
      {"bench", "sweep", "--config", "cluster.yaml", "--at-once", loads, "--num-prompts", "4",
       "--input-len", "20", "--output-len", "40", "--repeat", "1", "--json", "f.json"},
      job_.folder(), temporary_.parent_path());
  ASSERT_TRUE(process.wait_for_stderr("2: ", run_limit)) << process.wait({}).describe();
  process.signal(SIGINT);
  const Ended ended = process.wait(run_limit);
  EXPECT_EQ(ended.code, 4) << ended.describe();
  const json points = figures()["points"];
  ASSERT_GE(points.size(), 2U) << ended.describe();
  EXPECT_LT(points.size(), 300U);
  for (const json& point : points) EXPECT_EQ(point["answered"], 4) << point;
  EXPECT_THAT(ended.err, HasSubstr(fmt::format("stopped by a signal; the figures are of {} of 300 "
                                               "loads",
                                               points.size())));
  EXPECT_THAT(ended.out, HasSubstr("first token (TTFT)"));
  EXPECT_TRUE(left_nothing());
}

TEST_F(LauncherBench, goes_on_after_ctrl_z_and_fg) {
  LauncherProcess process(
      {"bench", "sweep", "--config", "cluster.yaml", "--set", "parallel.tensor_parallel_size=2",
       "--at-once", "1,2,3", "--num-prompts", "12", "--input-len", "20", "--output-len", "40",
       "--repeat", "1", "--json", "f.json"},
      job_.folder(), temporary_.parent_path());
  ASSERT_TRUE(process.wait_for_stderr("1: ", run_limit)) << process.wait({}).describe();
  process.signal_group(SIGTSTP);
  siginfo_t stopped{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(process.pid()), &stopped, WSTOPPED | WEXITED), 0);
  ASSERT_EQ(stopped.si_code, CLD_STOPPED);
  // Longer than agents wait for a launcher that went silent.
  std::this_thread::sleep_for(std::chrono::seconds(4) * test::time_scale);
  process.signal_group(SIGCONT);
  const Ended ended = process.wait(run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_EQ(figures()["points"].size(), 3U) << ended.describe();
}

}  // namespace
}  // namespace troupe::launcher_test
