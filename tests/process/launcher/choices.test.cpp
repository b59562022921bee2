#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;

const json sampled = {
    {"temperature", 0.8}, {"max_tokens", 16}, {"seed", 5}, {"return_token_ids", true}};

json with(json body, const json& extra) {
  body.update(extra);
  return body;
}

const std::string prompt = "Once upon a time";

std::string line(const std::string& id, const json& extra) {
  return completion(id, prompt, with(sampled, extra));
}

TEST(Choices, of_one_seed_are_the_same_for_every_n_and_the_first_is_that_of_a_single_request) {
  const Answers answers =
      answers_to(line("one", json::object()) + line("two", {{"n", 2}}) + line("five", {{"n", 5}}));
  const json& five = answers.at("five").body().at("choices");
  ASSERT_EQ(five.size(), 5U);
  EXPECT_EQ(answers.at("two").body().at("choices"), json::array({five[0], five[1]}));
  EXPECT_EQ(answers.at("one").body().at("choices"), json::array({five[0]}));
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(five[i].at("index"), i);
    for (std::size_t k = 0; k < i; ++k) {
      EXPECT_NE(five[i].at("token_ids"), five[k].at("token_ids")) << i << " and " << k;
    }
  }
  const json& usage = answers.at("five").body().at("usage");
  EXPECT_EQ(usage.at("prompt_tokens"), answers.at("one").body().at("usage").at("prompt_tokens"));
  std::size_t tokens = 0;
  for (const json& choice : five) tokens += choice.at("token_ids").size();
  EXPECT_EQ(usage.at("completion_tokens"), tokens);
}

TEST(Choices, have_the_same_bytes_on_two_ranks_in_small_steps_and_one_after_the_other) {
  const std::string input = line("five", {{"n", 5}, {"echo", true}, {"logprobs", 2}}) +
                            line("best", {{"n", 2}, {"best_of", 4}}) +
                            chat("chat", "Tell me of the king.", with(sampled, {{"n", 3}})) +
                            line("beam", {{"n", 2}, {"use_beam_search", true}});
  const Answers expected = answers_to(input);
  expect_same_payloads(
      expected,
      answers_to(input, {"parallel.tensor_parallel_size=2", "engine.max_num_batched_tokens=16",
                         "engine.max_num_seqs=8"}),
      "2 ranks, 16 tokens a step");
  expect_same_payloads(expected, answers_to(input, {"engine.max_num_seqs=1"}), "one at a time");
}

TEST(Choices, of_best_of_are_those_with_the_likeliest_tokens) {
  const Answers answers = answers_to(line("all", {{"n", 6}, {"logprobs", 0}}) +
                                     line("best", {{"n", 2}, {"best_of", 6}}));
  std::vector<std::pair<double, json>> ranked;
  for (const json& choice : answers.at("all").body().at("choices")) {
    double sum = 0;
    const json& scores = choice.at("logprobs").at("token_logprobs");
    for (const json& score : scores) sum += score.get<double>();
    ranked.emplace_back(sum / static_cast<double>(scores.size()), choice.at("text"));
  }
  std::ranges::sort(ranked, [](const auto& a, const auto& b) { return a.first > b.first; });
  const json& best = answers.at("best").body().at("choices");
  ASSERT_EQ(best.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(best[i].at("text"), ranked[i].second) << i;
    EXPECT_EQ(best[i].at("index"), i);
    EXPECT_TRUE(best[i].at("logprobs").is_null()) << "nobody asked for them";
  }
}

TEST(Choices, all_begin_with_the_prompt_that_is_echoed_and_share_its_scores) {
  const Answers answers =
      answers_to(line("n", {{"n", 3}, {"echo", true}, {"logprobs", 1}, {"prompt_logprobs", 1}}) +
                 line("score", {{"n", 2}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}}));
  const json& choices = answers.at("n").body().at("choices");
  ASSERT_EQ(choices.size(), 3U);
  const auto prompt_tokens =
      answers.at("n").body().at("usage").at("prompt_tokens").get<std::size_t>();
  for (const json& choice : choices) {
    EXPECT_TRUE(choice.at("text").get<std::string>().starts_with(prompt));
    EXPECT_EQ(choice.at("prompt_logprobs"), choices[0].at("prompt_logprobs"));
    ASSERT_EQ(choice.at("prompt_logprobs").size(), prompt_tokens);
    EXPECT_TRUE(choice.at("prompt_logprobs").at(0).is_null());
    const json& scores = choice.at("logprobs").at("token_logprobs");
    EXPECT_EQ(scores.size(), prompt_tokens + choice.at("token_ids").size());
    for (std::size_t i = 1; i < prompt_tokens; ++i) {
      const json& scored = choice.at("prompt_logprobs").at(i);
      const std::string id = choice.at("prompt_token_ids").at(i).dump();
      ASSERT_TRUE(scored.contains(id)) << scored;
      EXPECT_EQ(scored.at(id).at("logprob"), scores.at(i));
      EXPECT_GE(scored.at(id).at("rank").get<int>(), 1);
      const bool is_best = scored.at(id).at("rank") == 1;
      EXPECT_EQ(scored.size(), is_best ? 1U : 2U) << scored;
    }
  }
  const json& scored = answers.at("score").body().at("choices");
  ASSERT_EQ(scored.size(), 2U);
  EXPECT_EQ(scored[0].at("text"), prompt);
  EXPECT_EQ(scored[1].at("text"), prompt);
}

}  // namespace
}  // namespace troupe::launcher_test
