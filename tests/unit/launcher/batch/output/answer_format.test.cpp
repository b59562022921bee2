#include "launcher/batch/output/answer_format.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "launcher/batch/json_text.hpp"
#include "launcher/batch/output/error_tally.hpp"
#include "models/text/unicode/utf8.hpp"

namespace troupe {
namespace {

using nlohmann::json;

const JobIdentity job{0x1234, 1700000000};

RequestHeader chat_header() {
  RequestHeader header;
  header.line = 7;
  header.custom_id = "c-1";
  header.model = "fable-moe";
  return header;
}

RequestHeader completion_header() {
  RequestHeader header = chat_header();
  header.endpoint = Endpoint::completions;
  return header;
}

/// "The fox" -> " ran." after a prompt of three tokens "The", " fo", "x", with one alternative
/// each.
Completion completion() {
  Choice choice;
  choice.finish_reason = FinishReason::length;
  choice.text = " ran.";
  choice.token_ids = {20, 21};
  choice.logprobs = {{-0.5F, {20}, {-0.5F}, 1}, {-1.25F, {22}, {-0.25F}, 2}};
  choice.logprob_bytes = {" ran", " ran", ".", "!"};
  choice.text_offsets = {0, 4};
  Completion answer;
  answer.choices = {choice};
  answer.prompt_text = "The fox";
  answer.prompt_ids = {10, 11, 12};
  return answer;
}

Completion echoed() {
  Completion answer = completion();
  answer.prompt_logprobs = {{-2.0F, {13}, {-1.0F}, 2}, {-3.0F, {12}, {-3.0F}, 1}};
  answer.prompt_logprob_bytes = {"The", " fo", " ca", "x", "x"};
  answer.prompt_text_offsets = {0, 3, 6};
  return answer;
}

TEST(AnswerFormat, writes_a_chat_exactly) {
  EXPECT_EQ(
      format_answer(chat_header(), completion(), job),
      R"({"id":"batch_req_0000000000001234-7","custom_id":"c-1","response":{"status_code":200,)"
      R"("request_id":"req_0000000000001234-7","body":{"id":"chatcmpl-0000000000001234-7",)"
      R"("object":"chat.completion","created":1700000000,"model":"fable-moe","choices":[)"
      R"({"index":0,"message":{"role":"assistant","content":" ran."},"logprobs":null,)"
      R"("finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":3,"completion_tokens":2,)"
      R"("total_tokens":5}}},"error":null})");
}

TEST(AnswerFormat, writes_a_completion_exactly) {
  Completion answer = completion();
  answer.choices[0].finish_reason = FinishReason::stop;
  EXPECT_EQ(
      format_answer(completion_header(), answer, job),
      R"({"id":"batch_req_0000000000001234-7","custom_id":"c-1","response":{"status_code":200,)"
      R"("request_id":"req_0000000000001234-7","body":{"id":"cmpl-0000000000001234-7",)"
      R"("object":"text_completion","created":1700000000,"model":"fable-moe","choices":[)"
      R"({"index":0,"text":" ran.","logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":)"
      R"({"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}},"error":null})");
}

TEST(AnswerFormat, adds_token_ids_where_vllm_puts_them) {
  RequestHeader header = chat_header();
  header.return_token_ids = true;
  const json chat = json::parse(format_answer(header, completion(), job))["response"]["body"];
  EXPECT_EQ(chat["choices"][0]["token_ids"], (std::vector<int>{20, 21}));
  EXPECT_EQ(chat["prompt_token_ids"], (std::vector<int>{10, 11, 12}));
  header = completion_header();
  header.return_token_ids = true;
  const json text = json::parse(format_answer(header, completion(), job))["response"]["body"];
  EXPECT_EQ(text["choices"][0]["token_ids"], (std::vector<int>{20, 21}));
  EXPECT_EQ(text["choices"][0]["prompt_token_ids"], (std::vector<int>{10, 11, 12}));
}

