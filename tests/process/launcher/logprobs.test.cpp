#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "models/text/tokenizer.hpp"
#include "tests/golden/support/golden_model.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/require.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;

constexpr int alternatives = 5;
constexpr std::size_t golden_alternatives = 20;
constexpr double tolerance = 1e-3;

std::vector<double> best_first(const json& top) {
  std::vector<double> values;
  for (const auto& [text, logprob] : top.items()) values.push_back(logprob.get<double>());
  std::sort(values.rbegin(), values.rend());
  return values;
}

/// Compares one position with row `row` of the reference, the distribution of the next token.
void expect_top(const json& top, const golden::GoldenPrompt& prompt, std::size_t row,
                const Tokenizer& tokenizer) {
  ASSERT_TRUE(top.is_object()) << top;
  const std::vector<double> found = best_first(top);
  const float* logprobs = prompt.top_logprobs.data() + row * golden_alternatives;
  const std::int32_t* ids = prompt.top_ids.data() + row * golden_alternatives;
  EXPECT_NEAR(found.front(), logprobs[0], tolerance);
  // Tokens of equal text share a key, and the position's own token may be extra.
  EXPECT_LE(found.size(), alternatives + 1U);
  for (int i = 0; i < alternatives; ++i) {
    const bool near_next = logprobs[i] - logprobs[i + 1] < 2 * tolerance;
    const std::string text = tokenizer.decode({ids + i, 1}, false);
    if (near_next || text.find("\uFFFD") != text.npos || tokenizer.is_special(ids[i])) continue;
    ASSERT_TRUE(top.contains(text)) << "no " << text << " in " << top;
    EXPECT_NEAR(top.at(text).get<double>(), logprobs[i], tolerance) << text;
  }
}

void expect_prompt(const Answer& answer, const golden::GoldenPrompt& prompt, int generated,
                   const Tokenizer& tokenizer) {
  ASSERT_TRUE(answer.ok()) << answer.record;
  const std::size_t prompt_tokens = prompt.ids.size();
  const json& logprobs = answer.choice().at("logprobs");
  const json& own = logprobs.at("token_logprobs");
  const std::size_t tokens = prompt_tokens + static_cast<std::size_t>(generated);
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    ASSERT_EQ(logprobs.at(list).size(), tokens) << list;
  }
  EXPECT_TRUE(own.at(0).is_null()) << "nothing comes before the first token";
  EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
  for (std::size_t i = 1; i < prompt_tokens; ++i) {
    SCOPED_TRACE("position " + std::to_string(i));
    EXPECT_NEAR(own.at(i).get<double>(), prompt.prompt_logprobs[i - 1], tolerance);
    expect_top(logprobs.at("top_logprobs").at(i), prompt, i - 1, tokenizer);
  }
  if (generated > 0) {
    const std::size_t last = (prompt_tokens - 1) * golden_alternatives;
    EXPECT_EQ(answer.choice().at("token_ids"), json({prompt.top_ids[last]}));
    EXPECT_NEAR(own.back().get<double>(), prompt.top_logprobs[last], tolerance);
  }
  EXPECT_EQ(answer.body().at("usage").at("completion_tokens"), generated);
  EXPECT_EQ(answer.body().at("usage").at("prompt_tokens"), prompt_tokens);
}

TEST(PromptLogprobs, of_echoed_token_ids_are_the_reference_ones_also_when_prompts_come_in_chunks) {
  const auto model = golden::golden_model("fable-moe");
  ASSERT_TRUE(model);
  REQUIRE_OK(const auto prompts, golden::read_prompts(model->logits));
  REQUIRE_OK(const auto tokenizer, Tokenizer::load(demo_model()));
  std::string input;
  std::size_t longest = 0;
  for (const auto& prompt : prompts) {
    longest = std::max(longest, prompt.ids.size());
    for (const int generated : {0, 1}) {
      input += completion(prompt.id + "-" + std::to_string(generated), prompt.ids,
                          {{"echo", true},
                           {"logprobs", alternatives},
                           {"temperature", 0},
                           {"return_token_ids", true},
                           {"max_tokens", generated}});
    }
  }
  ASSERT_GT(longest, 64U) << "no prompt is longer than a step";
  const Answers whole = answers_to(input, {"parallel.tensor_parallel_size=2"});
  for (const auto& prompt : prompts) {
    for (const int generated : {0, 1}) {
      const std::string id = prompt.id + "-" + std::to_string(generated);
      SCOPED_TRACE(id);
      ASSERT_TRUE(whole.contains(id));
      expect_prompt(whole.at(id), prompt, generated, tokenizer);
    }
  }
  const Answers chunked =
      answers_to(input, {"engine.max_num_batched_tokens=64", "engine.max_num_seqs=8"});
  expect_same_payloads(whole, chunked, "in chunks of 64 tokens");
}

