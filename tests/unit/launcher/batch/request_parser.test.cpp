#include "launcher/batch/request_parser.hpp"

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

const ParseContext context{{"fable-moe", "tales"}, 7};

std::variant<BatchRequest, LineError> parse(std::string_view line) {
  return parse_line(line, 3, context);
}

std::string chat_line(std::string_view more) {
  return fmt::format(R"({{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":)"
                     R"({{"messages":[{{"role":"user","content":"hi"}}]{}}}}})",
                     more);
}

std::string completion_line(std::string_view more) {
  return fmt::format(R"({{"custom_id":"a","method":"POST","url":"/v1/completions","body":)"
                     R"({{"prompt":"Once"{}}}}})",
                     more);
}

std::string body_line(std::string_view url, std::string_view body) {
  return fmt::format(R"({{"custom_id":"a","method":"POST","url":"{}","body":{}}})", url, body);
}

BatchRequest good(const std::string& line) {
  auto result = parse(line);
  if (const auto* error = std::get_if<LineError>(&result)) {
    ADD_FAILURE() << "expected a request, came: " << error->message << "\n" << line;
    return {};
  }
  return std::get<BatchRequest>(result);
}

TEST(RequestParser, reads_a_chat) {
  const BatchRequest request = good(
      R"({"custom_id":"c-1","method":"POST","url":"/v1/chat/completions","body":{"model":"tales",)"
      R"("messages":[{"role":"system","content":"Be \"brief\"\n"},{"role":"user","content":)"
      R"([{"type":"text","text":"one"},{"type":"text","text":"zwö"}],"name":"Ann"}],)"
      R"("temperature":0.5,"top_p":0.9,"top_k":20,"min_p":0.05,"seed":42,"max_tokens":8,)"
      R"("stop_token_ids":[1,2],"ignore_eos":true,"logprobs":true,"top_logprobs":3,)"
      R"("return_token_ids":true,"user":"u","metadata":{"a":1},"store":true}})");
  EXPECT_EQ(request.header.line, 3U);
  EXPECT_EQ(request.header.custom_id, "c-1");
  EXPECT_EQ(request.header.endpoint, Endpoint::chat_completions);
  EXPECT_EQ(request.header.model, "tales");
  EXPECT_TRUE(request.header.logprobs);
  EXPECT_TRUE(request.header.return_token_ids);
  EXPECT_FALSE(request.header.echo);
  EXPECT_EQ(request.request.kind, PromptKind::messages);
  EXPECT_EQ(request.request.prompt, R"([{"role":"system","content":"Be \"brief\"\n"},)"
                                    R"({"role":"user","content":"one\nzwö","name":"Ann"}])");
  EXPECT_EQ(request.request.temperature, 0.5F);
  EXPECT_EQ(request.request.top_p, 0.9F);
  EXPECT_EQ(request.request.top_k, 20);
  EXPECT_EQ(request.request.min_p, 0.05F);
  EXPECT_EQ(request.request.seed, 42U);
  EXPECT_EQ(request.request.max_tokens, 8);
  EXPECT_EQ(request.request.stop_token_ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_TRUE(request.request.ignore_eos);
  EXPECT_EQ(request.request.logprobs, 3);
  EXPECT_EQ(request.request.prompt_logprobs, -1);
}

TEST(RequestParser, leaves_absent_and_null_fields_to_the_engine) {
  for (const std::string& line :
       {chat_line(""), chat_line(R"(,"model":null,"temperature":null,"top_p":null,"top_k":null,)"
                                 R"("min_p":null,"seed":null,"max_tokens":null,"n":null,)"
                                 R"("stop":null,"logprobs":null,"tools":null,"stream":null)")}) {
    const BatchRequest request = good(line);
    EXPECT_EQ(request.header.model, "fable-moe");
    EXPECT_FALSE(request.header.logprobs);
    EXPECT_FALSE(request.request.temperature.has_value());
    EXPECT_FALSE(request.request.top_k.has_value());
    EXPECT_FALSE(request.request.top_p.has_value());
    EXPECT_FALSE(request.request.min_p.has_value());
    EXPECT_FALSE(request.request.max_tokens.has_value());
    EXPECT_EQ(request.request.logprobs, -1);
    EXPECT_EQ(request.request.seed, derive_seed(7, "a"));
  }
  EXPECT_EQ(good(completion_line("")).request.max_tokens, 16);
}