TEST(AnswerFormat, numbers_the_choices_and_counts_the_prompt_once_and_all_their_tokens) {
  Completion answer = completion();
  answer.choices.push_back(answer.choices[0]);
  answer.choices[1].text = " sat";
  answer.choices[1].token_ids = {23};
  answer.choices[1].finish_reason = FinishReason::stop;
  for (const auto& header : {chat_header(), completion_header()}) {
    const json body = json::parse(format_answer(header, answer, job))["response"]["body"];
    ASSERT_EQ(body["choices"].size(), 2U);
    EXPECT_EQ(body["choices"][0]["index"], 0);
    EXPECT_EQ(body["choices"][1]["index"], 1);
    EXPECT_EQ(body["choices"][1]["finish_reason"], "stop");
    EXPECT_EQ(body["usage"], json::parse(R"({"prompt_tokens":3,"completion_tokens":3,
                                             "total_tokens":6})"));
  }
}

TEST(AnswerFormat, gives_the_stop_string_or_the_stop_token_as_the_reason) {
  Completion answer = completion();
  answer.choices[0].stop_string = "\n\"";
  const auto reason = [&] {
    const json line = json::parse(format_answer(chat_header(), answer, job));
    return line["response"]["body"]["choices"][0]["stop_reason"];
  };
  EXPECT_EQ(reason(), "\n\"");
  answer.choices[0].stop_string.clear();
  EXPECT_TRUE(reason().is_null());
  answer.choices[0].stop_token = 0;
  EXPECT_EQ(reason(), 0);
}

TEST(AnswerFormat, writes_the_scores_of_a_prompt_as_vllm) {
  const json expected = json::parse(R"([null,
    {"11":{"logprob":-2.0,"rank":2,"decoded_token":" fo"},
     "13":{"logprob":-1.0,"rank":1,"decoded_token":" ca"}},
    {"12":{"logprob":-3.0,"rank":1,"decoded_token":"x"}}])");
  RequestHeader header = chat_header();
  header.prompt_logprobs = true;
  const json chat = json::parse(format_answer(header, echoed(), job))["response"]["body"];
  EXPECT_EQ(chat["prompt_logprobs"], expected);
  header = completion_header();
  header.prompt_logprobs = true;
  const json text = json::parse(format_answer(header, echoed(), job))["response"]["body"];
  EXPECT_EQ(text["choices"][0]["prompt_logprobs"], expected);
  EXPECT_EQ(text["choices"][0]["text"], " ran.");
}

TEST(AnswerFormat, gives_an_empty_answer_empty_content) {
  Completion answer = completion();
  answer.choices[0].text = "";
  EXPECT_EQ(json::parse(format_answer(chat_header(), answer,
                                      job))["response"]["body"]["choices"][0]["message"]["content"],
            "");
}

TEST(AnswerFormat, writes_the_log_probabilities_of_a_chat) {
  RequestHeader header = chat_header();
  header.logprobs = true;
  const json choice =
      json::parse(format_answer(header, completion(), job))["response"]["body"]["choices"][0];
  EXPECT_EQ(choice["logprobs"], json::parse(R"({"content":[
    {"token":" ran","logprob":-0.5,"bytes":[32,114,97,110],
     "top_logprobs":[{"token":" ran","logprob":-0.5,"bytes":[32,114,97,110]}]},
    {"token":".","logprob":-1.25,"bytes":[46],
     "top_logprobs":[{"token":"!","logprob":-0.25,"bytes":[33]}]}]})"));
}

TEST(AnswerFormat, writes_the_log_probabilities_of_a_completion) {
  RequestHeader header = completion_header();
  header.logprobs = true;
  const json choice =
      json::parse(format_answer(header, completion(), job))["response"]["body"]["choices"][0];
  EXPECT_EQ(choice["logprobs"], json::parse(R"({"tokens":[" ran","."],
    "token_logprobs":[-0.5,-1.25],"top_logprobs":[{" ran":-0.5},{".":-1.25,"!":-0.25}],
    "text_offset":[0,4]})"));
}

