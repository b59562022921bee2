// A request's answer has the same bytes under every condition of the engine.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/golden/support/golden_model.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/topologies.hpp"
#include "tests/support/regex.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;

/// Greedy, sampled, scored, edited, several choices and stop strings, over prompts with common
/// prefixes.
std::string mixed_requests() {
  const std::vector<json> bodies = {
      {{"temperature", 0}, {"max_tokens", 40}, {"ignore_eos", true}},
      {{"temperature", 0.9}, {"seed", 3}, {"top_p", 0.9}, {"max_tokens", 40}, {"ignore_eos", true}},
      {{"temperature", 0.8}, {"seed", 4}, {"n", 4}, {"max_tokens", 24}},
      {{"temperature", 0.7},
       {"seed", 5},
       {"repetition_penalty", 1.3},
       {"frequency_penalty", 0.4},
       {"logprobs", true},
       {"top_logprobs", 3},
       {"max_tokens", 30}},
      {{"temperature", 0}, {"stop", {"the "}}, {"min_tokens", 6}, {"max_tokens", 40}},
  };
  const std::string beginning =
      "Once upon a time there was a king who had three sons, and he sent them out to find the "
      "water of life. The eldest ";
  std::string input;
  for (std::size_t i = 0; i < 15; ++i) {
    json body = bodies[i % bodies.size()];
    body["return_token_ids"] = true;
    const char* const endings[] = {"rode away", "said nothing", "laughed at the dwarf"};
    input += chat(fmt::format("r{}", i), beginning + endings[i / bodies.size()], body);
  }
  return input + requests_of(demo_model().parent_path() / "requests.jsonl", 30,
                             {{"return_token_ids", true}});
}

/// A condition of an engine, and its trace in the summary.
struct Condition {
  std::string name;
  std::vector<std::string> engine;  ///< values of --set below "engine."
  std::string counted;              ///< the summary contains this with a number
  std::uint64_t at_least = 0;

  friend void PrintTo(const Condition& condition, std::ostream* out) { *out << condition.name; }
};

std::vector<Condition> conditions() {
  const std::string max_preempted = "of one request up to ([0-9]+)";
  const std::string swapped = "([0-9]+) swaps to host memory";
  const std::string accepted = "([0-9]+) of [0-9]+ guessed tokens accepted";
  const std::string draft_model =
      "speculative_model=" + golden::golden_model("fable-draft")->checkpoint.string();
  return {
      {"from_the_prefix_cache", {}, "([0-9]+) found in the prefix cache", 500},
      {"without_a_prefix_cache", {"enable_prefix_caching=false"}, "", 0},
      {"planned_after_results", {"async_scheduling=false"}, "", 0},
      {"chunked_by_7", {"max_num_batched_tokens=7", "max_num_seqs=7"}, "", 0},
      {"one_at_a_time", {"max_num_seqs=1"}, "", 0},
      {"preempted", {"kv_cache_blocks=24", "enable_prefix_caching=false"}, max_preempted, 3},
      {"preempted_with_a_prefix_cache", {"kv_cache_blocks=36"}, max_preempted, 3},
      {"swapped",
       {"kv_cache_blocks=24", "enable_prefix_caching=false", "swap_space=0.1"},
       swapped,
       5},
      {"swapped_with_a_prefix_cache", {"kv_cache_blocks=36", "swap_space=0.1"}, swapped, 3},
      {"swapped_or_preempted",
       {"kv_cache_blocks=24", "swap_space=0.0005"},
       max_preempted + "\\), [0-9]+ swaps",
       1},
      {"swapped_with_guesses",
       {"speculative_method=ngram", "kv_cache_blocks=24", "swap_space=0.1"},
       swapped,
       3},
      {"guessed_by_ngram", {"speculative_method=ngram"}, accepted, 100},
      {"guessed_by_a_draft_model",
       {"speculative_method=draft_model", "num_speculative_tokens=4", draft_model},
       accepted,
       100},
      {"shortest_first", {"scheduling_policy=sjf", "max_num_seqs=3"}, "", 0},
  };
}

std::uint64_t number_in(const std::string& words, const std::string& text) {
  const auto found = test::regex_search(text, words);
  return found.empty() ? 0 : std::stoull(found[1]);
}

class AnyCondition : public testing::TestWithParam<Condition> {
 protected:
  static const Answers& expected() {
    static const Answers answers = answers_to(
        mixed_requests(), {"engine.enable_prefix_caching=false", "engine.async_scheduling=false"});
    return answers;
  }

  static void expect_equal(const std::vector<std::string>& parallel) {
    const Condition& condition = GetParam();
    const LauncherJob job;
    job.write_input(mixed_requests());
    std::vector<std::string> arguments;
    for (const std::string& setting : parallel) {
      arguments.insert(arguments.end(), {"--set", "parallel." + setting});
    }
    for (const std::string& setting : condition.engine) {
      arguments.insert(arguments.end(), {"--set", "engine." + setting});
    }
    const Ended ended = job.run(arguments);
    ASSERT_EQ(ended.code, 0) << ended.describe();
    ASSERT_EQ(expected().size(), 45U);
    expect_same_payloads(expected(), job.answers(), condition.name);
    if (condition.counted.empty()) return;
    EXPECT_GE(number_in(condition.counted, ended.err), condition.at_least) << ended.err;
  }
};