TEST(RequestParser, reads_prompts_as_text_and_as_token_ids) {
  const std::string url = "/v1/completions";
  EXPECT_EQ(good(body_line(url, R"({"prompt":"Once \u0000 upon"})")).request.prompt,
            std::string("Once \0 upon", 11));
  EXPECT_EQ(good(body_line(url, R"({"prompt":["Once"]})")).request.prompt, "Once");
  for (const char* prompt : {"[1, 2, 4095]", "[[1, 2, 4095]]", "[1.0, 2, 4095]"}) {
    const BatchRequest request = good(body_line(url, fmt::format(R"({{"prompt":{}}})", prompt)));
    EXPECT_EQ(request.request.kind, PromptKind::token_ids);
    EXPECT_EQ(request.request.prompt_ids, (std::vector<std::int32_t>{1, 2, 4095})) << prompt;
  }
}

TEST(RequestParser, understands_echo_and_the_log_probabilities_of_completions) {
  const BatchRequest scored = good(completion_line(R"(,"echo":true,"logprobs":5,"max_tokens":0)"));
  EXPECT_TRUE(scored.header.echo);
  EXPECT_TRUE(scored.header.logprobs);
  EXPECT_EQ(scored.request.max_tokens, 0);
  EXPECT_EQ(scored.request.logprobs, 5);
  EXPECT_EQ(scored.request.prompt_logprobs, 5);
  const BatchRequest plain = good(completion_line(R"(,"logprobs":0)"));
  EXPECT_EQ(plain.request.logprobs, 0);
  EXPECT_EQ(plain.request.prompt_logprobs, -1);
  EXPECT_EQ(good(completion_line(R"(,"echo":true)")).request.prompt_logprobs, -1);
  EXPECT_EQ(good(chat_line(R"(,"logprobs":true)")).request.logprobs, 0);
  EXPECT_EQ(good(chat_line(R"(,"logprobs":false,"top_logprobs":0)")).request.logprobs, -1);
}

TEST(RequestParser, accepts_the_edges) {
  EXPECT_EQ(good(chat_line(R"(,"top_k":-1)")).request.top_k, 0);
  EXPECT_EQ(good(chat_line(R"(,"top_k":0)")).request.top_k, 0);
  EXPECT_EQ(good(chat_line(R"(,"temperature":0)")).request.temperature, 0.0F);
  EXPECT_EQ(good(chat_line(R"(,"top_p":1)")).request.top_p, 1.0F);
  EXPECT_EQ(good(chat_line(R"(,"max_tokens":8.0)")).request.max_tokens, 8);
  EXPECT_EQ(good(chat_line(R"(,"max_tokens":2147483647)")).request.max_tokens, 2147483647);
  EXPECT_EQ(good(chat_line(R"(,"max_tokens":5,"max_completion_tokens":6)")).request.max_tokens, 6);
  EXPECT_EQ(good(chat_line(R"(,"seed":-1)")).request.seed, ~std::uint64_t{0});
  EXPECT_EQ(good(chat_line(R"(,"seed":18446744073709551615)")).request.seed, ~std::uint64_t{0});
  EXPECT_TRUE(good(chat_line(R"(,"logprobs":true,"top_logprobs":20)")).header.logprobs);
  good(chat_line(R"(,"n":1,"stream":false,"stop":[],"presence_penalty":0.0,"logit_bias":{},)"
                 R"("tools":[],"tool_choice":"auto","response_format":{"type":"text"},)"
                 R"("parallel_tool_calls":true,"repetition_penalty":1.0,"echo":false)"));
  good(completion_line(R"(,"n":1,"best_of":1,"suffix":"","use_beam_search":false)"));
  good("  " + chat_line("") + "\r ");
  good(
      R"({"custom_id":"a","note":1,"method":"POST","url":"/v1/completions","body":{"prompt":"x"}})");
}