TEST(AnswerFormat, begins_an_echo_with_the_prompt_whose_first_token_has_no_log_probability) {
  RequestHeader header = completion_header();
  header.echo = true;
  header.logprobs = true;
  const json choice =
      json::parse(format_answer(header, echoed(), job))["response"]["body"]["choices"][0];
  EXPECT_EQ(choice["text"], "The fox ran.");
  EXPECT_EQ(choice["logprobs"], json::parse(R"({"tokens":["The"," fo","x"," ran","."],
    "token_logprobs":[null,-2.0,-3.0,-0.5,-1.25],
    "top_logprobs":[null,{" fo":-2.0," ca":-1.0},{"x":-3.0},{" ran":-0.5},{".":-1.25,"!":-0.25}],
    "text_offset":[0,3,6,7,11]})"));
}

TEST(AnswerFormat, scores_a_prompt_without_generating) {
  RequestHeader header = completion_header();
  header.echo = true;
  header.logprobs = true;
  Completion answer = echoed();
  answer.choices = {Choice{}};
  const json body = json::parse(format_answer(header, answer, job))["response"]["body"];
  EXPECT_EQ(body["choices"][0]["text"], "The fox");
  EXPECT_EQ(body["choices"][0]["logprobs"]["token_logprobs"], json::parse("[null,-2.0,-3.0]"));
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST(AnswerFormat, keeps_all_alternatives_of_which_some_have_the_same_bytes) {
  RequestHeader header = completion_header();
  header.logprobs = true;
  Completion answer = completion();
  answer.choices[0].token_ids = {20};
  answer.choices[0].logprobs = {{-3.0F, {1, 20, 2, 3}, {-0.5F, -3.0F, -4.0F, -5.0F}, 2}};
  answer.choices[0].logprob_bytes = {"a", "b", "a", "a", "b"};
  const std::string line = format_answer(header, answer, job);
  EXPECT_NE(
      line.find(R"("top_logprobs":[{"a":-3.0,"b":-0.5,"token_id:2":-4.0,"token_id:3":-5.0}])"),
      std::string::npos)
      << line;
}

/// "世" in three tokens, then " A"; each token's best alternative is another byte.
Completion split_character() {
  Completion answer = completion();
  Choice& choice = answer.choices[0];
  choice.text = "\u4e16 A";
  choice.token_ids = {1, 2, 3, 4};
  choice.logprobs.clear();
  for (std::int32_t id = 1; id <= 4; ++id)
    choice.logprobs.push_back({-0.5F, {id, 9}, {-0.5F, -2.0F}, 1});
  choice.logprob_bytes = {"\xE4", "\xE4", "\xE5", "\xB8", "\xB8", "\xB9",
                          "\x96", "\x96", "\x97", " A",   " A",   " B"};
  choice.text_offsets = {0, 0, 0, 1};
  return answer;
}

TEST(AnswerFormat, gives_the_bytes_of_tokens_that_are_parts_of_a_character) {
  RequestHeader header = chat_header();
  header.logprobs = true;
  const json content = json::parse(format_answer(
      header, split_character(), job))["response"]["body"]["choices"][0]["logprobs"]["content"];
  std::string joined;
  for (const json& token : content) {
    for (const int byte : token["bytes"]) joined += static_cast<char>(byte);
    EXPECT_EQ(token["top_logprobs"].size(), 2U);
  }
  EXPECT_EQ(joined, "\u4e16 A");
  EXPECT_EQ(content[0]["token"], "\uFFFD");
  EXPECT_EQ(content[0]["top_logprobs"][1]["bytes"], json::parse("[229]"));
}

TEST(AnswerFormat, spells_parts_of_characters_in_a_completion_as_openai) {
  RequestHeader header = completion_header();
  header.logprobs = true;
  const json choice = json::parse(
      format_answer(header, split_character(), job))["response"]["body"]["choices"][0]["logprobs"];
  EXPECT_EQ(choice["tokens"], json::parse(R"(["bytes:\\xe4","bytes:\\xb8","bytes:\\x96"," A"])"));
  EXPECT_EQ(choice["top_logprobs"][0], json::parse(R"({"bytes:\\xe4":-0.5,"bytes:\\xe5":-2.0})"));
  EXPECT_EQ(choice["text_offset"], json::parse("[0,0,0,1]"));
}

TEST(AnswerFormat, survives_texts_that_are_missing) {
  RequestHeader header = completion_header();
  header.echo = true;
  header.logprobs = true;
  Completion answer = echoed();
  header.prompt_logprobs = true;
  for (std::size_t texts = 5; texts-- > 0;) {
    answer.prompt_logprob_bytes.resize(texts);
    answer.choices[0].logprob_bytes.resize(std::min<std::size_t>(texts, 4));
    EXPECT_TRUE(json::accept(format_answer(header, answer, job))) << texts;
  }
  EXPECT_TRUE(json::accept(format_answer(header, Completion{}, job)));
}

TEST(AnswerFormat, gives_equal_completions_equal_choices_and_usage) {
  RequestHeader other = chat_header();
  other.line = 9;
  other.custom_id = "c-2";
  const auto tail = [](const std::string& line) { return line.substr(line.find("\"choices\"")); };
  EXPECT_EQ(tail(format_answer(chat_header(), completion(), job)),
            tail(format_answer(other, completion(), {0x99, 5})));
}

TEST(AnswerFormat, writes_error_lines_with_and_without_a_custom_id) {
  EXPECT_EQ(
      format_error({3, "invalid_json", "not \"valid\"", {}}, job),
      R"({"id":"batch_req_0000000000001234-3","custom_id":null,"line":3,)"
      R"("response":{"status_code":400,"request_id":"req_0000000000001234-3","body":{"error":)"
      R"({"message":"not \"valid\"","type":"invalid_request_error","param":null,)"
      R"("code":"invalid_json"}}},)"
      R"("error":{"code":"invalid_json","message":"not \"valid\""}})");
  EXPECT_EQ(json::parse(format_error({3, "x", "y", "a\nb"}, job))["custom_id"], "a\nb");
  Completion failed = completion();
  failed.error = "too long";
  failed.error_code = "context_length_exceeded";
  EXPECT_EQ(
      format_answer(chat_header(), failed, job),
      R"({"id":"batch_req_0000000000001234-7","custom_id":"c-1","line":7,)"
      R"("response":{"status_code":400,"request_id":"req_0000000000001234-7","body":{"error":)"
      R"({"message":"too long","type":"invalid_request_error","param":"messages",)"
      R"("code":"context_length_exceeded"}}},)"
      R"("error":{"code":"context_length_exceeded","message":"too long"}})");
}