TEST_P(AnyCondition, leaves_the_bytes_of_one_rank_alone) { expect_equal({}); }

TEST_P(AnyCondition, leaves_the_bytes_of_a_mix_of_ranks_alone) {
  expect_equal({"tensor_parallel_size=2", "pipeline_parallel_size=2", "expert_parallel_size=2",
                "sequence_parallel=true"});
}

TEST_P(AnyCondition, leaves_the_bytes_of_context_ranks_alone) {
  expect_equal({"context_parallel_size=2"});
}

INSTANTIATE_TEST_SUITE_P(Launcher, AnyCondition, testing::ValuesIn(conditions()),
                         [](const auto& info) { return info.param.name; });

/// A dtype of the KV cache, and its residual behind a comma if it has one.
class CodedKvCache : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::string> with_codes(std::vector<std::string> settings) {
    const std::string& codes = GetParam();
    const std::size_t comma = codes.find(',');
    settings.push_back("kv_cache.dtype=" + codes.substr(0, comma));
    if (comma != std::string::npos) {
      settings.push_back("kv_cache.residual=" + codes.substr(comma + 1));
    }
    return settings;
  }
};

TEST_P(CodedKvCache, gives_the_bytes_of_one_rank_alone_in_every_condition) {
  std::string input = mixed_requests();
  for (int i = 0; i < 4; ++i) {
    input += completion(
        fmt::format("beams{}", i), "Once upon a time there was a fox",
        {{"use_beam_search", true}, {"n", 2 + i}, {"max_tokens", 24}, {"return_token_ids", true}});
  }
  const std::string no_prefixes = "engine.enable_prefix_caching=false";
  const Answers alone =
      answers_to(input, with_codes({no_prefixes, "engine.async_scheduling=false"}));
  ASSERT_EQ(alone.size(), 49U);
  const Answers plain = answers_to(input);
  EXPECT_TRUE(std::ranges::any_of(alone, [&](const auto& answer) {
    return answer.second.payload != plain.at(answer.first).payload;
  })) << "a KV cache of codes changes no answer";
  const std::vector<std::vector<std::string>> conditions = {
      {"engine.max_num_batched_tokens=64", "engine.max_num_seqs=32"},
      {"engine.kv_cache_blocks=24", no_prefixes},
      {"engine.kv_cache_blocks=36", "engine.swap_space=0.1"},
      {"engine.speculative_method=ngram"},
      {"parallel.context_parallel_size=2"},
      {"parallel.data_parallel_size=2", "parallel.data_parallel_attention=true"},
      {"parallel.tensor_parallel_size=2", "parallel.pipeline_parallel_size=2",
       "parallel.sequence_parallel=true", "engine.kv_cache_blocks=36", "engine.swap_space=0.1"}};
  for (const std::vector<std::string>& settings : conditions) {
    expect_same_payloads(alone, answers_to(input, with_codes(settings)), settings.front());
  }
}

INSTANTIATE_TEST_SUITE_P(Launcher, CodedKvCache,
                         testing::Values("int8", "fp8_e4m3", "int4", "int4,keys"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, ',', '_');
                           return name;
                         });

TEST(AWindow, is_swapped_out_and_in_with_its_sequence) {
  const std::filesystem::path model = golden::data_folder() / "mistral-a";
  std::string input;
  for (int i = 0; i < 20; ++i) {
    const std::vector<int> prompt(static_cast<std::size_t>(20 + 5 * i), 10 + i);
    input += completion(
        fmt::format("r{}", i), prompt,
        {{"seed", i}, {"max_tokens", 90}, {"ignore_eos", true}, {"return_token_ids", true}});
  }
  const Answers plenty = answers_to(input, {}, 0, model);
  const LauncherJob job(model);
  job.write_input(input);
  const Ended ended =
      job.run({"--set", "engine.kv_cache_blocks=13", "--set", "engine.max_num_batched_tokens=32",
               "--set", "engine.max_num_seqs=32", "--set", "engine.swap_space=0.1", "--set",
               "parallel.pipeline_parallel_size=2"});
  ASSERT_EQ(ended.code, 0) << ended.describe();
  expect_same_payloads(plenty, job.answers(), "swapped");
  EXPECT_GT(number_in("([0-9]+) swaps? to host memory", ended.err), 0U) << ended.err;
}

TEST(ARequestAlone, has_the_bytes_that_it_has_among_others) {
  const std::string all = mixed_requests();
  const Answers among_others = answers_to(all);
  std::istringstream lines(all);
  std::string line;
  for (int i = 0; std::getline(lines, line) && i < 5; ++i) {
    const Answers alone = answers_to(line + "\n");
    ASSERT_EQ(alone.size(), 1U);
    const auto& [id, answer] = *alone.begin();
    EXPECT_EQ(answer.payload, among_others.at(id).payload) << id;
  }
}

}  // namespace
}  // namespace troupe::launcher_test