struct BadLine {
  std::string line;
  std::string_view code;
  std::string message;
  bool has_custom_id = true;
};

void expect_refused(const std::vector<BadLine>& table) {
  for (const auto& [line, code, message, has_custom_id] : table) {
    const auto result = parse(line);
    const auto* error = std::get_if<LineError>(&result);
    ASSERT_NE(error, nullptr) << "expected " << code << " for " << line.substr(0, 300);
    EXPECT_EQ(error->code, code) << line.substr(0, 300);
    EXPECT_EQ(error->message, message) << line.substr(0, 300);
    EXPECT_EQ(error->custom_id.has_value(), has_custom_id) << line.substr(0, 300);
    EXPECT_EQ(error->line, 3U);
  }
}

TEST(RequestParser, refuses_what_is_no_line_of_a_batch) {
  const std::string valid = chat_line("");
  expect_refused({
      {"", line_error::invalid_json,
       "not valid JSON at byte 1: syntax error while parsing value - unexpected end of input; "
       "expected '[', '{', or a literal",
       false},
      {valid.substr(0, 50), line_error::invalid_json,
       "not valid JSON at byte 51: syntax error while parsing value - invalid string: missing "
       "closing quote",
       false},
      {valid + "x", line_error::invalid_json,
       fmt::format("not valid JSON at byte {}: syntax error while parsing value - invalid literal",
                   valid.size() + 1),
       false},
      {"[1]", line_error::invalid_json, "expected a JSON object, found a list", false},
      {"null", line_error::invalid_json, "expected a JSON object, found null", false},
      {"\"x\"", line_error::invalid_json, "expected a JSON object, found \"x\"", false},
      {"{\"custom_id\":\"a\xff\"}", line_error::invalid_utf8, "not valid UTF-8 at byte 16", false},
      {std::string("{\"custom_id\":\"a\0\"}", 18), line_error::invalid_json, "a NUL at byte 16",
       false},
      {std::string(100000, '['), line_error::invalid_json, "nested deeper than 64 at byte 65",
       false},
      {R"({"custom_id":"a","x":1e999})", line_error::invalid_json,
       "not valid JSON: number overflow parsing '1e999'", false},
      {R"({"method":"POST"})", line_error::missing_custom_id, "custom_id: missing", false},
      {R"({"custom_id":null})", line_error::missing_custom_id, "custom_id: missing", false},
      {R"({"custom_id":""})", line_error::missing_custom_id, "custom_id: empty", false},
      {R"({"custom_id":5})", line_error::missing_custom_id, "custom_id: expected text, found 5",
       false},
      {R"({"custom_id":"a"})", line_error::invalid_method,
       "method: expected \"POST\", found nothing"},
      {R"({"custom_id":"a","method":"GET"})", line_error::invalid_method,
       "method: expected \"POST\", found \"GET\""},
      {R"({"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{}})",
       line_error::invalid_url,
       "url: expected /v1/chat/completions or /v1/completions, found \"/v1/embeddings\""},
      {R"({"custom_id":"a","method":"POST","body":{}})", line_error::invalid_url,
       "url: expected /v1/chat/completions or /v1/completions, found nothing"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/completions"})", line_error::missing_field,
       "body: missing"},
      {body_line("/v1/completions", "null"), line_error::missing_field, "body: missing"},
      {body_line("/v1/completions", "[]"), line_error::invalid_value,
       "body: expected an object, found an empty list"},
  });
}

