#include "tests/unit/launcher/batch/input/parsed_lines.hpp"

// The fields of a body: their effect on a request, and the values that are refused.

namespace troupe {
namespace {

TEST(RequestFields, accepts_the_edges) {
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

TEST(RequestFields, hands_on_what_the_chat_template_sees_with_its_keys_in_their_order) {
  EXPECT_EQ(good(chat_line("")).request.template_variables, "");
  EXPECT_EQ(good(chat_line(R"(,"tools":[],"documents":null)")).request.template_variables, "");
  EXPECT_EQ(
      good(chat_line(R"(,"chat_template_kwargs":{"zeta":1,"enable_thinking":false},)"
                     R"("tools":[{"type":"function","function":{"name":"f","a":{"z":1,"b":2}}}],)"
                     R"("documents":[{"title":"t","text":"d"}],"add_generation_prompt":false)"))
          .request.template_variables,
      R"({"tools":[{"type":"function","function":{"name":"f","a":{"z":1,"b":2}}}],)"
      R"("documents":[{"title":"t","text":"d"}],"add_generation_prompt":false,)"
      R"("zeta":1,"enable_thinking":false})");
  expect_refused({
      {chat_line(R"(,"tools":{})"), line_error::invalid_value,
       "tools: expected a list of objects, found an object"},
      {chat_line(R"(,"documents":["x"])"), line_error::invalid_value,
       "documents[0]: expected an object, found \"x\""},
      {chat_line(R"(,"chat_template_kwargs":[])"), line_error::invalid_value,
       "chat_template_kwargs: expected an object, found an empty list"},
      {chat_line(R"(,"chat_template_kwargs":{"messages":[]})"), line_error::invalid_value,
       "chat_template_kwargs: messages cannot be given here"},
      {chat_line(R"(,"add_generation_prompt":1)"), line_error::invalid_value,
       "add_generation_prompt: expected true or false, found 1"},
      {completion_line(R"(,"tools":[{}])"), line_error::unknown_field,
       "\"tools\" is a field of the other url, not of /v1/completions"},
  });
}

TEST(RequestFields, hands_on_calls_of_tools_with_their_arguments_as_objects) {
  const auto chat = [](std::string_view messages) {
    return fmt::format(
        R"({{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{{"messages":{}}}}})",
        messages);
  };
  const BatchRequest request = good(chat(
      R"([{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"1",)"
      R"("type":"function","function":{"name":"f","arguments":"{\"z\": 1, \"b\": [2]}"}},)"
      R"({"id":"2","function":{"name":"g","arguments":""}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":"y"},)"
      R"({"role":"assistant","reasoning_content":"hm","content":"z","tool_calls":[]}])"));
  EXPECT_EQ(request.request.prompt,
            R"([{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[)"
            R"({"id":"1","type":"function","function":{"name":"f","arguments":{"z":1,"b":[2]}}},)"
            R"({"id":"2","function":{"name":"g","arguments":{}}}]},)"
            R"({"role":"tool","content":"y","tool_call_id":"1"},)"
            R"({"role":"assistant","content":"z","reasoning_content":"hm"}])");
  EXPECT_EQ(request.request.template_variables, "");
}

TEST(RequestFields, understands_echo_and_the_log_probabilities_of_completions) {
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

TEST(RequestFields, reads_what_edits_the_choice_of_tokens) {
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

TEST(RequestFields, reads_how_an_answer_ends_and_how_many_there_are) {
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

TEST(RequestFields, reads_a_beam_search) {
  const Request request =
      good(completion_line(R"(,"use_beam_search":true,"n":2,"best_of":3,"length_penalty":0.5,)"
                           R"("temperature":0)"))
          .request;
  EXPECT_TRUE(request.use_beam_search);
  EXPECT_EQ(request.best_of, 3);
  EXPECT_EQ(request.length_penalty, 0.5F);
  EXPECT_FALSE(good(chat_line(R"(,"use_beam_search":false)")).request.use_beam_search);
}

TEST(RequestFields, reads_prompt_logprobs_which_go_before_those_of_an_echo) {
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

TEST(RequestFields, refuses_values_out_of_type_or_range) {
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

TEST(RequestFields, refuses_unknown_fields_and_those_of_a_later_version) {
  const std::vector<std::string> later = {R"("stream":true)",
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

TEST(RequestFields, refuses_what_vllm_refuses_of_penalties_stops_and_choices) {
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

}  // namespace
}  // namespace troupe
