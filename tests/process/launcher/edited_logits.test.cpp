#include <algorithm>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "models/text/tokenizer.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/reference_model.hpp"
#include "tests/support/require.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;

constexpr std::size_t count = 24;
constexpr float masked = -std::numeric_limits<float>::infinity();
const Ids prompt = {3066, 659, 258, 530};
const Ids eos = {4093, 4095};

float& at(std::vector<float>& logits, std::int32_t id) {
  return logits[static_cast<std::size_t>(id)];
}

struct Case {
  json body;
  ReferenceModel::Edit edit;
};

ReferenceModel::Edit penalties(float repetition, float frequency, float presence) {
  return [=](const Ids& output, std::vector<float>& logits) {
    std::map<std::int32_t, int> counts;
    for (const std::int32_t id : prompt) counts[id] += 0;
    for (const std::int32_t id : output) ++counts[id];
    for (const auto& [id, seen] : counts) {
      float& x = at(logits, id);
      x = x > 0 ? x / repetition : x * repetition;
      x -= frequency * static_cast<float>(seen);
      x -= seen > 0 ? presence : 0.0F;
    }
  };
}

ReferenceModel::Edit mask_words(const std::vector<Ids>& words) {
  return [=](const Ids& output, std::vector<float>& logits) {
    for (const Ids& word : words) {
      const Ids begin(word.begin(), word.end() - 1);
      if (begin.size() > output.size()) continue;
      if (std::equal(begin.begin(), begin.end(),
                     output.end() - static_cast<std::ptrdiff_t>(begin.size()))) {
        at(logits, word.back()) = masked;
      }
    }
  };
}

TEST(EditedLogits, give_the_tokens_that_the_definitions_give_on_the_models_logits) {
  REQUIRE_OK(const auto tokenizer, Tokenizer::load(demo_model()));
  REQUIRE_OK(const auto model, ReferenceModel::load());
  const auto nothing = [](const Ids&, std::vector<float>&) {};
  REQUIRE_OK(const Ids plain, model->greedy(prompt, count, nothing, eos));
  ASSERT_EQ(plain.size(), count);
  // A word of one token and one of several that occur in the plain answer.
  const std::string two = tokenizer.decode(std::span(plain).subspan(4, 3), true);
  const std::string one = tokenizer.decode(std::span(plain).subspan(1, 1), true);
  std::vector<Ids> bad;
  for (std::string word : {one, two}) {
    word.erase(0, word.find_first_not_of(' '));
    REQUIRE_OK(Ids bare, tokenizer.encode(word, false));
    REQUIRE_OK(Ids spaced, tokenizer.encode(" " + word, false));
    bad.push_back(bare);
    if (spaced.size() == bare.size() && spaced[0] != bare[0]) bad.push_back(spaced);
  }
  const Ids allowed = {258, 259, 655, 417, 11, 269, 326, 13};
  std::map<std::string, Case> cases;
  cases["repetition"] = {{{"repetition_penalty", 1.3}}, penalties(1.3F, 0, 0)};
  cases["frequency"] = {{{"frequency_penalty", 0.7}}, penalties(1, 0.7F, 0)};
  cases["presence"] = {{{"presence_penalty", 1.5}}, penalties(1, 0, 1.5F)};
  cases["all"] = {
      {{"repetition_penalty", 0.9}, {"frequency_penalty", 0.4}, {"presence_penalty", 0.6}},
      penalties(0.9F, 0.4F, 0.6F)};
  cases["bad words"] = {{{"bad_words", {one, two}}}, mask_words(bad)};
  cases["bias"] = {{{"logit_bias", {{"655", -100}, {"442", 2.5}}}},
                   [](const Ids&, std::vector<float>& logits) {
                     at(logits, 655) += -100;
                     at(logits, 442) += 2.5F;
                   }};
  cases["allowed"] = {{{"allowed_token_ids", allowed}},
                      [&](const Ids&, std::vector<float>& logits) {
                        for (std::int32_t id = 0; id < std::ssize(logits); ++id) {
                          if (std::ranges::find(allowed, id) == allowed.end()) {
                            at(logits, id) = masked;
                          }
                        }
                      }};
  cases["min_tokens"] = {{{"min_tokens", 7}, {"logit_bias", {{"4095", 100}}}},
                         [](const Ids& output, std::vector<float>& logits) {
                           at(logits, 4095) += 100;
                           if (output.size() < 7) at(logits, 4093) = at(logits, 4095) = masked;
                         }};

  std::string input;
  for (const auto& [id, entry] : cases) {
    json body = {{"temperature", 0}, {"max_tokens", count}, {"return_token_ids", true}};
    body.update(entry.body);
    input += completion(id, prompt, body);
  }
  const Answers answers = answers_to(input);
  for (const auto& [id, entry] : cases) {
    REQUIRE_OK(const Ids expected, model->greedy(prompt, count, entry.edit, eos));
    EXPECT_NE(expected, plain) << id << " changes nothing";
    EXPECT_EQ(answers.at(id).choice().at("token_ids"), expected) << id;
  }
  EXPECT_EQ(answers.at("min_tokens").choice().at("token_ids").size(), 8U);
  expect_same_payloads(
      answers, answers_to(input, {"parallel.tensor_parallel_size=2", "engine.max_num_seqs=3"}),
      "two ranks, three at a time");
}

TEST(EditedLogits, leave_the_scores_raw) {
  const json scored = {{"temperature", 0}, {"max_tokens", 1}, {"logprobs", 5}};
  json biased = scored;
  biased["logit_bias"] = {{"100", 100}};
  biased["repetition_penalty"] = 1.5;
  const Answers answers =
      answers_to(completion("raw", prompt, scored) + completion("biased", prompt, biased));
  const json& raw = answers.at("raw").choice().at("logprobs").at("top_logprobs").at(0);
  const json& found = answers.at("biased").choice().at("logprobs").at("top_logprobs").at(0);
  for (const auto& [text, logprob] : raw.items()) EXPECT_EQ(found.at(text), logprob) << text;
  EXPECT_EQ(found.size(), raw.size() + 1) << "the chosen token is one more";
  EXPECT_LT(answers.at("biased").choice().at("logprobs").at("token_logprobs").at(0).get<double>(),
            -5.0);
}

TEST(EditedLogits, that_leave_no_token_fail_their_request_alone) {
  const json body = {{"temperature", 0}, {"max_tokens", 4}};
  json hopeless = body;
  hopeless["allowed_token_ids"] = {4095};
  hopeless["min_tokens"] = 2;
  const Answers answers = answers_to(
      completion("good", prompt, body) + completion("hopeless", prompt, hopeless), {}, 1);
  EXPECT_TRUE(answers.at("good").ok());
  ASSERT_FALSE(answers.at("hopeless").ok());
  EXPECT_EQ(answers.at("hopeless").record.at("error").at("code"), "not_finite");
}

}  // namespace
}  // namespace troupe::launcher_test