TEST(RequestParser, refuses_prompts_that_cannot_be_read) {
  const std::string chat = "/v1/chat/completions";
  const std::string text = "/v1/completions";
  const auto messages = [&](std::string_view value) {
    return body_line(chat, fmt::format(R"({{"messages":{}}})", value));
  };
  const auto prompt = [&](std::string_view value) {
    return body_line(text, fmt::format(R"({{"prompt":{}}})", value));
  };
  const std::string several =
      "prompt: a list of prompts; a line takes one prompt, so give each its own line";
  expect_refused({
      {body_line(chat, "{}"), line_error::missing_field, "messages: missing"},
      {messages("null"), line_error::missing_field, "messages: missing"},
      {messages("[]"), line_error::invalid_value,
       "messages: the list is empty; a chat needs a message"},
      {messages("\"hello\""), line_error::invalid_value,
       "messages: expected a list of messages, found \"hello\""},
      {messages("[1]"), line_error::invalid_value, "messages[0]: expected an object, found 1"},
      {messages(R"([{"content":"x"}])"), line_error::invalid_value,
       "messages[0].role: expected text such as \"user\", found nothing"},
      {messages(R"([{"role":1,"content":"x"}])"), line_error::invalid_value,
       "messages[0].role: expected text such as \"user\", found 1"},
      {messages(R"([{"role":"user"}])"), line_error::invalid_value,
       "messages[0].content: expected text, found nothing"},
      {messages(R"([{"role":"user","content":"x"},{"role":"user","content":null}])"),
       line_error::invalid_value,
       "messages[1].content: expected text or a list of text parts, found null"},
      {messages(R"([{"role":"user","content":[]}])"), line_error::invalid_value,
       "messages[0].content: expected text or a list of text parts, found an empty list"},
      {messages(R"([{"role":"user","content":[{"type":"image_url"}]}])"), line_error::unsupported,
       "messages[0].content[0]: parts of type \"image_url\" are not in this version; it takes "
       "text"},
      {messages(R"([{"role":"user","content":["x"]}])"), line_error::invalid_value,
       "messages[0].content[0]: expected {\"type\": \"text\", \"text\": ...}"},
      {messages(R"([{"role":"user","content":[{"type":"text"}]}])"), line_error::invalid_value,
       "messages[0].content[0].text: expected text"},
      {messages(R"([{"role":"user","content":"x","nmae":"y"}])"), line_error::unknown_field,
       "messages[0]: unknown field \"nmae\"; did you mean name?"},
      {messages(R"([{"role":"assistant","content":"x","tool_calls":[1]}])"),
       line_error::unsupported, "messages[0].tool_calls is not in this version"},
      {body_line(text, "{}"), line_error::missing_field, "prompt: missing"},
      {prompt("\"\""), line_error::invalid_value, "prompt: the text is empty"},
      {prompt("[]"), line_error::invalid_value, "prompt: the list is empty"},
      {prompt("5"), line_error::invalid_value,
       "prompt: expected text or a list of token ids, found 5"},
      {prompt(R"(["a","b"])"), line_error::invalid_value, several},
      {prompt("[[1],[2]]"), line_error::invalid_value, several},
      {prompt("[[[1]]]"), line_error::invalid_value, several},
      {prompt("[[]]"), line_error::invalid_value, several},
      {prompt("[1,-2]"), line_error::invalid_value, "prompt[1]: expected a token id, found -2"},
      {prompt("[1,2147483648]"), line_error::invalid_value,
       "prompt[1]: expected a token id, found 2147483648"},
      {prompt("[1,2.5]"), line_error::invalid_value, "prompt[1]: expected a token id, found 2.5"},
      {prompt("[1,\"a\"]"), line_error::invalid_value,
       "prompt[1]: expected a token id, found \"a\""},
  });
}

