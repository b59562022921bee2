#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;

/// Requests with and without their own seeds, with every kind of cut.
std::vector<std::string> sampled_requests() {
  const std::vector<json> cuts = {{{"top_p", 0.95}},
                                  {{"top_k", 40}},
                                  {{"min_p", 0.05}},
                                  {{"top_p", 0.9}, {"top_k", 100}},
                                  json::object()};
  std::vector<std::string> lines;
  for (int i = 0; i < 24; ++i) {
    json body = {{"temperature", 0.8}, {"max_tokens", 12 + i}, {"return_token_ids", true}};
    body.update(cuts[static_cast<std::size_t>(i) % cuts.size()]);
    if (i % 3 != 0) body["seed"] = 1000 + i;
    const std::string id = "sampled-" + std::to_string(i);
    lines.push_back(i % 2 == 0 ? chat(id, "Tell me of the king.", body)
                               : completion(id, "Once upon a time", body));
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

TEST(Sampling, gives_the_same_bytes_on_two_ranks_and_for_lines_in_another_order) {
  std::vector<std::string> lines = sampled_requests();
  const Answers one = answers_to(joined(lines));
  ASSERT_EQ(one.size(), lines.size());
  EXPECT_NE(one.at("sampled-1").choice().at("token_ids"),
            one.at("sampled-11").choice().at("token_ids"))
      << "two seeds gave the same answer";
  expect_same_payloads(one, answers_to(joined(lines), {"parallel.tensor_parallel_size=2"}),
                       "2 ranks");
  std::shuffle(lines.begin(), lines.end(), std::mt19937(7));
  expect_same_payloads(one, answers_to(joined(lines), {"engine.max_num_seqs=5"}),
                       "another order, 5 at a time");
}

TEST(Sampling, of_a_request_without_a_seed_follows_the_job_seed_and_the_custom_id) {
  const json body = {{"temperature", 0.8}, {"max_tokens", 24}};
  const std::string input =
      completion("a", "Once upon a time", body) + completion("b", "Once upon a time", body);
  const Answers first = answers_to(input);
  EXPECT_NE(first.at("a").payload, first.at("b").payload);
  EXPECT_NE(first.at("a").payload, answers_to(input, {"job.seed=1"}).at("a").payload);
}

TEST(Sampling, takes_what_a_request_leaves_open_from_generation_config) {
  const std::string prompt = "There was once a king who";
  const json open = {{"seed", 5}, {"max_tokens", 48}};
  json told = open;
  told.update({{"temperature", 0.7}, {"top_k", 20}, {"top_p", 0.95}});
  json neutral = open;
  neutral.update({{"temperature", 1.0}, {"top_k", 0}, {"top_p", 1.0}});
  json greedy = open;
  greedy["temperature"] = 0;
  const Answers answers =
      answers_to(completion("open", prompt, open) + completion("told", prompt, told) +
                 completion("neutral", prompt, neutral) + completion("greedy", prompt, greedy));
  EXPECT_EQ(answers.at("open").payload, answers.at("told").payload);
  EXPECT_NE(answers.at("open").payload, answers.at("neutral").payload);
  EXPECT_NE(answers.at("open").payload, answers.at("greedy").payload);
}

}  // namespace
}  // namespace troupe::launcher_test