TEST(AnswerFormat, gives_each_error_the_status_that_a_server_would) {
  const std::vector<std::pair<std::string, int>> table = {
      {"invalid_value", 400}, {"model_not_found", 404}, {"not_finite", 500}};
  for (const auto& [code, status] : table) {
    const json line = json::parse(format_error({1, code, "why", "a", "model"}, job));
    EXPECT_EQ(line["response"]["status_code"], status) << code;
    EXPECT_EQ(line["response"]["body"]["error"]["param"], "model");
    EXPECT_EQ(line["response"]["body"]["error"]["type"],
              status < 500 ? "invalid_request_error" : "server_error");
  }
}

TEST(ErrorTally, tells_the_counts_by_code_and_the_first_line) {
  ErrorTally errors;
  EXPECT_EQ(describe(errors), "");
  errors.add(9, "invalid_value", "top_p: expected ...");
  EXPECT_EQ(describe(errors), "1 error line: 1 invalid_value; line 9: top_p: expected ...");
  errors.add(4, "model_not_found", "model: \"x\" is not served here");
  errors.add(12, "model_not_found", std::string(1000, 'x'));
  EXPECT_EQ(describe(errors),
            "3 error lines: 2 model_not_found, 1 invalid_value; line 4: model: \"x\" is not served "
            "here");
  errors.add(2, "later", std::string(299, 'x') + "\u00e4" + "tail");
  EXPECT_EQ(errors.first->message, std::string(299, 'x') + "...") << "cut between characters";
}

