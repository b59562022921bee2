#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/checkpoint_folder.hpp"
#include "tests/support/require.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr std::string_view story =
    "Once upon a time there was a little girl who lived near the sea. Every morning she walked "
    "to the old boat, and every evening she told her brother what she had seen. One day the boat "
    "was gone, and the girl was sad. \"Where is it?\" she asked. Nobody knew.";

json figures_of(const LauncherJob& job) {
  return json::parse(golden::file_bytes(job.folder() / "f.json"), nullptr, false);
}

/// The demo's model with its final norm halved, which makes it less sure of everything.
void write_doubtful_model(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (const auto& entry : std::filesystem::directory_iterator(demo_model())) {
    std::filesystem::copy(entry.path(), folder / entry.path().filename());
  }
  REQUIRE_OK(const auto checkpoint, Checkpoint::open(demo_model()));
  auto tensors = golden::read_all(checkpoint);
  auto& norm = tensors.at("model.norm.weight");
  auto* values = reinterpret_cast<BFloat16*>(norm.bytes.data());
  for (std::size_t i = 0; i < norm.bytes.size() / sizeof(BFloat16); ++i) {
    values[i] = to_bfloat16(to_float(values[i]) / 2);
  }
  std::filesystem::remove(folder / "model.safetensors");
  std::ofstream(folder / "model.safetensors") << golden::safetensors_bytes(tensors);
}

TEST(LauncherEval, finds_the_perplexity_that_scored_prompts_have) {
  const LauncherJob job;
  std::ofstream(job.folder() / "t.txt") << story;
  const Ended ended = job.run_plain({"eval", "--config", "cluster.yaml", "--text", "t.txt",
                                     "--json", "f.json", "--html", "f.html"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  const json figures = figures_of(job);
  const std::size_t tokens = figures["text"]["tokens"];
  EXPECT_EQ(figures["text"]["scored_tokens"], tokens - 1);
  EXPECT_THAT(golden::file_bytes(job.folder() / "f.html"), HasSubstr("<h1>Eval</h1>"));

  const auto answers = answers_to(
      completion("a", std::string(story), {{"max_tokens", 0}, {"echo", true}, {"logprobs", 0}}));
  double sum = 0;
  for (const json& logprob : answers.at("a").choice()["logprobs"]["token_logprobs"]) {
    if (!logprob.is_null()) sum -= logprob.get<double>();
  }
  const double nll = sum / static_cast<double>(tokens - 1);
  EXPECT_NEAR(figures["models"][0]["nll"].get<double>(), nll, 1e-4);
  EXPECT_NEAR(figures["models"][0]["perplexity"].get<double>(), std::exp(nll), 1e-2);
}

TEST(LauncherEval, finds_a_model_and_itself_alike_and_another_one_worse) {
  const LauncherJob job;
  std::ofstream(job.folder() / "t.txt") << story;
  std::ofstream(job.folder() / "tasks.jsonl")
      << R"({"context": "Once upon a", "choices": ["time there was", "qz"], "answer": 0})" << "\n";
  const std::vector<std::string> common = {"eval",
                                           "--config",
                                           "cluster.yaml",
                                           "--text",
                                           "t.txt",
                                           "--length",
                                           "24",
                                           "--json",
                                           "f.json",
                                           "--tasks",
                                           "tasks.jsonl",
                                           "--greedy-tokens",
                                           "8",
                                           "--max-perplexity-increase",
                                           "1%"};
  auto arguments = common;
  arguments.insert(arguments.end(), {"--against", demo_model().string(), "--top-tokens", "4096"});
  Ended ended = job.run_plain(arguments);
  ASSERT_EQ(ended.code, 0) << ended.describe();
  EXPECT_THAT(ended.out, HasSubstr("passed: at most +1.000 %"));
  json figures = figures_of(job);
  EXPECT_NEAR(figures["comparison"]["kl_second_from_first"].get<double>(), 0.0, 1e-6);
  EXPECT_EQ(figures["comparison"]["top1_agreement"], 1.0);
  EXPECT_EQ(figures["comparison"]["kl_over"], "the whole vocabulary");
  EXPECT_EQ(figures["comparison"]["greedy"]["mean_tokens_alike"], 8.0);
  EXPECT_EQ(figures["models"][0]["acc"], 1.0);

  write_doubtful_model(job.folder() / "doubtful");
  arguments = common;
  arguments.insert(arguments.end(), {"--against", "doubtful"});
  ended = job.run_plain(arguments);
  EXPECT_EQ(ended.code, 1) << ended.describe();
  EXPECT_THAT(ended.out, HasSubstr("FAILED"));
  figures = figures_of(job);
  EXPECT_GT(figures["comparison"]["kl_second_from_first"].get<double>(), 0.1);
  EXPECT_EQ(figures["comparison"]["kl_over"], "the top 20 and the rest");
  EXPECT_FALSE(figures["gate"]["passed"].get<bool>());
}

TEST(LauncherEval, refuses_what_cannot_be_judged) {
  const LauncherJob job;
  std::ofstream(job.folder() / "empty.txt").flush();
  std::ofstream(job.folder() / "t.txt") << story;
  const auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"eval", "--config", "cluster.yaml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = job.run_plain(arguments);
    EXPECT_EQ(ended.code, 2) << ended.describe();
    return ended.err;
  };
  EXPECT_THAT(refused({}), HasSubstr("Give --text FILE or --tasks FILE"));
  EXPECT_THAT(refused({"--text", "none.txt"}), HasSubstr("none.txt"));
  EXPECT_THAT(refused({"--text", "empty.txt"}), HasSubstr("has 0 tokens"));
  EXPECT_THAT(refused({"--text", "t.txt", "--length", "4", "--stride", "5"}),
              HasSubstr("--stride 5 is more than --length 4"));
  EXPECT_THAT(refused({"--text", "t.txt", "--max-perplexity-increase", "1%"}),
              HasSubstr("give --against"));
  EXPECT_THAT(refused({"--text", "t.txt", "--set", "engine.max_model_len=16"}),
              HasSubstr("longer than the context of 16"));
}

}  // namespace
}  // namespace troupe::launcher_test
