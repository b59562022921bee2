#include "actors/executor/report_parts.hpp"

#include <gtest/gtest.h>

#include "actors/executor/answer_limits.hpp"
#include "runtime/call/codec.hpp"

namespace troupe {
namespace {

Completion completion_of(std::uint64_t id, std::size_t text_bytes) {
  Completion completion;
  completion.id = id;
  completion.choices.emplace_back().text.assign(text_bytes, 'x');
  return completion;
}

TEST(ReportParts, hold_all_completions_in_order_and_everything_else_once) {
  EngineReport report;
  report.domain = 3;
  report.dropped = {8, 9};
  report.first_token = true;
  report.steps.resize(2);
  report.stats.output_tokens = 5;
  for (std::uint64_t id = 0; id < 10; ++id) {
    report.completions.push_back(completion_of(id, id == 4 ? 5000 : 300));
  }
  const auto parts = split_report(report, 2000);
  ASSERT_GT(parts.size(), 3U);
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].domain, 3);
    EXPECT_EQ(parts[i].stats.output_tokens, 5U);
    EXPECT_EQ(parts[i].first_token, i == 0);
    EXPECT_EQ(parts[i].dropped.size(), i == 0 ? 2U : 0U);
    EXPECT_EQ(parts[i].steps.size(), i == 0 ? 2U : 0U);
    std::size_t bytes = 0;
    for (const Completion& completion : parts[i].completions) {
      EXPECT_EQ(completion.id, next++);
      bytes += message_bytes(completion);
    }
    EXPECT_TRUE(bytes <= 2000 || parts[i].completions.size() == 1) << bytes;
  }
  EXPECT_EQ(next, 10U);
}

TEST(ReportParts, of_a_report_without_completions_are_one) {
  EngineReport report;
  report.dropped = {1};
  const auto parts = split_report(report, 1);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].dropped.size(), 1U);
}

TEST(ReportParts, hold_an_error_in_place_of_an_answer_that_no_message_can_carry) {
  EngineReport report;
  report.completions.push_back(completion_of(1, max_completion_bytes + 1));
  report.completions.push_back(completion_of(2, 10));
  const auto parts = split_report(std::move(report), 1000);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].completions[0].id, 1U);
  EXPECT_EQ(parts[0].completions[0].error_code, "answer_too_large");
  EXPECT_FALSE(parts[0].completions[1].failed());
}

TEST(ReportParts, are_no_longer_than_they_are_reckoned) {
  Completion completion = completion_of(1, 100);
  completion.prompt_text.assign(70, 'p');
  completion.prompt_ids.assign(50, 7);
  completion.prompt_logprobs.assign(49, {-1.0F, {1, 2, 3}, {-1.0F, -2.0F, -3.0F}, 1});
  completion.prompt_logprob_bytes.assign(49 * 4, "word");
  Choice& choice = completion.choices.front();
  choice.token_ids.assign(80, 9);
  choice.logprobs.assign(80, {-1.0F, {1, 2}, {-1.0F, -2.0F}, 1});
  choice.logprob_bytes.assign(80 * 3, " a");
  const std::size_t reckoned = message_bytes(completion);
  const std::size_t encoded = encode(completion).size();
  EXPECT_GE(reckoned, encoded);
  EXPECT_LT(reckoned, 3 * encoded);
}

}  // namespace
}  // namespace troupe
