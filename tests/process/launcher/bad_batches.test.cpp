#include <gtest/gtest.h>

#include "tests/process/launcher/support/launcher_job.hpp"

namespace troupe::launcher_test {
namespace {

using nlohmann::json;

std::string code_of(const Answer& answer) {
  return answer.ok() ? "" : answer.record.at("error").at("code").get<std::string>();
}

/// Runs a batch and compares its result with its entry in expect.json.
void expect_batch(const std::string& name, const std::string& input, const json& expected) {
  SCOPED_TRACE(name + ": " + expected.at("broken").get<std::string>());
  const LauncherJob job;
  job.write_input(input);
  const Ended ended = job.run();
  const Answers answers = job.answers();
  std::size_t errors = 0;
  for (const auto& [id, answer] : answers) {
    errors += answer.ok() ? 0 : 1;
    EXPECT_EQ(answer.record.at("response").at("status_code") == 200, answer.ok()) << answer.record;
  }
  EXPECT_EQ(ended.code, errors > 0 ? 1 : 0) << ended.describe();
  std::size_t records = 0;
  for (const char* outcome : {"ok", "error", "either"}) {
    for (const std::string id : expected.at(outcome)) {
      ++records;
      const auto answer = answers.find(id);
      ASSERT_NE(answer, answers.end()) << "no record for " << id;
      if (outcome == std::string("either")) continue;
      EXPECT_EQ(answer->second.ok(), outcome == std::string("ok")) << answer->second.record;
    }
  }
  EXPECT_EQ(answers.size(), records);
}

TEST(BadBatch, of_each_kind_has_one_record_a_line_and_errors_where_they_belong) {
  const json expectations = json::parse(golden::file_bytes(batches_folder() / "expect.json"));
  for (const auto& [name, expected] : expectations.items()) {
    const auto file = batches_folder() / name;
    if (!std::filesystem::exists(file)) continue;  // too large for the repository: below
    expect_batch(name, golden::file_bytes(file), expected);
  }
}

TEST(BadBatch, with_a_line_of_five_megabytes_refuses_that_line_alone) {
  const json expectations = json::parse(golden::file_bytes(batches_folder() / "expect.json"));
  std::string prompt;
  while (prompt.size() < 5'000'000) prompt += "The wolf and the seven kids. ";
  const json body = {{"temperature", 0}, {"max_tokens", 8}};
  const std::string input = chat("r1", "Tell me of the king number 1.", body) +
                            completion("r2", prompt, body) +
                            chat("r3", "Tell me of the king number 3.", body);
  expect_batch("five-mb-line.jsonl", input, expectations.at("five-mb-line.jsonl"));
}

TEST(BadBatch, that_is_empty_gives_an_empty_output) {
  const LauncherJob job;
  job.write_input("");
  const Ended ended = job.run();
  EXPECT_EQ(ended.code, 0) << ended.describe();
  ASSERT_TRUE(std::filesystem::exists(job.output()));
  EXPECT_EQ(std::filesystem::file_size(job.output()), 0U);
}

TEST(BadBatch, has_error_codes_that_say_what_is_wrong) {
  const Answers answers =
      answers_to(chat("model", "Hello", {{"model", "gpt-9"}}) +
                     completion("context", "Hello", {{"max_tokens", 5000}}) +
                     completion("vocabulary", {1, 4096}, {{"max_tokens", 4}}) +
                     completion("field", "Hello", {{"max_tokns", 4}}) +
                     completion("later", "Hello", {{"stream", true}}) +
                     completion("fine", "Hello", {{"max_tokens", 4}}) + "{\"custom_id\":\n" + "\n" +
                     completion("last", "Hello", {{"max_tokens", 4}}),
                 {}, 1);
  const std::vector<std::pair<std::string, std::string>> codes = {
      {"model", "model_not_found"},     {"context", "context_length_exceeded"},
      {"vocabulary", "invalid_prompt"}, {"field", "unknown_field"},
      {"later", "not_in_this_version"}, {"line 7", "invalid_json"}};
  for (const auto& [id, code] : codes) {
    ASSERT_TRUE(answers.contains(id)) << id;
    EXPECT_EQ(code_of(answers.at(id)), code) << answers.at(id).record;
  }
  const auto message = [&](const std::string& id) {
    return answers.at(id).record.at("error").at("message").get<std::string>();
  };
  EXPECT_NE(message("model").find("fable-moe"), std::string::npos) << message("model");
  EXPECT_NE(message("vocabulary").find("4096"), std::string::npos) << message("vocabulary");
  EXPECT_NE(message("field").find("max_tokens"), std::string::npos) << message("field");
  EXPECT_TRUE(answers.at("fine").ok());
  EXPECT_TRUE(answers.at("last").ok());
}

TEST(BadBatch, of_legal_json_with_odd_prompts_and_ids_has_an_answer_or_a_clear_error_each) {
  const std::string odd_id = "quote \" backslash \\ newline \n umlaut \u00e4";
  const json body = {{"max_tokens", 3}};
  const Answers answers =
      answers_to(completion("empty", "", body) + completion("no-ids", json::array(), body) +
                     completion("two", {"a", "b"}, body) + completion("negative", {-1}, body) +
                     completion("too-many-logprobs", "a", {{"max_tokens", 3}, {"logprobs", 21}}) +
                     completion("twice", "a", body) + completion(odd_id, "a", body) +
                     completion("zero-byte", std::string("a\0b", 3), body),
                 {}, 1);
  for (const char* id : {"empty", "no-ids", "two", "negative", "too-many-logprobs"}) {
    EXPECT_EQ(code_of(answers.at(id)), "invalid_value") << answers.at(id).record;
  }
  for (const std::string& id : {std::string("twice"), odd_id, std::string("zero-byte")}) {
    ASSERT_TRUE(answers.contains(id)) << id;
    EXPECT_TRUE(answers.at(id).ok()) << answers.at(id).record;
  }
}

TEST(BadBatch, with_a_request_too_large_for_the_cache_refuses_it_and_answers_the_others) {
  const Answers answers =
      answers_to(completion("large", {1, 2, 3}, {{"max_tokens", 300}, {"ignore_eos", true}}) +
                     completion("small", {1, 2, 3}, {{"max_tokens", 3}}),
                 {"engine.kv_cache_blocks=10"}, 1);
  ASSERT_FALSE(answers.at("large").ok());
  const std::string message = answers.at("large").record.at("error").at("message");
  EXPECT_NE(message.find("10"), std::string::npos) << message;
  EXPECT_TRUE(answers.at("small").ok()) << answers.at("small").record;
}

}  // namespace
}  // namespace troupe::launcher_test
