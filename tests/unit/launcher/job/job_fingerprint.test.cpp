#include "launcher/job/job_fingerprint.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

/// The demo's job with modifiable copies of its model and input.
class JobFingerprint : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / fmt::format("troupe_{}_{}", ::getpid(), test->name());
    fs::create_directories(folder_);
    const fs::path demo = test::source_path("configs/demo");
    fs::copy(demo / "fable-moe", folder_ / "fable-moe");
    fs::copy(demo / "requests.jsonl", folder_ / "in.jsonl");
  }
  void TearDown() override { fs::remove_all(folder_); }

  JobPlan plan(const std::vector<Override>& overrides = {}) const {
    const std::string yaml = fmt::format(
        "model: {{path: {0}/fable-moe}}\njob: {{input: {0}/in.jsonl, output: {0}/out.jsonl}}\n",
        folder_.string());
    auto config = parse_config(yaml, "c.yaml", overrides, Purpose::run);
    EXPECT_TRUE(config.ok()) << config.error().message;
    auto plan = plan_job(*std::move(config));
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return *std::move(plan);
  }
  static Fingerprint fingerprint_of(const JobPlan& plan) {
    auto made = job_fingerprint(plan);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *std::move(made);
  }
  Fingerprint fingerprint(const std::vector<Override>& overrides = {}) const {
    return fingerprint_of(plan(overrides));
  }
  void append(const std::string& name, std::string_view text) const {
    std::ofstream(folder_ / name, std::ios::app) << text;
  }

  fs::path folder_;
};

TEST_F(JobFingerprint, is_the_same_for_another_arrangement) {
  const Fingerprint one = fingerprint();
  EXPECT_THAT(differences(one, fingerprint()), IsEmpty());
  const std::vector<Override> others = {{"", "parallel.tensor_parallel_size", "2"},
                                        {"", "engine.max_num_seqs", "7"},
                                        {"", "engine.block_size", "32"},
                                        {"", "name", "another"}};
  EXPECT_THAT(differences(one, fingerprint(others)), IsEmpty());
}

TEST_F(JobFingerprint, differs_in_what_changes_answers) {
  const Fingerprint one = fingerprint();
  const std::vector<std::pair<Override, std::string>> table = {
      {{"", "job.seed", "1"}, "job.seed was 0, is 1"},
      {{"", "engine.max_model_len", "512"}, "engine.max_model_len was 2048, is 512"},
      {{"", "model.dtype", "bfloat16"}, "the dtype was float32, is bfloat16"},
      {{"", "job.ordered", "true"}, "job.ordered was false, is true"},
      {{"", "model.served_model_name", "[m]"}, "model.served_model_name was fable-moe, is m"},
  };
  for (const auto& [change, sentence] : table) {
    EXPECT_THAT(differences(one, fingerprint({change})), ElementsAre(sentence)) << change.key;
  }
}

TEST_F(JobFingerprint, of_deterministic_gpus_is_none_of_others) {
  JobPlan gpus = plan();
  const Fingerprint others = fingerprint_of(gpus);
  gpus.engine.deterministic = true;
  const Fingerprint deterministic = fingerprint_of(gpus);
  EXPECT_THAT(differences(others, deterministic),
              ElementsAre("engine.deterministic on GPUs was nothing, is true"));
  EXPECT_THAT(differences(deterministic, others),
              ElementsAre("engine.deterministic on GPUs was true, is nothing"));
}

TEST_F(JobFingerprint, differs_when_weights_of_the_same_shapes_have_other_values) {
  const Fingerprint before = fingerprint();
  std::fstream weights(folder_ / "fable-moe/model.safetensors",
                       std::ios::binary | std::ios::in | std::ios::out);
  weights.seekp(-2, std::ios::end);
  weights.put('\x3f').put('\x40');
  weights.close();
  EXPECT_THAT(differences(before, fingerprint()),
              ElementsAre(StartsWith("the weights in model.safetensors was")));
}

TEST_F(JobFingerprint, differs_when_a_file_has_changed) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"in.jsonl", "the input was"},
      {"fable-moe/config.json", "the model's config.json"},
      {"fable-moe/tokenizer.json", "the tokenizer"},
      {"fable-moe/chat_template.jinja", "the tokenizer"},
      {"fable-moe/generation_config.json", "generation_config.json was"},
  };
  for (const auto& [name, sentence] : table) {
    const Fingerprint before = fingerprint();
    append(name, "\n");
    EXPECT_THAT(differences(before, fingerprint()), ElementsAre(StartsWith(sentence))) << name;
  }
}

}  // namespace
}  // namespace troupe
