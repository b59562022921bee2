#include "launcher/journal/past_answers.hpp"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/launcher/journal/output_lines.hpp"

namespace troupe::journal_test {
namespace {

TEST(AnswerKey, is_read_from_every_form_of_line_that_is_written) {
  for (const std::string id :
       {"a", "quote \" backslash \\ newline \n \x01", "\u00e4 \u2028", "}"}) {
    const auto key = read_answer_key(answer(id));
    ASSERT_TRUE(key.has_value()) << answer(id);
    EXPECT_FALSE(key->is_error);
    EXPECT_EQ(key->custom_id, id);
    const auto error = read_answer_key(error_line(12, id));
    ASSERT_TRUE(error.has_value()) << error_line(12, id);
    EXPECT_TRUE(error->is_error);
    EXPECT_EQ(error->custom_id, id);
    EXPECT_EQ(error->line, 12U);
    EXPECT_EQ(error->code, "invalid_json");
    EXPECT_EQ(error->message, "no } \"object\"");
  }
  const auto nameless = read_answer_key(error_line(3, std::nullopt));
  ASSERT_TRUE(nameless.has_value());
  EXPECT_FALSE(nameless->custom_id.has_value());
}

TEST(AnswerKey, is_not_found_in_anything_else) {
  const std::string whole = answer("a");
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("null"), whole.substr(0, whole.size() - 1),
        std::string(100, '\0'), std::string(R"({"custom_id":"a","response":{}})"),
        std::string(R"({"id":"b","custom_id":null,"response":{}})"),
        std::string(R"({"id":"b","custom_id":"a\)"), std::string(R"({"id":"b","custom_id":"a}")"),
        whole.substr(0, whole.size() - 20) + std::string(10, '\0') +
            whole.substr(whole.size() - 10)}) {
    EXPECT_FALSE(read_answer_key(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace troupe::journal_test