TEST(Logprobs, of_the_golden_batch_are_the_reference_ones) {
  constexpr std::size_t requests = 12;
  auto inputs = json_lines(batch_folder() / "batch-64.jsonl");
  inputs.resize(requests);
  std::string input;
  for (json& line : inputs) {
    const bool is_chat = line.at("url") == "/v1/chat/completions";
    if (is_chat) {
      line["body"]["logprobs"] = true;
    } else {
      line["body"]["logprobs"] = 0;
    }
    input += line.dump() + "\n";
  }
  const Answers answers = answers_to(input);
  const auto references = json_lines(batch_folder() / "expected-batch-64-fable-moe.jsonl");
  for (std::size_t i = 0; i < requests; ++i) {
    const json& expected = references[i];
    SCOPED_TRACE(expected.at("custom_id").get<std::string>());
    const json& logprobs = answers.at(expected.at("custom_id")).choice().at("logprobs");
    std::vector<double> found;
    if (logprobs.contains("content")) {
      for (const json& token : logprobs.at("content")) found.push_back(token.at("logprob"));
    } else {
      found = logprobs.at("token_logprobs").get<std::vector<double>>();
    }
    const auto safe =
        std::min(expected.at("safe_steps").get<std::size_t>(), expected.at("logprobs").size());
    ASSERT_GE(found.size(), safe);
    for (std::size_t step = 0; step < safe; ++step) {
      EXPECT_NEAR(found[step], expected.at("logprobs").at(step).get<double>(), tolerance) << step;
    }
  }
}

TEST(Logprobs, of_a_chat_tell_token_bytes_and_the_best_alternatives) {
  const Answers answers = answers_to(
      chat("three", "Tell me of the king.",
           {{"temperature", 0}, {"max_tokens", 12}, {"logprobs", true}, {"top_logprobs", 3}}) +
      chat("own", "Tell me of the king.",
           {{"temperature", 0}, {"max_tokens", 12}, {"logprobs", true}}) +
      chat("none", "Tell me of the king.", {{"temperature", 0}, {"max_tokens", 12}}));
  EXPECT_TRUE(answers.at("none").choice().at("logprobs").is_null());
  const json& content = answers.at("three").choice().at("logprobs").at("content");
  ASSERT_EQ(content.size(), 12U);
  std::string text;
  for (const json& token : content) {
    ASSERT_EQ(token.at("top_logprobs").size(), 3U) << token;
    const auto bytes = token.at("bytes").get<std::vector<int>>();
    EXPECT_EQ(std::string(bytes.begin(), bytes.end()), token.at("token").get<std::string>());
    EXPECT_EQ(token.at("top_logprobs").at(0).at("token"), token.at("token"));
    EXPECT_EQ(token.at("top_logprobs").at(0).at("logprob"), token.at("logprob"));
    EXPECT_LE(token.at("logprob").get<double>(), 0);
    EXPECT_GE(token.at("top_logprobs").at(1).at("logprob").get<double>(),
              token.at("top_logprobs").at(2).at("logprob").get<double>());
    text += token.at("token").get<std::string>();
  }
  const std::string answered = answers.at("three").choice().at("message").at("content");
  EXPECT_EQ(text, answered);
  for (const json& token : answers.at("own").choice().at("logprobs").at("content")) {
    EXPECT_TRUE(token.at("top_logprobs").empty()) << token;
  }
  EXPECT_EQ(answers.at("own").choice().at("message").at("content"), answered);
}

}  // namespace
}  // namespace troupe::launcher_test
