#include "launcher/terminal/terminal_text.hpp"

#include <gtest/gtest.h>

#include "launcher/progress/progress_view.hpp"

namespace troupe {
namespace {

TEST(TerminalText, counts_columns_and_not_bytes) {
  EXPECT_EQ(columns_of(""), 0U);
  EXPECT_EQ(columns_of("fable-moe"), 9U);
  EXPECT_EQ(columns_of("Märchen"), 7U);
  EXPECT_EQ(columns_of("物語"), 4U) << "wide ones take two";
  EXPECT_EQ(columns_of("cafe\u0301"), 4U) << "a mark takes none";
}

TEST(TerminalText, breaks_lines_between_words) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrapped("48 answers in 0.6 s", 10), (Lines{"48 answers", "in 0.6 s"}));
  EXPECT_EQ(wrapped("logs: /a/long/path end", 8), (Lines{"logs:", "/a/long/path", "end"}));
  EXPECT_EQ(wrapped("one\n\ntwo three", 9), (Lines{"one", "", "two three"}));
  EXPECT_EQ(wrapped("物語 物語", 8), (Lines{"物語", "物語"})) << "columns count, not bytes";
  EXPECT_EQ(wrapped("", 8), Lines{""});
}

TEST(TerminalText, cuts_between_characters) {
  EXPECT_EQ(beginning_of("Märchen", 2), "Mä");
  EXPECT_EQ(end_of("Märchen", 6), "ärchen");
  EXPECT_EQ(beginning_of("物語", 3), "物") << "half a character cannot be shown";
  EXPECT_EQ(end_of("物語", 3), "語");
  for (const std::string_view line : {"", "a", "物"}) {
    EXPECT_EQ(beginning_of(line, 2), line);
    EXPECT_EQ(end_of(line, 2), line);
    EXPECT_EQ(beginning_of(line, 0), "");
    EXPECT_EQ(end_of(line, 0), "");
  }
}

TEST(TerminalText, lets_nothing_through_that_moves_the_cursor) {
  EXPECT_EQ(on_one_line("a\nb\x1b[2Jc\td\xff"), "a\uFFFDb\uFFFD[2Jc\uFFFDd\uFFFD");
  EXPECT_EQ(on_one_line("Märchen\u2028物語"), "Märchen\uFFFD物語");
}

TEST(ProgressView, fits_a_name_of_wide_characters) {
  ProgressView view;
  ProgressState state;
  state.phase = "loading 物語物語物語物語物語";
  view.update(state);
  for (int columns = 1; columns < 60; ++columns) {
    const auto lines = view.live_lines(columns);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_LE(columns_of(lines[0]), static_cast<std::size_t>(std::max(columns - 1, 1))) << columns;
  }
  EXPECT_EQ(view.live_lines(34)[0], "loading 物語物語物語物語物語  0 s");
}

}  // namespace
}  // namespace troupe
