#include "tests/process/launcher/support/topologies.hpp"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

// The same bytes in every arrangement of ranks, through real processes.

namespace troupe::launcher_test {
namespace {

std::vector<Topology> over_network() {
  std::vector<Topology> some;
  for (const Topology& topology : topologies()) {
    if (topology.name == "tp2" || topology.name == "cp2_pp2" || topology.name == "tp2_pp2_ep2_sp" ||
        topology.name == "dp2_ep2" || topology.name == "dp2_tp2_dpa") {
      some.push_back(topology);
    }
  }
  return some;
}

class Arrangement : public testing::TestWithParam<Topology> {};

TEST_P(Arrangement, gives_the_bytes_of_one_rank) {
  expect_the_bytes_of_one_rank(GetParam(), "shm", golden_input());
}

INSTANTIATE_TEST_SUITE_P(Launcher, Arrangement, testing::ValuesIn(topologies()),
                         [](const auto& info) { return info.param.name; });

class ArrangementOverNetwork : public testing::TestWithParam<Topology> {};

TEST_P(ArrangementOverNetwork, gives_the_bytes_of_one_rank) {
  expect_the_bytes_of_one_rank(GetParam(), "network", golden_input());
}

INSTANTIATE_TEST_SUITE_P(Launcher, ArrangementOverNetwork, testing::ValuesIn(over_network()),
                         [](const auto& info) { return info.param.name; });

TEST(SeveralPassesAStep, give_the_bytes_of_one_rank_on_stages_context_ranks_and_in_step_domains) {
  // Every token of the prompts is scored, and a pass has logits of only eight rows: so a step takes
  // several passes, and different numbers of them on replicas that step together.
  std::string input;
  for (int i = 0; i < 16; ++i) {
    std::string prompt = "The fox and the crow";
    for (int more = 0; more < i; ++more) prompt += " met again, and the crow said nothing";
    input += completion("echo-" + std::to_string(i), prompt,
                        {{"echo", true}, {"logprobs", 2}, {"max_tokens", 4}, {"temperature", 0}});
  }
  for (const Topology& topology : topologies()) {
    if (topology.name != "pp4" && topology.name != "cp2" && topology.name != "dp2_pp2_ep2" &&
        topology.name != "dp2_pp2_dpa") {
      continue;
    }
    expect_the_bytes_of_one_rank(topology, "shm", input, {},
                                 {"max_num_seqs=8", "max_num_batched_tokens=32"});
  }
}

TEST(KvPolicies, give_the_bytes_of_one_rank) {
  const std::map<std::string, std::vector<std::string>> policies = {
      {"streaming", {"kv_cache.window_tokens=40"}},
      {"snapkv", {"kv_cache.window_tokens=40", "kv_cache.prompt_tokens=64"}},
      {"h2o", {"kv_cache.window_tokens=40", "kv_cache.heavy_tokens=24"}},
  };
  const std::string input = requests_of(batch_folder() / "batch-64.jsonl", 24,
                                        {{"max_tokens", 60}, {"return_token_ids", true}});
  for (const auto& [policy, sizes] : policies) {
    std::vector<std::string> settings = sizes;
    // Codes move and turn with the entries of a cache.
    if (policy == "streaming") settings.push_back("kv_cache.dtype=int8");
    if (policy == "h2o") {
      settings.insert(settings.end(), {"kv_cache.dtype=int4", "kv_cache.residual=keys"});
    }
    settings.push_back("engine.enable_prefix_caching=false");
    settings.push_back("kv_cache.policy=" + policy);
    const Answers alone = answers_to(input, settings);
    ASSERT_EQ(alone.size(), 24U);
    settings.insert(settings.end(),
                    {"parallel.tensor_parallel_size=2", "parallel.pipeline_parallel_size=2",
                     "engine.kv_cache_blocks=96", "engine.max_num_batched_tokens=256"});
    expect_same_payloads(alone, answers_to(input, settings), policy);
  }
}

TEST(FewerBits, give_the_bytes_of_one_rank_however_ranks_share_rows) {
  const std::string input = requests_of(batch_folder() / "batch-64.jsonl", 16,
                                        {{"max_tokens", 24}, {"return_token_ids", true}});
  const Answers wide = answers_to(input);
  for (const std::string name : {"fp8", "int8", "w4a16"}) {
    SCOPED_TRACE(name);
    const std::string quantization = "model.quantization=" + name;
    const Answers alone = answers_to(input, {quantization});
    ASSERT_EQ(alone.size(), 16U);
    EXPECT_TRUE(std::ranges::any_of(alone, [&](const auto& answer) {
      return answer.second.payload != wide.at(answer.first).payload;
    })) << "fewer bits change no answer";
    expect_same_payloads(alone,
                         answers_to(input, {quantization, "parallel.tensor_parallel_size=2",
                                            "parallel.pipeline_parallel_size=2"}),
                         "tensor 2 x pipeline 2");
  }
}

TEST(StepDomain, answers_on_while_one_of_its_replicas_has_no_requests) {
  // Two replicas that share experts, and one request: the other replica only serves its experts.
  const std::string input =
      requests_of(batch_folder() / "batch-64.jsonl", 1, {{"return_token_ids", true}});
  const Answers alone = answers_to(input);
  ASSERT_EQ(alone.size(), 1U);
  expect_same_payloads(
      alone,
      answers_to(input, {"parallel.data_parallel_size=2", "parallel.expert_parallel_size=2"}),
      "two replicas");
  expect_same_payloads(
      alone,
      answers_to(input, {"parallel.data_parallel_size=2", "parallel.data_parallel_attention=true"}),
      "two replicas that share dense layers");
}

TEST(DataParallelAttention, gives_the_bytes_of_one_rank_with_guesses_and_preempted_requests) {
  const std::string input = golden_input();
  const Answers alone = answers_to(input);
  const std::vector<std::string> shared = {"parallel.data_parallel_size=2",
                                           "parallel.data_parallel_attention=true"};
  for (const std::vector<std::string>& engine :
       {std::vector<std::string>{"engine.speculative_method=ngram"},
        std::vector<std::string>{"engine.kv_cache_blocks=72",
                                 "engine.max_num_batched_tokens=256"}}) {
    std::vector<std::string> settings = shared;
    settings.insert(settings.end(), engine.begin(), engine.end());
    expect_same_payloads(alone, answers_to(input, settings), engine.front());
  }
}

}  // namespace
}  // namespace troupe::launcher_test
