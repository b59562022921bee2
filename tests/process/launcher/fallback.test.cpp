#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "models/checkpoint/checkpoint.hpp"
#include "parallel/device/dtype.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/metrics_page.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"

// Layers that stop rounding activations to 8 bits while a job runs (precision.fallback).

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

namespace fs = std::filesystem;

constexpr int outlier_layer = 2;
constexpr std::int64_t outlier_channel = 37;

/// Multiplies every `stride`-th number of bf16 from `first` on.
void scale(golden::RawTensor& tensor, std::int64_t first, std::int64_t stride, float factor) {
  const auto count = static_cast<std::int64_t>(tensor.bytes.size() / sizeof(BFloat16));
  for (std::int64_t i = first; i < count; i += stride) {
    char* const at = tensor.bytes.data() + i * static_cast<std::int64_t>(sizeof(BFloat16));
    BFloat16 number;
    std::memcpy(&number, at, sizeof number);
    number = to_bfloat16(to_float(number) * factor);
    std::memcpy(at, &number, sizeof number);
  }
}

/// Whose inputs have outliers.
enum class Outliers { attention, experts };

/// The demo's model with a channel in one layer that is thousands of times as large, and whose
/// weights are smaller by as much: the same function but for rounding. A row's scale in 8 bits
/// leaves next to nothing of the other channels.
void write_model_with_outliers(const golden::TemporaryFolder& folder, Outliers outliers) {
  constexpr float factor = 8192.0F;
  for (const auto& entry : fs::directory_iterator(demo_model())) {
    if (entry.path().extension() == ".safetensors") continue;
    fs::copy(entry.path(), folder.path() / entry.path().filename());
  }
  REQUIRE_OK(const Checkpoint checkpoint, Checkpoint::open(demo_model()));
  auto tensors = golden::read_all(checkpoint);
  const std::string layer = "model.layers." + std::to_string(outlier_layer) + ".";
  const bool of_experts = outliers == Outliers::experts;
  const std::string norm = of_experts ? "post_attention_layernorm" : "input_layernorm";
  scale(tensors.at(layer + norm + ".weight"), outlier_channel, 1 << 30, factor);
  const std::vector<std::string> readers =
      of_experts ? std::vector<std::string>{"mlp.gate.weight", "gate_proj.weight", "up_proj.weight"}
                 : std::vector<std::string>{"q_proj.weight", "k_proj.weight", "v_proj.weight"};
  for (auto& [name, weight] : tensors) {
    const auto reads = [&](const std::string& reader) { return name.ends_with(reader); };
    if (!name.starts_with(layer) || std::ranges::none_of(readers, reads)) continue;
    scale(weight, outlier_channel, weight.shape[1], 1 / factor);
  }
  folder.write("model.safetensors", golden::safetensors_bytes(tensors));
}

/// Prompts whose tokens are scored. The first ones are computed before any layer falls back.
std::string input(int count = 24) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    std::string prompt = "Once upon a time there was a girl who had " + std::to_string(i % 7) +
                         " boats. She liked the sea, and her brother liked the dog.";
    if (i % 2 == 1) prompt += " One day a boy found a red ball near the old tree.";
    lines += completion(std::to_string(100 + i), prompt,
                        {{"echo", true}, {"logprobs", 1}, {"max_tokens", 6}, {"temperature", 0}});
  }
  return lines;
}

/// The last twelve of a job's answers, in order.
std::vector<Answer> late(const Answers& answers, std::size_t count = 24) {
  std::vector<Answer> all;
  for (const auto& [id, answer] : answers) all.push_back(answer);
  EXPECT_EQ(all.size(), count);
  all.erase(all.begin(), all.end() - std::min<std::ptrdiff_t>(std::ssize(all), 12));
  return all;
}

