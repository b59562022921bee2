#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/process/launcher/support/reference_model.hpp"
#include "tests/support/require.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;

const Ids eos = {4093, 4095};

struct Beam {
  Ids output;
  double logprob = 0;
  bool ended = false;
};

/// vLLM's definition, written down plainly on the model's log-probabilities.
Result<std::vector<Beam>> search(ReferenceModel& model, const Ids& prompt, std::size_t width,
                                 std::size_t max_tokens, double length_penalty) {
  const auto score = [&](const Beam& beam) {
    const std::size_t length = prompt.size() + beam.output.size() - (beam.ended ? 1 : 0);
    return beam.logprob / std::pow(static_cast<double>(length), length_penalty);
  };
  const auto better = [&](const Beam& a, const Beam& b) { return score(a) > score(b); };
  std::vector<Beam> beams(1);
  std::vector<Beam> complete;
  for (std::size_t step = 0; step < max_tokens; ++step) {
    std::vector<Beam> next;
    for (const Beam& beam : beams) {
      Ids known = prompt;
      known.insert(known.end(), beam.output.begin(), beam.output.end());
      TROUPE_TRY(const std::vector<float> logits, model.next_logits(known));
      const std::vector<double> logprobs = golden::log_softmax(logits);
      Ids order(logprobs.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, std::ranges::greater(), [&](std::int32_t id) {
        return logprobs[static_cast<std::size_t>(id)];
      });
      for (std::size_t k = 0; k < 2 * width; ++k) {
        Beam longer = beam;
        longer.output.push_back(order[k]);
        longer.logprob += logprobs[static_cast<std::size_t>(order[k])];
        longer.ended = std::ranges::find(eos, order[k]) != eos.end();
        (longer.ended ? complete : next).push_back(longer);
      }
    }
    std::ranges::stable_sort(next, better);
    next.resize(width);
    beams = next;
  }
  complete.insert(complete.end(), beams.begin(), beams.end());
  std::ranges::stable_sort(complete, better);
  complete.resize(width);
  return complete;
}

TEST(BeamSearch, gives_the_beams_of_the_definition_on_the_models_log_probabilities) {
  struct Request {
    Ids prompt;
    std::size_t width = 2;
    std::size_t max_tokens = 1;
    double length_penalty = 1;
  };
  const std::vector<Request> requests = {{{3066, 659, 258, 530}, 2, 8, 1.0},
                                         {{3066, 659, 258, 530}, 4, 6, 0.0},
                                         {{326, 369, 524, 515}, 2, 10, 2.0},
                                         {{259, 655, 326}, 3, 1, 1.0},
                                         // Close to an end, so that beams complete early.
                                         {{259, 655, 326, 1203, 13}, 3, 8, 3.0}};
  REQUIRE_OK(const auto model, ReferenceModel::load());
  std::string input;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    input += completion(fmt::format("{}", i), request.prompt,
                        {{"use_beam_search", true},
                         {"n", request.width},
                         {"max_tokens", request.max_tokens},
                         {"length_penalty", request.length_penalty},
                         {"logprobs", 1},
                         {"return_token_ids", true}});
  }
  const Answers answers = answers_to(input);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(fmt::format("request {}", i));
    const auto& [prompt, width, max_tokens, length_penalty] = requests[i];
    REQUIRE_OK(const auto expected, search(*model, prompt, width, max_tokens, length_penalty));
    const json& choices = answers.at(fmt::format("{}", i)).body().at("choices");
    ASSERT_EQ(choices.size(), width);
    for (std::size_t k = 0; k < width; ++k) {
      SCOPED_TRACE(fmt::format("beam {}", k));
      EXPECT_EQ(choices[k].at("token_ids"), expected[k].output);
      EXPECT_EQ(choices[k].at("finish_reason"), expected[k].ended ? "stop" : "length");
      double sum = 0;
      for (const json& score : choices[k].at("logprobs").at("token_logprobs")) {
        sum += score.get<double>();
      }
      EXPECT_NEAR(sum, expected[k].logprob, 1e-3);
    }
  }
}

TEST(BeamSearch, ends_beams_at_an_end_of_text_unless_that_is_ignored) {
  // A batch-64 answer up to before its EOS is a prompt whose likeliest next token is an EOS.
  const auto requests = json_lines(batch_folder() / "batch-64.jsonl");
  const auto references = json_lines(batch_folder() / "expected-batch-64-fable-moe.jsonl");
  std::size_t stops = 0;
  while (references.at(stops).at("finish_reason") != "stop") ++stops;
  json request = requests[stops];
  request["body"]["return_token_ids"] = true;
  const Answers whole = answers_to(request.dump() + "\n");
  const json& body = whole.begin()->second.body();
  const json& ids = body.contains("prompt_token_ids") ? body : body.at("choices").at(0);
  Ids prompt = ids.at("prompt_token_ids").get<Ids>();
  const Ids answer = body.at("choices").at(0).at("token_ids").get<Ids>();
  prompt.insert(prompt.end(), answer.begin(), answer.end() - 1);

  const json beams = {{"use_beam_search", true},
                      {"n", 2},
                      {"max_tokens", 4},
                      {"length_penalty", 0.0},
                      {"return_token_ids", true}};
  json ignore = beams;
  ignore["ignore_eos"] = true;
  const Answers answers =
      answers_to(completion("ends", prompt, beams) + completion("goes on", prompt, ignore));
  const json& best = answers.at("ends").choice();
  EXPECT_EQ(best.at("finish_reason"), "stop");
  EXPECT_EQ(best.at("token_ids"), Ids{answer.back()});
  EXPECT_EQ(best.at("stop_reason"), answer.back());
  EXPECT_EQ(best.at("text"), "");
  for (const json& choice : answers.at("goes on").body().at("choices")) {
    EXPECT_EQ(choice.at("finish_reason"), "length");
    EXPECT_EQ(choice.at("token_ids").size(), 4U);
  }
}

}  // namespace
}  // namespace troupe::launcher_test