TEST(RequestParser, refuses_values_out_of_type_or_range) {
  const auto range = [](std::string_view name, std::string_view rest) {
    return fmt::format("{}: expected an integer from 0 to 2147483647, found {}", name, rest);
  };
  expect_refused({
      {chat_line(R"(,"max_tokens":0)"), line_error::invalid_value,
       "max_tokens: 0 asks for nothing; only a completion with echo and logprobs may"},
      {completion_line(R"(,"max_tokens":0,"echo":true)"), line_error::invalid_value,
       "max_tokens: 0 asks for nothing; only a completion with echo and logprobs may"},
      {chat_line(R"(,"max_tokens":-5)"), line_error::invalid_value, range("max_tokens", "-5")},
      {chat_line(R"(,"max_tokens":3.7)"), line_error::invalid_value, range("max_tokens", "3.7")},
      {chat_line(R"(,"max_tokens":1000000000000)"), line_error::invalid_value,
       range("max_tokens", "1000000000000")},
      {chat_line(R"(,"max_tokens":1e30)"), line_error::invalid_value, range("max_tokens", "1e+30")},
      {chat_line(R"(,"max_tokens":"8")"), line_error::invalid_value, range("max_tokens", "\"8\"")},
      {chat_line(R"(,"max_tokens":true)"), line_error::invalid_value, range("max_tokens", "true")},
      {chat_line(R"(,"max_completion_tokens":[])"), line_error::invalid_value,
       range("max_completion_tokens", "an empty list")},
      {chat_line(R"(,"temperature":-0.1)"), line_error::invalid_value,
       "temperature: expected a number of 0 or more, found -0.1"},
      {chat_line(R"(,"temperature":"hot")"), line_error::invalid_value,
       "temperature: expected a number of 0 or more, found \"hot\""},
      {chat_line(R"(,"temperature":1e300)"), line_error::invalid_value,
       "temperature: expected a number of 0 or more, found 1e+300"},
      {chat_line(R"(,"top_p":0)"), line_error::invalid_value,
       "top_p: expected a number above 0 and up to 1, found 0"},
      {chat_line(R"(,"top_p":1.1)"), line_error::invalid_value,
       "top_p: expected a number above 0 and up to 1, found 1.1"},
      {chat_line(R"(,"min_p":2)"), line_error::invalid_value,
       "min_p: expected a number from 0 to 1, found 2"},
      {chat_line(R"(,"top_k":-2)"), line_error::invalid_value,
       "top_k: expected an integer from -1 to 2147483647, found -2"},
      {chat_line(R"(,"stop_token_ids":5)"), line_error::invalid_value,
       "stop_token_ids: expected a list of token ids, found 5"},
      {chat_line(R"(,"stop_token_ids":[-1])"), line_error::invalid_value,
       range("stop_token_ids[]", "-1")},
      {chat_line(R"(,"ignore_eos":1)"), line_error::invalid_value,
       "ignore_eos: expected true or false, found 1"},
      {chat_line(R"(,"logprobs":3)"), line_error::invalid_value,
       "logprobs: expected true or false, found 3"},
      {chat_line(R"(,"logprobs":true,"top_logprobs":21)"), line_error::invalid_value,
       "top_logprobs: expected an integer from 0 to 20, found 21"},
      {chat_line(R"(,"top_logprobs":2)"), line_error::invalid_value,
       "top_logprobs: needs logprobs: true"},
      {completion_line(R"(,"logprobs":true)"), line_error::invalid_value,
       "logprobs: expected an integer from 0 to 20, found true"},
      {completion_line(R"(,"logprobs":21)"), line_error::invalid_value,
       "logprobs: expected an integer from 0 to 20, found 21"},
      {chat_line(R"(,"model":"gpt-9")"), line_error::model_not_found,
       "model: \"gpt-9\" is not served here; this job serves fable-moe, tales"},
      {chat_line(R"(,"model":5)"), line_error::invalid_value, "model: expected text, found 5"},
  });
}

