#include "launcher/bench/faults/answer_book.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

Completion answer(std::uint64_t id, std::vector<std::int32_t> tokens, std::string text = "a") {
  Completion completion;
  completion.id = id;
  completion.prompt_ids = {1, 2};
  completion.choices.emplace_back();
  completion.choices[0].token_ids = std::move(tokens);
  completion.choices[0].text = std::move(text);
  return completion;
}

/// Two requests, answered once each.
class AnswerBookOfTwo : public testing::Test {
 protected:
  void SetUp() override {
    take(answer(1, {5, 6, 7}));
    take(answer(2, {8}));
    ASSERT_EQ(book_.compared(), 0U);
  }
  void take(Completion completion) {
    book_.asked(completion.id);
    book_.take(std::move(completion));
  }
  /// What is said of the only difference.
  std::string only_difference() const {
    EXPECT_EQ(book_.different(), 1U);
    return book_.differences().size() == 1 ? book_.differences()[0].what : "";
  }

  AnswerBook book_{2};
};

TEST_F(AnswerBookOfTwo, finds_the_same_answers_whatever_their_times_are) {
  Completion late = answer(3, {5, 6, 7});
  late.first_token_us = 7;
  late.last_token_us = 12;
  take(std::move(late));
  take(answer(6, {8}));
  EXPECT_EQ(book_.compared(), 2U);
  EXPECT_EQ(book_.different(), 0U);
}

TEST_F(AnswerBookOfTwo, names_round_and_request_of_another_token) {
  take(answer(5, {5, 0, 7}));
  EXPECT_EQ(only_difference(), "token 2 of 3 is another one");
  EXPECT_EQ(book_.differences()[0].round, 2U);
  EXPECT_EQ(book_.differences()[0].request, 1U);
}

TEST_F(AnswerBookOfTwo, tells_missing_tokens) {
  take(answer(3, {5, 6}));
  EXPECT_EQ(only_difference(), "2 tokens instead of 3 tokens");
}

TEST_F(AnswerBookOfTwo, tells_another_text_of_the_same_tokens) {
  take(answer(3, {5, 6, 7}, "b"));
  EXPECT_EQ(only_difference(), "the same tokens, but not the same text, end or scores");
}

TEST_F(AnswerBookOfTwo, tells_another_end_of_the_same_tokens) {
  Completion other = answer(3, {5, 6, 7});
  other.choices[0].finish_reason = FinishReason::length;
  take(std::move(other));
  EXPECT_EQ(only_difference(), "the same tokens, but not the same text, end or scores");
}

TEST_F(AnswerBookOfTwo, tells_an_error_in_place_of_an_answer) {
  Completion failed;
  failed.id = 4;
  failed.error_code = "process_crashed";
  take(std::move(failed));
  EXPECT_EQ(only_difference(), "the error process_crashed");
}

TEST_F(AnswerBookOfTwo, tells_an_answer_that_comes_twice) {
  take(answer(3, {5, 6, 7}));
  book_.take(answer(3, {5, 6, 7}));
  EXPECT_EQ(only_difference(), "a second answer");
}

TEST_F(AnswerBookOfTwo, knows_what_is_not_answered) {
  book_.asked(3);
  EXPECT_EQ(book_.unanswered(), 1U);
  book_.take(answer(3, {5, 6, 7}));
  EXPECT_EQ(book_.unanswered(), 0U);
}

TEST_F(AnswerBookOfTwo, keeps_the_first_differences_and_counts_all) {
  for (std::uint64_t id = 3; id < 103; ++id) take(answer(id, {0}));
  EXPECT_EQ(book_.different(), 100U);
  EXPECT_EQ(book_.differences().size(), AnswerBook::max_told);
  EXPECT_EQ(book_.differences()[0].round, 1U);
}

}  // namespace
}  // namespace troupe