/// The process of that name in a job; 0: none.
pid_t process_named(const LauncherJob& job, const std::string& name) {
  for (const std::string& process : processes_left_in(job.folder(), std::chrono::milliseconds(0))) {
    if (process.find(name) != std::string::npos) return std::stoi(process);
  }
  return 0;
}

/// The mean difference between log-probabilities of prompt tokens.
double distance(const std::vector<Answer>& some, const std::vector<Answer>& others) {
  double sum = 0;
  int count = 0;
  for (std::size_t i = 0; i < some.size(); ++i) {
    const json& one = some[i].choice().at("logprobs").at("token_logprobs");
    const json& other = others[i].choice().at("logprobs").at("token_logprobs");
    for (std::size_t t = 1; t < 16; ++t, ++count) {
      sum += std::abs(one.at(t).get<double>() - other.at(t).get<double>());
    }
  }
  return sum / count;
}

class Fallback : public testing::Test {
 protected:
  void SetUp() override { write_model_with_outliers(model_, Outliers::attention); }

  std::vector<std::string> settings(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"engine.max_num_seqs=2", "engine.threads_per_worker=1",
                                    "engine.enable_prefix_caching=false"};
    all.insert(all.end(), more.begin(), more.end());
    return as_arguments(all);
  }
  /// Runs a job and returns its late answers.
  std::vector<Answer> run(const LauncherJob& job, const std::vector<std::string>& more) const {
    job.write_input(input());
    const Ended ended = job.run(settings(more));
    EXPECT_EQ(ended.code, 0) << ended.describe();
    return late(job.answers());
  }
  std::vector<Answer> answers_with(const std::vector<std::string>& more) const {
    const LauncherJob job(model_.path());
    return run(job, more);
  }
  static json precision_of(const LauncherJob& job) {
    const auto report = json::parse(golden::file_bytes(job.output().string() + ".job/report.json"));
    return report.at("precision");
  }

  golden::TemporaryFolder model_;
  const std::string w8a8_ = "model.quantization=w8a8", fallback_ = "precision.fallback=w8a16",
                    bound_ = "precision.max_activation=2000";
};

TEST_F(Fallback, makes_answers_nearer_to_those_without_rounding_and_is_told) {
  const std::vector<Answer> exact = answers_with({}), rounded = answers_with({w8a8_});
  const LauncherJob job(model_.path());
  const std::vector<Answer> widened = run(job, {w8a8_, fallback_, bound_});
  const double without = distance(rounded, exact), with = distance(widened, exact);
  EXPECT_LT(with, 0.5 * without) << "mean differences of log-probabilities";

  const json precision = precision_of(job);
  EXPECT_EQ(precision.at("fallback"), "w8a16");
  ASSERT_EQ(precision.at("fallen_back").size(), 1U) << precision;
  const json& fallen = precision.at("fallen_back").at(0);
  EXPECT_EQ(fallen.at("layer"), outlier_layer);
  EXPECT_GT(fallen.at("largest"), 2000);
  EXPECT_EQ(fallen.at("rank"), 0);
  bool any_rounding = false;
  for (const json& kernel : precision.at("kernels")) {
    any_rounding |= kernel.at("kernel") == "int8 codes, activations as int8 (W8A8)";
  }
  EXPECT_TRUE(any_rounding) << precision;
  EXPECT_THAT(job.log(), HasSubstr("layer 2 computes with activations of full width from step"));
}

TEST_F(Fallback, is_of_experts_too) {
  const golden::TemporaryFolder model;
  write_model_with_outliers(model, Outliers::experts);
  const auto answers = [&](const std::vector<std::string>& more) {
    return run(LauncherJob(model.path()), more);
  };
  const std::vector<Answer> exact = answers({}), rounded = answers({w8a8_});
  const LauncherJob job(model.path());
  const std::vector<Answer> widened = run(job, {w8a8_, fallback_, bound_});
  const double without = distance(rounded, exact), with = distance(widened, exact);
  EXPECT_LT(with, 0.5 * without) << "mean differences of log-probabilities";
  const json fallen = precision_of(job).at("fallen_back");
  ASSERT_EQ(fallen.size(), 1U) << fallen;
  EXPECT_EQ(fallen.at(0).at("layer"), outlier_layer);
}

