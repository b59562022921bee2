#include "launcher/eval/choice_tasks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/require.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;

TEST(ChoiceTasks, are_read_line_by_line) {
  REQUIRE_OK(const auto tasks, read_tasks("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], "
                                          "\"answer\": 1}\r\n\n",
                                          "t.jsonl"));
  ASSERT_EQ(tasks.size(), 1U);
  EXPECT_EQ(tasks[0].choices[1], "c");
  EXPECT_EQ(tasks[0].answer, 1U);
}

TEST(ChoiceTasks, are_refused_with_the_line_and_the_key) {
  const auto message = [](std::string_view text) {
    return read_tasks(text, "t.jsonl").error().message;
  };
  EXPECT_THAT(message("\n  \n"), HasSubstr("t.jsonl: there are no tasks"));
  EXPECT_THAT(message("{\"context\": 1}"), HasSubstr("t.jsonl:1: context: expected a text"));
  EXPECT_THAT(message("\n{\"context\": \"a\", \"choices\": [\"b\"], \"answer\": 0}"),
              HasSubstr("t.jsonl:2: choices"));
  EXPECT_THAT(message("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}"),
              HasSubstr("answer: expected the index of a choice, 0 to 1"));
  EXPECT_THAT(message("{\"context\""), HasSubstr("t.jsonl:1"));
}

TEST(ChoiceTasks, have_an_accuracy_and_one_that_is_normalised_by_bytes) {
  // "é" has two bytes: -3 / 2 is more than -2 / 1.
  const std::vector<ChoiceTask> tasks = {{"a", {"x", "\u00e9"}, 0}, {"a", {"xx", "y"}, 1}};
  const std::vector<std::vector<double>> scores = {{-2, -3}, {-4, -1}};
  const ChoiceFigures figures = choice_figures(tasks, scores);
  EXPECT_EQ(figures.accuracy, 1.0);
  EXPECT_EQ(figures.normalized_accuracy, 0.5);
}

}  // namespace
}  // namespace troupe