TEST(RequestParser, refuses_unknown_fields_and_those_of_a_later_version) {
  const std::vector<std::string> later = {R"("stream":true)",

                                          R"("tools":[{}])",
                                          R"("tool_choice":"required")",
                                          R"("response_format":{"type":"json_object"})",
                                          R"("stream_options":{})",
                                          R"("guided_json":{})",

                                          R"("chat_template":"x")",

                                          R"("echo":true)",
                                          R"("continue_final_message":true)"};
  for (const std::string& field : later) {
    const auto result = parse(chat_line("," + field));
    const auto* error = std::get_if<LineError>(&result);
    ASSERT_NE(error, nullptr) << field;
    EXPECT_EQ(error->code, line_error::unsupported) << field;
    EXPECT_TRUE(error->message.ends_with(" is not in this version")) << error->message;
  }
  expect_refused({
      {chat_line(R"(,"stream":true)"), line_error::unsupported,
       "stream: true is not in this version"},
      {chat_line(R"(,"temprature":0)"), line_error::unknown_field,
       "unknown field \"temprature\"; did you mean temperature?"},
      {chat_line(R"(,"zebra":0)"), line_error::unknown_field, "unknown field \"zebra\""},
      {chat_line(R"(,"prompt":"x")"), line_error::unknown_field,
       "\"prompt\" is a field of the other url, not of /v1/chat/completions"},
      {completion_line(R"(,"messages":[])"), line_error::unknown_field,
       "\"messages\" is a field of the other url, not of /v1/completions"},
      {completion_line(R"(,"max_completion_tokens":5)"), line_error::unknown_field,
       "\"max_completion_tokens\" is a field of the other url, not of /v1/completions"},
  });
}

TEST(RequestParser, reads_what_edits_the_choice_of_tokens) {
  const Request request =
      good(chat_line(R"(,"repetition_penalty":1.2,"presence_penalty":-2,"frequency_penalty":0.5,)"
                     R"("logit_bias":{"17":5,"3":-1000,"03":2.5},"allowed_token_ids":[4,5.0],)"
                     R"("bad_words":["no","never"],"min_tokens":3,"max_tokens":3)"))
          .request;
  EXPECT_EQ(request.repetition_penalty, 1.2F);
  EXPECT_EQ(request.presence_penalty, -2.0F);
  EXPECT_EQ(request.frequency_penalty, 0.5F);
  ASSERT_EQ(request.logit_bias.size(), 2U) << "a token is biased once";
  EXPECT_EQ(request.logit_bias[0].token, 3);
  EXPECT_EQ(request.logit_bias[1], (TokenBias{17, 5.0F}));
  EXPECT_EQ(good(chat_line(R"(,"logit_bias":{"3":-1000})")).request.logit_bias[0].bias, -100.0F);
  EXPECT_EQ(request.allowed_token_ids, (std::vector<std::int32_t>{4, 5}));
  EXPECT_EQ(request.bad_words, (std::vector<std::string>{"no", "never"}));
  EXPECT_EQ(request.min_tokens, 3);
  EXPECT_FALSE(good(chat_line("")).request.repetition_penalty.has_value());
}

TEST(RequestParser, reads_how_an_answer_ends_and_how_many_there_are) {
  Request request =
      good(chat_line(R"(,"stop":"The end","include_stop_str_in_output":true,)"
                     R"("skip_special_tokens":false,"n":4,"priority":-7,"deadline_ms":1500)"))
          .request;
  EXPECT_EQ(request.stop, (std::vector<std::string>{"The end"}));
  EXPECT_TRUE(request.include_stop_str_in_output);
  EXPECT_FALSE(request.skip_special_tokens);
  EXPECT_EQ(request.n, 4);
  EXPECT_EQ(request.best_of, 4);
  EXPECT_EQ(request.priority, -7);
  EXPECT_EQ(request.deadline_ms, 1500);
  request = good(completion_line(R"(,"stop":["a","b"],"n":2,"best_of":5)")).request;
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.best_of, 5);
  request = good(chat_line("")).request;
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.best_of, 1);
  EXPECT_TRUE(request.stop.empty());
  EXPECT_TRUE(good(chat_line(R"(,"stop":[])")).request.stop.empty());
}

TEST(RequestParser, reads_a_beam_search) {
  const Request request =
      good(completion_line(R"(,"use_beam_search":true,"n":2,"best_of":3,"length_penalty":0.5,)"
                           R"("temperature":0)"))
          .request;
  EXPECT_TRUE(request.use_beam_search);
  EXPECT_EQ(request.best_of, 3);
  EXPECT_EQ(request.length_penalty, 0.5F);
  EXPECT_FALSE(good(chat_line(R"(,"use_beam_search":false)")).request.use_beam_search);
}