TEST_F(Fallback, is_counted_by_the_metrics) {
  constexpr std::chrono::seconds limit(30);
  const LauncherJob job(model_.path());
  job.write_input(input(2000));
  const auto process = job.start(settings({w8a8_, fallback_, bound_, "metrics.port=0"}));
  // Answers of the second half of the first requests come after the fallback.
  ASSERT_TRUE(process->wait_for_lines(job.output(), 24, limit));
  EXPECT_THAT(
      scrape(metrics_port(job.folder() / "out.jsonl.job")),
      HasSubstr("troupe:fallen_back_layers_total{model_name=\"fable-moe\",engine=\"0\"} 1\n"));
  process->signal(SIGTERM);
  const Ended ended = process->wait(limit);
  EXPECT_EQ(ended.code, 4) << ended.describe();
}

TEST_F(Fallback, leaves_layers_alone_that_stay_below_the_bound) {
  const LauncherJob job(model_.path());
  const std::vector<Answer> found =
      run(job, {w8a8_, fallback_, "precision.max_activation=1000000"});
  EXPECT_EQ(precision_of(job).at("fallen_back"), json::array());
  const std::vector<Answer> rounded = answers_with({w8a8_});
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].payload, rounded[i].payload);
}

// Rows of the second half are computed after the fallback, on all ranks or the bytes would differ.
TEST_F(Fallback, is_of_all_ranks_whichever_sees_the_activations) {
  const std::vector<Answer> expected = answers_with({w8a8_, fallback_, bound_});
  for (const std::vector<std::string>& ranks :
       {std::vector<std::string>{"parallel.tensor_parallel_size=2"},
        {"parallel.pipeline_parallel_size=2"},
        {"parallel.data_parallel_size=2", "parallel.expert_parallel_size=2",
         "parallel.data_parallel_attention=true"}}) {
    SCOPED_TRACE(ranks.front());
    std::vector<std::string> all = {w8a8_, fallback_, bound_};
    all.insert(all.end(), ranks.begin(), ranks.end());
    const LauncherJob job(model_.path());
    const std::vector<Answer> found = run(job, all);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].payload, expected[i].payload);
    const json fallen = precision_of(job).at("fallen_back");
    ASSERT_EQ(fallen.size(), 1U) << fallen;
    EXPECT_EQ(fallen.at(0).at("layer"), outlier_layer);
  }
}

TEST_F(Fallback, is_told_to_a_worker_that_takes_the_place_of_a_dead_one) {
  constexpr int requests = 400;
  const auto answers_to_many = [&](const LauncherJob& job) {
    return late(job.answers(), requests);
  };
  const LauncherJob undisturbed(model_.path());
  undisturbed.write_input(input(requests));
  ASSERT_EQ(undisturbed.run(settings({w8a8_, fallback_, bound_})).code, 0);
  const std::vector<Answer> expected = answers_to_many(undisturbed);

  const LauncherJob job(model_.path());
  job.write_input(input(requests));
  const auto process = job.start(
      settings({w8a8_, fallback_, bound_, "parallel.tensor_parallel_size=2", "restart.max=9"}));
  ASSERT_TRUE(process->wait_for_stderr("layer 2 computes with", run_limit));
  const pid_t worker = process_named(job, "worker-1");
  ASSERT_GT(worker, 0);
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  const Ended ended = process->wait(run_limit);
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(job.log(), HasSubstr("recovered in"));
  const std::vector<Answer> found = answers_to_many(job);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].payload, expected[i].payload);
  EXPECT_EQ(precision_of(job).at("fallen_back").size(), 1U);
}

}  // namespace
}  // namespace troupe::launcher_test
