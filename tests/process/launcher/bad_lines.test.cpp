#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// A line that must get an error, and what the error says.
struct BadLine {
  std::string text;  ///< without its newline; "{id}" stands for a custom_id of its own
  std::string code;
  std::vector<std::string> words;  ///< in the message: the field, what was found, what is allowed
  bool has_id = false;             ///< the custom_id can be read and is returned
};

/// A line of the job with `fields` as its body.
std::string completion_body(const std::string& fields) {
  return R"({"custom_id":"{id}","method":"POST","url":"/v1/completions","body":{)" + fields + "}}";
}

std::string chat_body(const std::string& fields) {
  return R"({"custom_id":"{id}","method":"POST","url":"/v1/chat/completions","body":{)" + fields +
         "}}";
}

/// A completion whose prompt is valid and with one invalid field.
BadLine bad_field(const std::string& field, const std::vector<std::string>& words,
                  const std::string& code = "invalid_value") {
  return {completion_body(R"("prompt":"Once",)" + field), code, words, true};
}

std::vector<BadLine> lines_that_are_no_json() {
  const std::string good = completion_body(R"("prompt":"Once","max_tokens":1)");
  const std::string json_code = "invalid_json";
  const std::string utf8 = "invalid_utf8";
  using namespace std::string_literals;
  return {
      {"x", json_code, {"not valid JSON at byte 1"}},
      {"{", json_code, {"not valid JSON at byte 2", "end of input"}},
      {"{'custom_id': 'single-quotes'}", json_code, {"not valid JSON at byte 2"}},
      {"{custom_id: \"no quotes\"}", json_code, {"not valid JSON at byte 2"}},
      {"// a comment", json_code, {"not valid JSON at byte 1"}},
      {good.substr(0, good.size() - 1) + ",}", json_code, {"not valid JSON at byte"}},
      {good + good, json_code, {"not valid JSON at byte"}},
      {good + "]", json_code, {"not valid JSON at byte"}},
      {completion_body(R"("prompt":"Once","temperature":NaN)"), json_code, {"not valid JSON"}},
      {completion_body(R"("prompt":"Once","temperature":Infinity)"), json_code, {"not valid JSON"}},
      {completion_body(R"("prompt":"Once","max_tokens":08)"), json_code, {"not valid JSON"}},
      {completion_body(R"("prompt":"Once","max_tokens":+1)"), json_code, {"not valid JSON"}},
      {completion_body(R"("prompt":"Once","max_tokens":0x10)"), json_code, {"not valid JSON"}},
      {completion_body(R"("prompt":"Once","max_tokens":1e999)"), json_code, {"overflow", "1e999"}},
      {completion_body(R"("prompt":"Once","echo":True)"), json_code, {"not valid JSON"}},
      {completion_body("\"prompt\":\"a\ttab\""), json_code, {"not valid JSON", "\\t"}},
      {completion_body(R"("prompt":"\x41")"), json_code, {"not valid JSON", "after backslash"}},
      {completion_body(R"("prompt":"\u12")"), json_code, {"not valid JSON", "\\u"}},
      {completion_body(R"("prompt":"high \ud800 alone")"), json_code, {"surrogate"}},
      {completion_body(R"("prompt":"low \udc00 alone")"), json_code, {"surrogate"}},
      {completion_body(R"("prompt":"no end)"), json_code, {"not valid JSON", "closing quote"}},
      {"\0"s, json_code, {"a NUL at byte 1"}},
      {"{\0\"\0c\0u\0s\0}\0"s, json_code, {"a NUL at byte 2"}},  // UTF-16
      {std::string(100'000, '['), json_code, {"nested deeper than 64 at byte 65"}},
      {completion_body(R"("prompt":)" + std::string(80, '[') + std::string(80, ']')),
       json_code,
       {"nested deeper than 64"}},
      {completion_body("\"prompt\":\"caf\xe9\""), utf8, {"not valid UTF-8 at byte"}},
      {completion_body("\"prompt\":\"\xc0\xaf\""), utf8, {"not valid UTF-8 at byte"}},
      {completion_body("\"prompt\":\"\xed\xa0\x80\""), utf8, {"not valid UTF-8 at byte"}},
      {completion_body("\"prompt\":\"\xf4\x90\x80\x80\""), utf8, {"not valid UTF-8 at byte"}},
      {"\xff\xfe{", utf8, {"not valid UTF-8 at byte 1"}},
      {completion_body("\"prompt\":\"" + std::string(17 << 20, 'w') + "\""),
       "line_too_long",
       {"longer than 16 MiB"}},
  };
}

std::vector<BadLine> lines_that_are_no_request() {
  const std::string no_id = "missing_custom_id";
  return {
      {"[]", "invalid_json", {"expected a JSON object", "an empty list"}},
      {"42", "invalid_json", {"expected a JSON object", "42"}},
      {"\"text\"", "invalid_json", {"expected a JSON object", "\"text\""}},
      {"{}", no_id, {"custom_id: missing"}},
      {R"({"custom_id":17,"method":"POST"})", no_id, {"custom_id", "expected text", "17"}},
      {R"({"custom_id":["a"]})", no_id, {"custom_id", "expected text", "a list"}},
      {R"({"custom_id":""})", no_id, {"custom_id: empty"}},
      {R"({"Custom_ID":"a"})", no_id, {"custom_id: missing"}},
      {R"({"custom_id":"{id}","method":"post","url":"/v1/completions","body":{"prompt":"x"}})",
       "invalid_method",
       {"method", "\"POST\"", "\"post\""},
       true},
      {R"({"custom_id":"{id}","method":7,"url":"/v1/completions","body":{"prompt":"x"}})",
       "invalid_method",
       {"method", "\"POST\"", "7"},
       true},
      {R"({"custom_id":"{id}","method":"POST","url":"v1/completions","body":{"prompt":"x"}})",
       "invalid_url",
       {"url", "/v1/chat/completions", "\"v1/completions\""},
       true},
      {R"({"custom_id":"{id}","method":"POST","url":"/v1/embeddings","body":{"input":"x"}})",
       "invalid_url",
       {"url", "\"/v1/embeddings\""},
       true},
      {R"({"custom_id":"{id}","method":"POST","url":"/v1/completions","body":"{}"})",
       "invalid_value",
       {"body", "expected an object", "\"{}\""},
       true},
      {R"({"custom_id":"{id}","method":"POST","url":"/v1/completions"})",
       "missing_field",
       {"body: missing"},
       true},
      {completion_body(""), "missing_field", {"prompt: missing"}, true},
      {completion_body(R"("prompt":{"text":"x"})"), "invalid_value", {"prompt", "an object"}, true},
      {completion_body(R"("prompt":[true])"), "invalid_value", {"prompt[0]", "true"}, true},
      {chat_body(""), "missing_field", {"messages: missing"}, true},
      {chat_body(R"("messages":[])"), "invalid_value", {"messages", "empty"}, true},
      {chat_body(R"("messages":{"role":"user","content":"x"})"),
       "invalid_value",
       {"messages", "expected a list", "an object"},
       true},
      {chat_body(R"("messages":[{"role":"","content":"x"}])"),
       "invalid_value",
       {"messages[0].role", "\"\""},
       true},
      {chat_body(R"("messages":[{"role":"user","content":7}])"),
       "invalid_value",
       {"messages[0].content", "expected text", "7"},
       true},
      {chat_body(R"("messages":[{"role":"user","content":"x","name":7}])"),
       "invalid_value",
       {"messages[0].name", "expected text", "7"},
       true},
      {chat_body(R"("messages":[{"role":"user","content":"x"}],"top_logprobs":3)"),
       "invalid_value",
       {"top_logprobs", "needs logprobs: true"},
       true},
  };
}

std::vector<BadLine> requests_that_ask_for_what_is_not_there() {
  return {
      bad_field(R"("model":"fable-mow")", {"\"fable-mow\"", "serves fable-moe"}, "model_not_found"),
      bad_field(R"("model":["fable-moe"])", {"model", "expected text", "a list"}),
      bad_field(R"("max_tokens":"16")", {"max_tokens", "0 to 2147483647", "\"16\""}),
      bad_field(R"("max_tokens":99999999999999999999)", {"max_tokens", "0 to 2147483647"}),
      bad_field(R"("temperature":-1)", {"temperature", "0 or more", "-1"}),
      bad_field(R"("top_p":50)", {"top_p", "up to 1", "50"}),
      bad_field(R"("top_k":0.5)", {"top_k", "an integer", "0.5"}),
      bad_field(R"("seed":"lucky")", {"seed", "an integer", "\"lucky\""}),
      bad_field(R"("n":1000000)", {"n ", "1 to 128", "1000000"}),
      bad_field(R"("stop":{"text":"x"})", {"stop", "an object"}),
      bad_field(R"("stop_token_ids":"4095")", {"stop_token_ids", "a list", "\"4095\""}),
      bad_field(R"("logit_bias":{"4096":1})", {"logit_bias", "4096"}),
      bad_field(R"("allowed_token_ids":[1,999999])", {"allowed_token_ids", "4096"}),
      bad_field(R"("bad_words":[" "])", {"bad_words", "without a token"}),
      bad_field(R"("logprobs":100)", {"logprobs", "0 to 20", "100"}),
      bad_field(R"("messages":[])", {"\"messages\"", "other url"}, "unknown_field"),
      bad_field(R"("temperatur":1)", {"\"temperatur\"", "temperature"}, "unknown_field"),
      bad_field(R"("stream":true)", {"stream", "not in this version"}, "not_in_this_version"),
      bad_field(R"("max_tokens":2048)", {"2048", "context"}, "context_length_exceeded"),
      {completion_body(R"("prompt":[0,4096])"), "invalid_prompt", {"4096", "vocabulary"}, true},
      {completion_body(R"("prompt":")" + std::string(50'000, 'x') + "\""),
       "context_length_exceeded",
       {"prompt has", "2048"},
       true},
      {R"({"custom_id":"good-1","method":"POST","url":"/v1/completions","body":{"prompt":"x"}})",
       "duplicate_custom_id",
       {"custom_id", "earlier line"}},
  };
}

std::string with_id(std::string text, const std::string& id) {
  const std::string mark = "{id}";
  const auto place = text.find(mark);
  return place == text.npos ? text : text.replace(place, mark.size(), id);
}

TEST(BadLines, of_seventy_kinds_get_their_own_error_and_all_lines_between_them_are_answered) {
  std::vector<BadLine> bad = lines_that_are_no_json();
  for (const auto& more :
       {lines_that_are_no_request(), requests_that_ask_for_what_is_not_there()}) {
    bad.insert(bad.end(), more.begin(), more.end());
  }
  ASSERT_GE(bad.size(), 75U);
  const json one_token = {{"max_tokens", 1}};
  std::string input = completion("good-0", "Once", one_token);
  for (std::size_t i = 0; i < bad.size(); ++i) {
    input += with_id(bad[i].text, fmt::format("bad-{}", i)) + "\n";
    input += completion(fmt::format("good-{}", i + 1), "Once", one_token);
  }
  const LauncherJob job;
  job.write_input(input);
  const Ended ended = job.run();
  EXPECT_EQ(ended.code, 1) << ended.describe();

  std::size_t good = 0;
  std::map<std::size_t, json> errors;  // by line
  for (const json& record : json_lines(job.output())) {
    if (record.at("error").is_null()) {
      ++good;
      EXPECT_TRUE(record.at("custom_id").get<std::string>().starts_with("good-")) << record;
    } else {
      const json& answer = record.at("response").at("body").at("error");
      EXPECT_EQ(answer.at("message"), record.at("error").at("message"));
      EXPECT_EQ(answer.at("code"), record.at("error").at("code"));
      EXPECT_GE(record.at("response").at("status_code"), 400) << record;
      EXPECT_TRUE(errors.emplace(record.at("line"), record).second) << "twice: " << record;
    }
  }
  EXPECT_EQ(good, bad.size() + 1);
  EXPECT_EQ(errors.size(), bad.size());
  for (std::size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(bad[i].text.substr(0, 200));
    const auto found = errors.find(2 * i + 2);
    ASSERT_NE(found, errors.end()) << "no error for line " << 2 * i + 2;
    const json& error = found->second.at("error");
    EXPECT_EQ(error.at("code"), bad[i].code) << error;
    const std::string message = error.at("message");
    for (const std::string& word : bad[i].words) EXPECT_THAT(message, HasSubstr(word));
    EXPECT_LT(message.size(), 400U) << message;
    const json& id = found->second.at("custom_id");
    if (bad[i].has_id) {
      EXPECT_EQ(id, fmt::format("bad-{}", i));
    } else if (bad[i].code == "duplicate_custom_id") {
      EXPECT_EQ(id, "good-1");
    } else {
      EXPECT_TRUE(id.is_null()) << id;
    }
  }
}

}  // namespace
}  // namespace troupe::launcher_test