TEST(RequestParser, reads_prompt_logprobs_which_go_before_those_of_an_echo) {
  const BatchRequest request = good(chat_line(R"(,"prompt_logprobs":2)"));
  EXPECT_TRUE(request.header.prompt_logprobs);
  EXPECT_EQ(request.request.prompt_logprobs, 2);
  EXPECT_EQ(request.request.logprobs, -1);
  const BatchRequest echo = good(completion_line(R"(,"echo":true,"logprobs":4)"));
  EXPECT_FALSE(echo.header.prompt_logprobs);
  EXPECT_EQ(echo.request.prompt_logprobs, 4);
  EXPECT_EQ(good(completion_line(R"(,"echo":true,"logprobs":4,"prompt_logprobs":1)"))
                .request.prompt_logprobs,
            1);
}

TEST(RequestParser, refuses_what_vllm_refuses_of_penalties_stops_and_choices) {
  const auto code = line_error::invalid_value;
  expect_refused({
      {chat_line(R"(,"presence_penalty":2.1)"), code,
       "presence_penalty must be in [-2, 2], got 2.1"},
      {chat_line(R"(,"frequency_penalty":"1")"), code,
       "frequency_penalty must be in [-2, 2], got \"1\""},
      {chat_line(R"(,"repetition_penalty":0)"), code,
       "repetition_penalty must be greater than zero, got 0"},
      {chat_line(R"(,"logit_bias":[1])"), code,
       "logit_bias must be an object of token ids and numbers, got a list"},
      {chat_line(R"(,"logit_bias":{"a":1})"), code,
       "logit_bias: every key must be a token id, got \"a\""},
      {chat_line(R"(,"logit_bias":{"-1":1})"), code,
       "logit_bias: every key must be a token id, got \"-1\""},
      {chat_line(R"(,"logit_bias":{"1":null})"), code,
       "logit_bias: the bias of token 1 must be a number, got null"},
      {chat_line(R"(,"allowed_token_ids":[])"), code, "allowed_token_ids must not be empty"},
      {chat_line(R"(,"bad_words":"x")"), code, "bad_words must be a list of strings, got \"x\""},
      {chat_line(R"(,"bad_words":[""])"), code, "bad_words must not contain an empty string"},
      {chat_line(R"(,"stop":5)"), code, "stop must be a string or a list of strings, got 5"},
      {chat_line(R"(,"stop":"")"), code, "stop must not contain an empty string"},
      {chat_line(R"(,"stop":["a",5])"), code, "stop must be a list of strings, got 5 in it"},
      {chat_line(R"(,"stop":[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7])"), code,
       "stop must have at most 16 strings, got 17"},
      {chat_line(R"(,"min_tokens":-1)"), code,
       "min_tokens must be an integer from 0 to 2147483647, got -1"},
      {chat_line(R"(,"min_tokens":9,"max_tokens":8)"), code,
       "min_tokens must be less than or equal to max_tokens=8, got 9"},
      {completion_line(R"(,"min_tokens":17)"), code,
       "min_tokens must be less than or equal to max_tokens=16, got 17"},
      {chat_line(R"(,"n":0)"), code, "n must be an integer from 1 to 128, got 0"},
      {chat_line(R"(,"n":129)"), code, "n must be an integer from 1 to 128, got 129"},
      {chat_line(R"(,"n":3,"best_of":2)"), code,
       "best_of must be greater than or equal to n, got n=3 and best_of=2"},
      {chat_line(R"(,"use_beam_search":true,"n":33)"), code,
       "use_beam_search: the width (best_of, else n) must be at most 32, got 33"},
      {chat_line(R"(,"use_beam_search":true,"stop":"x")"), code,
       "stop must not be given with use_beam_search"},
      {chat_line(R"(,"length_penalty":"long")"), code,
       "length_penalty must be in [-10, 10], got \"long\""},
      {chat_line(R"(,"prompt_logprobs":-1)"), code,
       "prompt_logprobs: expected an integer from 0 to 20, found -1"},
      {chat_line(R"(,"deadline_ms":0)"), code,
       "deadline_ms must be an integer from 1 to 2147483647, got 0"},
      {chat_line(R"(,"priority":1e10)"), code,
       "priority must be an integer from -2147483648 to 2147483647, got 10000000000.0"},
  });
}

