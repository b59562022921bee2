#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using Ids = std::vector<int>;

const Ids eos = {4095, 4093};
constexpr int context = 2048;

bool is_eos(int id) { return std::find(eos.begin(), eos.end(), id) != eos.end(); }

/// The first request of the golden batch whose answer ends with an EOS before its limit.
struct Ending {
  json request;
  json expected;
};

Ending request_that_stops() {
  const auto requests = json_lines(batch_folder() / "batch-64.jsonl");
  const auto references = json_lines(batch_folder() / "expected-batch-64-fable-moe.jsonl");
  for (std::size_t i = 0; i < references.size(); ++i) {
    const Ids ids = references[i].at("token_ids").get<Ids>();
    const bool chat = requests[i].at("url") == "/v1/chat/completions";
    const bool safe = references[i].at("safe_steps").get<std::size_t>() >= ids.size();
    if (chat && safe && references[i].at("finish_reason") == "stop" && ids.size() > 5) {
      return {requests[i], references[i]};
    }
  }
  ADD_FAILURE() << "no answer of the golden batch ends with an EOS";
  return {};
}

std::string with(json line, const std::string& id, const json& extra) {
  line["custom_id"] = id;
  line["body"].update(extra);
  return line.dump() + "\n";
}

TEST(Answers, tell_prompt_and_answer_ids_only_when_asked) {
  const Answers answers = answers_to(
      completion("ids", {326, 369, 524, 515}, {{"max_tokens", 4}, {"return_token_ids", true}}) +
      completion("plain", {326, 369, 524, 515}, {{"max_tokens", 4}}) +
      chat("chat", "Tell me of the king.", {{"max_tokens", 4}, {"return_token_ids", true}}));
  const json& choice = answers.at("ids").choice();
  EXPECT_EQ(choice.at("prompt_token_ids"), json({326, 369, 524, 515}));
  EXPECT_EQ(choice.at("token_ids").size(), 4U);
  EXPECT_FALSE(answers.at("plain").choice().contains("token_ids"));
  EXPECT_FALSE(answers.at("plain").choice().contains("prompt_token_ids"));
  const json& chat_body = answers.at("chat").body();
  EXPECT_EQ(chat_body.at("prompt_token_ids").size(), chat_body.at("usage").at("prompt_tokens"));
  EXPECT_EQ(chat_body.at("choices").at(0).at("token_ids").size(), 4U);
}

TEST(Answers, stop_at_an_eos_that_is_counted_and_not_shown_and_go_on_with_ignore_eos) {
  const Ending ending = request_that_stops();
  const Ids expected = ending.expected.at("token_ids").get<Ids>();
  const auto longer = expected.size() + 7;
  const json ids = {{"return_token_ids", true}, {"max_tokens", longer}};
  json ignore = ids;
  ignore["ignore_eos"] = true;
  const Answers answers =
      answers_to(with(ending.request, "stop", ids) + with(ending.request, "ignore", ignore));
  const json& stop = answers.at("stop").choice();
  EXPECT_EQ(stop.at("finish_reason"), "stop");
  EXPECT_EQ(stop.at("token_ids"), expected);
  EXPECT_TRUE(is_eos(expected.back()));
  EXPECT_EQ(stop.at("message").at("content"), ending.expected.at("text"));
  EXPECT_EQ(answers.at("stop").body().at("usage").at("completion_tokens"), expected.size());

  const json& ignored = answers.at("ignore").choice();
  EXPECT_EQ(ignored.at("finish_reason"), "length");
  Ids found = ignored.at("token_ids").get<Ids>();
  ASSERT_EQ(found.size(), longer);
  found.resize(expected.size());
  EXPECT_EQ(found, expected);
}

TEST(Answers, stop_at_a_stop_token_of_the_request_also_when_eos_is_ignored) {
  const Ending ending = request_that_stops();
  const Ids expected = ending.expected.at("token_ids").get<Ids>();
  const int stop = expected[3];
  const auto first = std::find(expected.begin(), expected.end(), stop) - expected.begin() + 1;
  const json body = {{"return_token_ids", true}, {"stop_token_ids", {stop}}};
  json ignore = body;
  ignore["ignore_eos"] = true;
  const Answers answers =
      answers_to(with(ending.request, "stop", body) + with(ending.request, "ignore", ignore));
  for (const char* id : {"stop", "ignore"}) {
    const json& choice = answers.at(id).choice();
    EXPECT_EQ(choice.at("finish_reason"), "stop") << id;
    EXPECT_EQ(choice.at("token_ids"), Ids(expected.begin(), expected.begin() + first)) << id;
  }
}

TEST(Answers, to_chats_without_max_tokens_run_to_an_eos_or_the_end_of_the_context) {
  const Ending ending = request_that_stops();
  json request = ending.request;
  request["body"].erase("max_tokens");
  const Answers answers =
      answers_to(with(request, "open", {{"return_token_ids", true}}) +
                 with(request, "ignore", {{"ignore_eos", true}, {"return_token_ids", true}}));
  const Answer& open = answers.at("open");
  EXPECT_EQ(open.choice().at("finish_reason"), "stop");
  EXPECT_EQ(open.choice().at("token_ids"), ending.expected.at("token_ids"));
  const Answer& ignored = answers.at("ignore");
  EXPECT_EQ(ignored.choice().at("finish_reason"), "length");
  EXPECT_EQ(ignored.body().at("usage").at("total_tokens"), context);
}

TEST(Answers, to_completions_without_max_tokens_have_sixteen_tokens) {
  const Answers answers = answers_to(
      completion("open", "Once upon a time", {{"temperature", 0}, {"ignore_eos", true}}));
  EXPECT_EQ(answers.at("open").body().at("usage").at("completion_tokens"), 16);
}

TEST(Answers, fill_the_context_to_its_last_token_and_refuse_one_more) {
  const Ids half(1000, 369);
  const Answers answers =
      answers_to(completion("fits", half, {{"max_tokens", 24}, {"ignore_eos", true}}) +
                     completion("over", half, {{"max_tokens", 25}, {"ignore_eos", true}}) +
                     chat("small", "Hello", {{"max_tokens", 2}}),
                 {"engine.max_model_len=1024"}, 1);
  ASSERT_TRUE(answers.at("fits").ok()) << answers.at("fits").record;
  EXPECT_EQ(answers.at("fits").body().at("usage").at("total_tokens"), 1024);
  EXPECT_TRUE(answers.at("small").ok());
  ASSERT_FALSE(answers.at("over").ok());
  const json& error = answers.at("over").record.at("error");
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_NE(error.at("message").get<std::string>().find("1024"), std::string::npos) << error;
}

TEST(Answers, come_when_the_cache_holds_a_fraction_of_the_running_requests) {
  std::string input;
  for (int i = 0; i < 12; ++i) {
    input += completion(fmt::format("r{}", i), Ids(50, 300 + i),
                        {{"temperature", 0}, {"max_tokens", 60}, {"ignore_eos", true}});
  }
  const Answers plenty = answers_to(input);
  const Answers scarce =
      answers_to(input, {"engine.kv_cache_blocks=24", "engine.max_model_len=256"});
  expect_same_payloads(plenty, scarce, "24 blocks for 12 requests of 110 tokens");
}

}  // namespace
}  // namespace troupe::launcher_test
