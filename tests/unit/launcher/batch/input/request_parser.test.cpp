#include "launcher/batch/input/request_parser.hpp"

#include <random>

#include "tests/unit/launcher/batch/input/parsed_lines.hpp"

namespace troupe {
namespace {

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
       line_error::invalid_value, "messages[0].tool_calls[0]: expected an object, found 1"},
      {messages(R"([{"role":"assistant","tool_calls":[{"id":"1"}]}])"), line_error::invalid_value,
       "messages[0].tool_calls[0].function: expected an object with name and arguments"},
      {messages(
           R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])"),
       line_error::invalid_value,
       "messages[0].tool_calls[0].function.arguments: expected JSON, found \"{\""},
      {messages(R"([{"role":"tool","content":"x","tool_call_id":7}])"), line_error::invalid_value,
       "messages[0].tool_call_id: expected text, found 7"},
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

TEST(RequestParser, takes_served_names_with_an_owner_and_any_name_if_so_told) {
  const auto code = [](const std::vector<std::string>& served, const std::string& model) {
    const auto result =
        parse_line(completion_line(fmt::format(R"(,"model":"{}")", model)), 1, {served, 0});
    const auto* error = std::get_if<LineError>(&result);
    return error != nullptr ? error->code : std::get<BatchRequest>(result).header.model;
  };
  const std::vector<std::string> named = {"Llama-3-8B", "meta/recorded"};
  EXPECT_EQ(code(named, "Llama-3-8B"), "Llama-3-8B");
  EXPECT_EQ(code(named, "meta-llama/Llama-3-8B"), "meta-llama/Llama-3-8B")
      << "as the request has it";
  EXPECT_EQ(code(named, "hf/models/Llama-3-8B"), "hf/models/Llama-3-8B");
  EXPECT_EQ(code(named, "meta/recorded"), "meta/recorded");
  for (const char* other : {"recorded", "Llama-3-8B/", "Llama-3-8B/x", "xLlama-3-8B", "*", ""}) {
    EXPECT_EQ(code(named, other), line_error::model_not_found) << other;
  }
  EXPECT_EQ(code({"tales", "*"}, "gpt-4o"), "gpt-4o");
  const auto absent = parse_line(completion_line(""), 1, {{"tales", "*"}, 0});
  EXPECT_EQ(std::get<BatchRequest>(absent).header.model, "tales");
}

TEST(RequestParser, says_which_field_an_error_is_about) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {R"({"method":"POST"})", "custom_id"},
      {R"({"custom_id":"a","method":"GET"})", "method"},
      {R"({"custom_id":"a","method":"POST","url":"/v2"})", "url"},
      {R"({"custom_id":"a","method":"POST","url":"/v1/completions"})", "body"},
      {completion_line(R"(,"model":"x")"), "model"},
      {completion_line(R"(,"top_p":7)"), "top_p"},
      {completion_line(R"(,"top_q":7)"), "top_q"},
      {completion_line(R"(,"stream":true)"), "stream"},
      {completion_line(R"(,"n":3,"best_of":2)"), "best_of"},
      {completion_line(R"(,"use_beam_search":true,"n":100)"), "use_beam_search"},
      {chat_line(R"(,"top_logprobs":2)"), "top_logprobs"},
      {chat_line(R"(,"messages":[7])"), "messages"},
      {body_line("/v1/completions", "{}"), "prompt"},
      {"no JSON", ""},
  };
  for (const auto& [line, param] : table) {
    const auto result = parse(line);
    const auto* error = std::get_if<LineError>(&result);
    ASSERT_NE(error, nullptr) << line;
    EXPECT_EQ(error->param, param) << line;
  }
}

TEST(RequestParser, derives_seeds_that_differ_by_name_and_job) {
  EXPECT_EQ(derive_seed(1, "a"), derive_seed(1, "a"));
  EXPECT_NE(derive_seed(1, "a"), derive_seed(2, "a"));
  EXPECT_NE(derive_seed(1, "a"), derive_seed(1, "b"));
  EXPECT_EQ(derive_seed(7, "request-1"),
            0x2bfdd6a899c16090ULL);  // answers depend on it: it must not change
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
