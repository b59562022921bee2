#include "launcher/bench/throughput/workload.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint_folder.hpp"

namespace troupe {
namespace {

using golden::TemporaryFolder;
using testing::HasSubstr;

constexpr WorkloadBounds bounds{.vocab_size = 100, .max_model_len = 64};

Config any_config() {
  Config config;
  config.model.served_model_name = {"m"};
  return config;
}

Result<Workload> workload(const BenchOptions& options) {
  return make_workload(options, any_config(), bounds);
}

TEST(Workload, random_requests_have_the_wanted_lengths_and_ids) {
  const auto made =
      workload({.num_prompts = 500, .input_len = {5, 9}, .output_len = {3, 4}, .seed = 7});
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->requests.size(), 500U);
  std::set<std::size_t> prompts;
  std::set<std::int64_t> answers;
  std::set<std::int32_t> ids;
  for (const Request& request : made->requests) {
    EXPECT_EQ(request.kind, PromptKind::token_ids);
    EXPECT_TRUE(request.ignore_eos);
    EXPECT_EQ(request.temperature, 0.0F);
    prompts.insert(request.prompt_ids.size());
    answers.insert(request.max_tokens.value_or(-1));
    ids.insert(request.prompt_ids.begin(), request.prompt_ids.end());
  }
  EXPECT_THAT(prompts, testing::ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(answers, testing::ElementsAre(3, 4));
  EXPECT_EQ(*ids.begin(), 0);
  EXPECT_EQ(*ids.rbegin(), 99);
  EXPECT_EQ(made->description, "random, 5 to 9 + 3 to 4 tokens, seed 7");
}

TEST(Workload,
     random_requests_draw_their_tokens_at_the_wanted_temperature_with_seeds_of_their_own) {
  const auto made = workload({.num_prompts = 3,
                              .input_len = {5, 9},
                              .output_len = {3, 4},
                              .seed = 7,
                              .temperature = 0.6F});
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::set<std::uint64_t> seeds;
  for (const Request& request : made->requests) {
    EXPECT_EQ(request.temperature, 0.6F);
    seeds.insert(request.seed);
  }
  EXPECT_EQ(seeds.size(), 3U);
  EXPECT_EQ(made->description, "random, 5 to 9 + 3 to 4 tokens, seed 7, temperature 0.6");
}

TEST(Workload, that_is_mixed_is_half_greedy) {
  const auto made = make_mixed_workload(
      {.num_prompts = 3, .input_len = {5, 9}, .output_len = {3, 4}, .seed = 7, .temperature = 0.6F},
      any_config(), bounds);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->requests.size(), 3U);
  EXPECT_EQ(made->requests[0].temperature, 0.0F);
  EXPECT_EQ(made->requests[1].temperature, 0.6F);
  EXPECT_EQ(made->requests[2].temperature, 0.0F);
  EXPECT_NE(made->requests[1].seed, made->requests[2].seed);
  EXPECT_THAT(made->description, testing::EndsWith("seed 7, half greedy"));
}

TEST(Workload, depends_on_its_seed_alone) {
  BenchOptions options{.num_prompts = 3, .input_len = {20, 40}, .output_len = {1, 9}};
  const auto ids = [&](std::uint64_t seed) {
    options.seed = seed;
    std::vector<std::vector<std::int32_t>> all;
    const auto made = workload(options);
    for (const Request& request : made->requests) all.push_back(request.prompt_ids);
    return all;
  };
  EXPECT_EQ(ids(1), ids(1));
  EXPECT_NE(ids(1), ids(2));
  EXPECT_NE(ids(1)[0], ids(1)[1]);
}

TEST(Workload, takes_lengths_from_a_csv_file) {
  const TemporaryFolder folder;
  const auto file = folder.write("w.csv", "prompt_tokens,max_tokens\n9,2\r\n\n30,34\n1,1");
  const auto made = workload({.workload = file.string()});
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->requests.size(), 3U);
  EXPECT_EQ(made->requests[0].prompt_ids.size(), 9U);
  EXPECT_EQ(made->requests[0].max_tokens, 2);
  EXPECT_EQ(made->requests[1].prompt_ids.size(), 30U);
  EXPECT_EQ(made->requests[2].max_tokens, 1);
  EXPECT_EQ(workload({.num_prompts = 2, .workload = file.string()})->requests.size(), 2U);
}

TEST(Workload, takes_the_requests_of_a_batch_file) {
  const TemporaryFolder folder;
  const std::string line =
      R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":[1,2],"max_tokens":5}})";
  const auto file = folder.write("w.jsonl", line + "\n");
  const auto made = workload({.workload = file.string()});
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->requests.size(), 1U);
  EXPECT_THAT(made->requests[0].prompt_ids, testing::ElementsAre(1, 2));
  EXPECT_EQ(made->requests[0].max_tokens, 5);
}

TEST(Workload, says_where_a_mistake_is) {
  const TemporaryFolder folder;
  const std::pair<std::string, std::string> files[] = {
      {"a.csv", "prompt_tokens,max_tokens\n9,2\n9\n"},
      {"b.csv", "9,2,3\n"},
      {"c.csv", "9,0\n"},
      {"d.csv", "-9,4\n"},
      {"e.csv", "60,5\n"},
      {"f.csv", "prompt_tokens,max_tokens\n"},
      {"g.jsonl", "{}\n"},
  };
  const std::string reasons[] = {
      "a.csv:3: expected two numbers of tokens, found \"9\"",
      "b.csv:1: expected two numbers",
      "c.csv:1: expected two numbers",
      "d.csv:1: expected two numbers",
      "e.csv:1: 60 tokens of prompt and 5 of answer are more than the context of 64",
      "f.csv has no requests",
      "g.jsonl:1: ",
  };
  for (std::size_t i = 0; i < std::size(files); ++i) {
    const auto file = folder.write(files[i].first, files[i].second);
    const auto made = workload({.workload = file.string()});
    ASSERT_FALSE(made.ok()) << files[i].first;
    EXPECT_THAT(made.error().message, HasSubstr(reasons[i]));
  }
  const auto missing = workload({.workload = (folder.path() / "none.csv").string()});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("none.csv"));
  const auto long_ones = workload({.input_len = {1, 60}, .output_len = {1, 5}});
  ASSERT_FALSE(long_ones.ok());
  EXPECT_THAT(long_ones.error().message, HasSubstr("--input-len and --output-len: 60 tokens"));
}

}  // namespace
}  // namespace troupe
