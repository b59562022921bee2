#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/text/tokenizer.hpp"
#include "tests/process/launcher/support/launcher_job.hpp"
#include "tests/support/require.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

const json plain_body = {{"temperature", 0.7}, {"seed", 3},
                         {"max_tokens", 40},   {"n", 3},
                         {"ignore_eos", true}, {"return_token_ids", true}};

json with(const json& extra) {
  json body = plain_body;
  body.update(extra);
  return body;
}

/// The expected result of `whole`, an answer without stop strings, with this stop string.
struct Cut {
  std::string text;
  Ids ids;
};

Cut cut_at(const json& whole, const std::string& stop, bool include, std::size_t min_tokens,
           const Tokenizer& tokenizer) {
  const Ids ids = whole.at("token_ids").get<Ids>();
  const std::string text = whole.at("text");
  const std::size_t before = tokenizer.decode(std::span(ids).first(min_tokens), true).size();
  for (std::size_t count = min_tokens + 1; count <= ids.size(); ++count) {
    const std::string known = tokenizer.decode(std::span(ids).first(count), true);
    for (std::size_t at = known.find(stop); at != known.npos; at = known.find(stop, at + 1)) {
      if (at + stop.size() <= before) continue;
      return {text.substr(0, include ? at + stop.size() : at),
              Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count))};
    }
  }
  return {text, ids};
}

TEST(StopStrings, end_each_choice_at_the_token_that_completes_one_also_across_token_borders) {
  REQUIRE_OK(const auto tokenizer, Tokenizer::load(demo_model()));
  const std::string prompt = "Once upon a time";
  const Answers plain = answers_to(completion("plain", prompt, plain_body));
  const json& whole = plain.at("plain").body().at("choices");
  ASSERT_EQ(whole.size(), 3U);
  const Ids ids = whole[0].at("token_ids").get<Ids>();
  ASSERT_EQ(ids.size(), 40U);

  struct Request {
    std::string stop;
    bool include = false;
    std::size_t min_tokens = 0;
  };
  std::map<std::string, Request> requests;
  std::string input;
  for (std::size_t first = 2; first < 36; first += 5) {
    // From the middle of a token to the middle of a later one.
    const std::size_t begin = tokenizer.decode(std::span(ids).first(first), true).size() + 1;
    const std::size_t end = tokenizer.decode(std::span(ids).first(first + 2), true).size() + 1;
    const std::string text = whole[0].at("text");
    const Request kinds[] = {{text.substr(begin, end - begin), false, 0},
                             {text.substr(begin, end - begin), true, 0},
                             {text.substr(begin, 1), false, first}};
    for (const Request& request : kinds) {
      const std::string id = fmt::format("stop-{}", requests.size());
      requests[id] = request;
      input += completion(id, prompt,
                          with({{"stop", json::array({"nowhere to be found", request.stop})},
                                {"include_stop_str_in_output", request.include},
                                {"min_tokens", request.min_tokens}}));
    }
  }
  const Answers one = answers_to(input);
  for (const auto& [id, request] : requests) {
    SCOPED_TRACE(fmt::format("{}: \"{}\", include {}, min_tokens {}", id, request.stop,
                             request.include, request.min_tokens));
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const Cut expected =
          cut_at(whole[i], request.stop, request.include, request.min_tokens, tokenizer);
      const json& choice = one.at(id).body().at("choices").at(i);
      EXPECT_EQ(choice.at("text"), expected.text) << "choice " << i;
      EXPECT_EQ(choice.at("token_ids"), expected.ids) << "choice " << i;
      const bool stopped = expected.text != whole[i].at("text").get<std::string>() ||
                           expected.ids.size() < ids.size();
      EXPECT_EQ(choice.at("finish_reason"), stopped ? "stop" : "length") << "choice " << i;
      EXPECT_EQ(choice.at("stop_reason"), stopped ? json(request.stop) : json()) << "choice " << i;
      tokens += expected.ids.size();
    }
    EXPECT_EQ(one.at(id).body().at("usage").at("completion_tokens"), tokens);
  }
  expect_same_payloads(
      one,
      answers_to(input, {"parallel.pipeline_parallel_size=2", "parallel.tensor_parallel_size=2"}),
      "four ranks");
}

TEST(StopStrings, are_no_reason_where_a_stop_token_or_the_models_end_comes_first) {
  const json greedy = {{"temperature", 0}, {"max_tokens", 8}, {"return_token_ids", true}};
  const Answers plain = answers_to(completion("plain", "Once upon a time", greedy));
  const Ids ids = plain.at("plain").choice().at("token_ids").get<Ids>();
  json body = greedy;
  body["stop_token_ids"] = {ids[2]};
  body["stop"] = "nowhere to be found";
  json ends = greedy;
  ends["logit_bias"] = {{"4095", 100}};
  json other_end = greedy;
  other_end["logit_bias"] = {{"4093", 100}};
  const Answers answers = answers_to(completion("token", "Once upon a time", body) +
                                     completion("end", "Once upon a time", ends) +
                                     completion("other end", "Once upon a time", other_end));
  const json& token = answers.at("token").choice();
  EXPECT_EQ(token.at("finish_reason"), "stop");
  EXPECT_EQ(token.at("stop_reason"), ids[2]);
  EXPECT_EQ(token.at("token_ids"), Ids(ids.begin(), ids.begin() + 3));
  const json& end = answers.at("end").choice();
  EXPECT_EQ(end.at("finish_reason"), "stop");
  EXPECT_TRUE(end.at("stop_reason").is_null()) << end;
  EXPECT_EQ(end.at("text"), "");
  EXPECT_EQ(answers.at("other end").choice().at("stop_reason"), 4093);
}

}  // namespace
}  // namespace troupe::launcher_test