TEST(RequestParser, keeps_messages_short_whatever_the_line_holds) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "ö";
  for (const std::string& line : {chat_line(fmt::format(R"(,"model":"{}")", text)),
                                  chat_line(fmt::format(R"(,"{}":1)", text)),
                                  chat_line(fmt::format(R"(,"temperature":"{})", text))}) {
    const auto result = parse(line);
    const auto* error = std::get_if<LineError>(&result);
    ASSERT_NE(error, nullptr);
    EXPECT_LT(error->message.size(), 400U) << error->message;
  }
}

TEST(RequestParser, refuses_a_line_over_the_limit_and_takes_one_below) {
  const std::string text(5 << 20, 'w');
  EXPECT_EQ(good(body_line("/v1/completions", "{\"prompt\":\"" + text + "\"}")).request.prompt,
            text);
  const std::string huge(max_line_bytes, 'w');
  expect_refused({{completion_line(",\"user\":\"" + huge + "\""), line_error::line_too_long,
                   "the line is longer than 16 MiB", false}});
}

TEST(RequestParser, derives_seeds_that_differ_by_name_and_job) {
  EXPECT_EQ(derive_seed(1, "a"), derive_seed(1, "a"));
  EXPECT_NE(derive_seed(1, "a"), derive_seed(2, "a"));
  EXPECT_NE(derive_seed(1, "a"), derive_seed(1, "b"));
  EXPECT_EQ(derive_seed(7, "request-1"),
            0xa34ac4068f9d9478ULL);  // answers depend on it: it must not change
}

TEST(RequestParser, survives_mutated_lines) {
  const std::vector<std::string> lines = {
      chat_line(R"(,"temperature":0.5,"seed":42,"stop_token_ids":[1,2],"logprobs":true)"),
      chat_line(R"(,"logit_bias":{"5":1.5},"stop":["a"],"n":2,"bad_words":["b"],"min_tokens":1)"),
      completion_line(R"(,"echo":true,"logprobs":5,"max_tokens":0,"n":1,"stop":null)"),
      body_line("/v1/completions", R"({"prompt":[1,2,3],"model":"tales","\u00e9":1})")};
  using namespace std::string_literals;
  const std::string alphabet = "{}[]\",:\\u0d8e-.1truefalsn \0\xff\xc3\xe2"s;
  for (unsigned seed = 1; seed <= 30000; ++seed) {
    std::mt19937 random(seed);
    std::string line = lines[random() % lines.size()];
    for (unsigned i = 0, changes = 1 + random() % 8; i < changes && !line.empty(); ++i) {
      const std::size_t place = random() % line.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0:
          line[place] = c;
          break;
        case 1:
          line.insert(place, 1 + random() % 3, c);
          break;
        case 2:
          line.erase(place, 1 + random() % 10);
          break;
        default:
          line.insert(place, line.substr(random() % line.size(), random() % 30));
      }
    }
    const auto result = parse(line);
    if (const auto* error = std::get_if<LineError>(&result)) {
      EXPECT_FALSE(error->code.empty()) << "seed " << seed;
      EXPECT_FALSE(error->message.empty()) << "seed " << seed;
      EXPECT_LT(error->message.size(), 400U) << "seed " << seed << ": " << error->message;
    } else {
      const auto& request = std::get<BatchRequest>(result);
      EXPECT_FALSE(request.header.custom_id.empty()) << "seed " << seed;
      EXPECT_FALSE(request.request.prompt.empty() && request.request.prompt_ids.empty())
          << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace troupe
