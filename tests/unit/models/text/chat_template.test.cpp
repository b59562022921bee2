#include "models/text/chat_template.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/text/tokenizer.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/models/text/text_data.hpp"

namespace troupe {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;
using tests::read_rows;
using tests::TemporaryFolder;
using tests::text_data;

ChatTemplate load(const std::filesystem::path& folder) {
  auto chat = ChatTemplate::load(folder);
  if (!chat.ok()) throw std::runtime_error(chat.error().message);
  return std::move(chat).value();
}

TEST(ChatTemplate, renders_and_tokenises_as_the_reference_does) {
  const ChatTemplate chat = load(text_data("fable"));
  const auto tokenizer = Tokenizer::load(text_data("fable"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const auto& row : read_rows(text_data("chat.jsonl"))) {
    const auto text =
        chat.render(row["messages"], row["add_generation_prompt"].get<bool>(), nullptr, 0);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*text, row["text"].get<std::string>());
    const auto ids = tokenizer->encode(*text, false);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, row["ids"].get<std::vector<std::int32_t>>()) << row["text"];
  }
}

TEST(ChatTemplate, refuses_conversations_it_cannot_render) {
  const ChatTemplate chat = load(text_data("fable"));
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "at least one message"},
      {"\"hello\"", "array"},
      {"null", "array"},
      {"[3]", "object"},
      {R"([{"role": "user", "content": null}])", "NoneType"},
      {R"([{"role": "user"}])", "has no attribute 'content'"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "list"},
  };
  for (const auto& [messages, reason] : cases) {
    const auto text = chat.render(ordered_json::parse(messages), true, nullptr, 0);
    ASSERT_FALSE(text.ok()) << messages;
    EXPECT_EQ(text.error().code, ErrorCode::invalid_argument) << messages;
    EXPECT_THAT(text.error().message, HasSubstr(reason)) << messages;
  }
}

TEST(ChatTemplate, names_the_line_of_an_error) {
  const ChatTemplate chat = load(text_data("fable"));
  const auto text = chat.render(ordered_json::parse(R"([{"role": "user"}])"), true, nullptr, 0);
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.error().message, HasSubstr("chat_template.jinja:2: "));
}

TEST(ChatTemplate, is_read_from_tokenizer_config_as_text_or_list) {
  const TemporaryFolder folder;
  const auto messages = ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");
  folder.write("tokenizer_config.json",
               R"({"chat_template": "{{ bos_token }}{{ messages[0].content }}",
      "bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  EXPECT_EQ(*load(folder.path()).render(messages, false, nullptr, 0), "<s>Hi");

  folder.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools|length }} tools"}]})");
  const ChatTemplate chat = load(folder.path());
  EXPECT_EQ(*chat.render(messages, false, nullptr, 0), "plain");
  EXPECT_EQ(*chat.render(messages, false, {{"tools", {{{"name", "f"}}}}}, 0), "1 tools");
}

TEST(ChatTemplate, says_what_is_missing_or_broken_when_it_cannot_be_loaded) {
  const TemporaryFolder folder;
  EXPECT_EQ(ChatTemplate::load(folder.path()).error().code, ErrorCode::not_found);
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "other", "template": ""}]})");
  EXPECT_EQ(ChatTemplate::load(folder.path()).error().code, ErrorCode::not_found);
  folder.write("tokenizer_config.json", "{]");
  EXPECT_EQ(ChatTemplate::load(folder.path()).error().code, ErrorCode::corrupt_data);
}

TEST(ChatTemplate, that_is_broken_refuses_only_the_chats_that_need_it) {
  const TemporaryFolder folder;
  const auto messages = ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");
  folder.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{% if %}"},
      {"name": "rag", "template": "{{ documents | unheard_of"}]})");
  const ChatTemplate list = load(folder.path());
  EXPECT_EQ(list.problem(), nullptr);
  EXPECT_EQ(*list.render(messages, false, nullptr, 0), "plain");
  EXPECT_THAT(list.render(messages, false, {{"tools", {{{"name", "f"}}}}}, 0).error().message,
              HasSubstr("chat_template tool_use:1: "));

  folder.write("chat_template.jinja", "a\n{% if x %}b");
  const ChatTemplate broken = load(folder.path());
  ASSERT_NE(broken.problem(), nullptr);
  EXPECT_THAT(broken.problem()->message, HasSubstr("chat_template.jinja:2: expected endif"));
  const auto text = broken.render(messages, false, nullptr, 0);
  EXPECT_EQ(text.error().code, ErrorCode::corrupt_data);
  EXPECT_EQ(text.error().message, broken.problem()->message);
}

TEST(ChatTemplate, is_told_the_time_of_the_job_in_utc) {
  const TemporaryFolder folder;
  folder.write("chat_template.jinja",
               "{{ strftime_now('%d %b %Y %H:%M') }}{{ strftime_now('%Z') }}");
  const auto messages = ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");
  const ChatTemplate chat = load(folder.path());
  constexpr std::int64_t just_before_2026 = 1767225599;
  for (const char* zone : {"UTC", "Asia/Tokyo", "America/New_York"}) {
    ASSERT_EQ(setenv("TZ", zone, 1), 0);
    tzset();
    EXPECT_EQ(*chat.render(messages, true, nullptr, just_before_2026), "31 Dec 2025 23:59") << zone;
  }
  unsetenv("TZ");
  tzset();
}

TEST(ChatTemplate, sees_special_tokens_and_whatever_a_request_adds) {
  const TemporaryFolder folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": "{{ bos_token }}{{ additional_special_tokens|join(',') }}|{{ enable_thinking is defined and enable_thinking }}|{{ add_generation_prompt }}|{% for d in documents or [] %}{{ d.title }}{% endfor %}|{{ tools|tojson }}",
      "bos_token": "<s>", "additional_special_tokens": ["<a>", {"content": "<b>"}]})");
  const auto messages = ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");
  const ChatTemplate chat = load(folder.path());
  EXPECT_EQ(*chat.render(messages, true, nullptr, 0), "<s><a>,<b>|False|True||null");
  const auto extra =
      ordered_json::parse(R"({"enable_thinking": true, "add_generation_prompt": false,
      "documents": [{"title": "D", "text": "t"}], "tools": [{"z": 1, "a": 2}]})");
  EXPECT_EQ(*chat.render(messages, true, extra, 0),
            R"(<s><a>,<b>|True|False|D|[{"z": 1, "a": 2}])");
}

}  // namespace
}  // namespace troupe