TEST(AnswerFormat, has_an_error_in_place_of_an_answer_that_no_line_can_hold) {
  RequestHeader header = completion_header();
  header.return_token_ids = true;
  Completion answer = completion();
  answer.prompt_ids.assign(500, 11);  // repeated by each choice
  answer.choices.resize(3, answer.choices.front());
  const std::size_t whole = format_answer(header, answer, job).size();
  EXPECT_EQ(fit_answer(header, answer, job, whole).size(), whole);
  EXPECT_FALSE(answer.failed());
  for (const std::size_t limit : {whole - 1, whole / 2}) {
    Completion cut = answer;
    const auto line = json::parse(fit_answer(header, cut, job, limit));
    EXPECT_EQ(cut.error_code, "answer_too_large") << "it counts as an error line from here on";
    EXPECT_EQ(cut.id, answer.id);
    EXPECT_GE(line["response"]["status_code"], 400);
    EXPECT_EQ(line["response"]["body"]["error"]["code"], "answer_too_large");
    EXPECT_EQ(line["error"]["code"], "answer_too_large");
    EXPECT_EQ(line["custom_id"], "c-1");
  }
}

TEST(AnswerFormat, derives_the_job_id_from_name_and_input) {
  EXPECT_EQ(make_job_id("a", "b"), make_job_id("a", "b"));
  EXPECT_NE(make_job_id("a", "b"), make_job_id("b", "a"));
  EXPECT_NE(make_job_id("ab", ""), make_job_id("a", "b"));
}

TEST(JsonText, escapes_so_that_any_text_reads_back_on_one_line) {
  std::string every;
  for (int code = 0; code < 0x250; ++code) {
    if (code < 0x80) {
      every += static_cast<char>(code);
    } else {
      every += static_cast<char>(0xC0 | (code >> 6));
      every += static_cast<char>(0x80 | (code & 0x3F));
    }
  }
  every += "\xE2\x80\xA8\xE2\x80\xA9\xEF\xBF\xBF\xF0\x9F\xA6\x8A\xF4\x8F\xBF\xBF\xED\x9F\xBF";
  std::string out;
  append_json_string(out, every);
  EXPECT_EQ(json::parse(out).get<std::string>(), every);
  EXPECT_EQ(out.find('\n'), std::string::npos);
  EXPECT_EQ(out.find("\xE2\x80\xA8"), std::string::npos);
}

TEST(JsonText, replaces_what_is_not_utf8) {
  const std::vector<std::pair<std::string, std::size_t>> table = {{"a\xFF", 1},
                                                                  {"\xC0\xAF", 0},
                                                                  {"ab\xE2\x82", 2},
                                                                  {"\xED\xA0\x80", 0},
                                                                  {"\xF4\x90\x80\x80", 0},
                                                                  {"\xF0\x80\x80\x80", 0},
                                                                  {"\xE0\x80\x80", 0},
                                                                  {"x\x80", 1},
                                                                  {"\xF5\x80\x80\x80", 0},
                                                                  {"\xC3", 0}};
  for (const auto& [text, place] : table) {
    EXPECT_EQ(text::find_invalid_utf8(text), place) << testing::PrintToString(text);
    std::string out;
    append_json_string(out, text);
    EXPECT_TRUE(json::accept(out)) << testing::PrintToString(text);
  }
  EXPECT_EQ(text::find_invalid_utf8("zwölf \xF0\x9F\xA6\x8A"), std::nullopt);
  EXPECT_EQ(text::count_code_points("zwölf \xF0\x9F\xA6\x8A"), 7U);
}

TEST(JsonText, writes_floats_that_read_back_the_same) {
  const auto written = [](float value) {
    std::string out;
    append_json_logprob(out, value);
    return out;
  };
  EXPECT_EQ(written(-0.1F), "-0.1");
  EXPECT_EQ(written(0.0F), "0.0");
  EXPECT_EQ(written(-0.0F), "0.0");
  EXPECT_EQ(written(-3.0F), "-3.0");
  EXPECT_EQ(written(-std::numeric_limits<float>::infinity()), "-9999.0");
  EXPECT_EQ(written(std::numeric_limits<float>::quiet_NaN()), "-9999.0");
  for (float value : {-1.2345678F, -1e-10F, -3.4e-8F, -17.000001F, -1.17549e-38F}) {
    EXPECT_EQ(json::parse(written(value)).get<float>(), value) << written(value);
  }
}

}  // namespace
}  // namespace troupe
