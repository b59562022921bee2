#include "runtime/base/terminal_text.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using Lines = std::vector<std::string>;

TEST(TerminalText, lets_nothing_through_that_moves_the_cursor_or_turns_text_around) {
  EXPECT_EQ(printable("a\nb\tc\x1b[2Jd\x7f"), "a?b?c?[2Jd?");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(printable("\u0085\u009b31m"), "??31m");     // C1: next line, CSI
  EXPECT_EQ(printable("x\u202egpj.exe"), "x?gpj.exe");  // right to left
  EXPECT_EQ(printable("\u2066a\u2069\u2028b"), "?a??b");
  EXPECT_EQ(printable("caf\u00e9 \u4e2d\u6587 \U0001f600"), "caf\u00e9 \u4e2d\u6587 \U0001f600");
}

TEST(TerminalText, replaces_invalid_utf8_byte_by_byte) {
  EXPECT_EQ(printable("\xff\xfe"), "??");
  EXPECT_EQ(printable("a\xc3"), "a?");               // cut off
  EXPECT_EQ(printable("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(printable("\xe0\x80\xaf"), "???");       // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????");  // above U+10FFFF
  EXPECT_EQ(printable("\xe4\xb8"
                      "a"),
            "??a");
}

TEST(TerminalText, counts_columns_and_not_bytes) {
  EXPECT_EQ(width_of(""), 0U);
  EXPECT_EQ(width_of("fable-moe"), 9U);
  EXPECT_EQ(width_of("M\u00e4rchen"), 7U);
  EXPECT_EQ(width_of("\u7269\u8a9e"), 4U) << "wide ones take two";
  EXPECT_EQ(width_of("\uac00\uff21\U0001f600"), 6U);
  EXPECT_EQ(width_of("cafe\u0301"), 4U) << "a mark takes none";
}

TEST(TerminalText, cuts_between_characters) {
  const std::string text = "a\u4e2de\u0301b";
  EXPECT_EQ(beginning_of(text, 0), "");
  EXPECT_EQ(beginning_of(text, 1), "a");
  EXPECT_EQ(beginning_of(text, 2), "a") << "half a character cannot be shown";
  EXPECT_EQ(beginning_of(text, 3), "a\u4e2d");
  EXPECT_EQ(beginning_of(text, 4), "a\u4e2de\u0301");
  EXPECT_EQ(beginning_of(text, 99), text);
  EXPECT_EQ(end_of("M\u00e4rchen", 6), "\u00e4rchen");
  EXPECT_EQ(end_of("\u7269\u8a9e", 3), "\u8a9e");
  for (const std::string_view line : {"", "a", "\u7269"}) {
    EXPECT_EQ(end_of(line, 2), line);
    EXPECT_EQ(end_of(line, 0), "");
  }
}

TEST(TerminalText, is_wrapped_between_words) {
  EXPECT_EQ(wrapped("48 answers in 0.6 s", 10), (Lines{"48 answers", "in 0.6 s"}));
  EXPECT_EQ(wrapped("logs: /a/long/path end", 8), (Lines{"logs:", "/a/long/path", "end"}));
  EXPECT_EQ(wrapped("one\n\ntwo three", 9), (Lines{"one", "", "two three"}));
  EXPECT_EQ(wrapped("one two\nthree four", 8, 2), (Lines{"one two", "three", "  four"}));
  EXPECT_EQ(wrapped("\u7269\u8a9e \u7269\u8a9e", 8), (Lines{"\u7269\u8a9e", "\u7269\u8a9e"}))
      << "columns count, not bytes";
  EXPECT_EQ(wrapped("one two\nthree", 0), (Lines{"one two", "three"})) << "of any width";
  EXPECT_EQ(wrapped("", 8), Lines{""});
}

TEST(TerminalText, of_any_bytes_becomes_a_paragraph) {
  EXPECT_EQ(paragraph("one two three four", 9, 2), "one two\n  three\n  four\n");
  EXPECT_EQ(paragraph("one two", 0), "one two\n");
  EXPECT_EQ(paragraph("", 10), "\n");
  EXPECT_EQ(paragraph("a incomprehensibilities b", 10), "a\nincomprehensibilities\nb\n");
  EXPECT_EQ(paragraph("a\nb", 80), "a?b\n");
}

TEST(TerminalText, of_a_help_stands_in_two_columns) {
  const std::string gap(24, ' ');
  EXPECT_EQ(two_columns("--json", "JSON for programs"),
            "  --json                JSON for programs\n");
  EXPECT_EQ(two_columns("--a-name-of-20-chars", "text"), "  --a-name-of-20-chars  text\n");
  EXPECT_EQ(two_columns("--a-name-of-21-chars.", "text"),
            "  --a-name-of-21-chars.\n" + gap + "text\n");
  const std::string word(30, 'x');
  EXPECT_EQ(two_columns("-x", word + " " + word),
            "  -x" + gap.substr(4) + word + "\n" + gap + word + "\n");
  EXPECT_EQ(two_columns("-x", "one\ntwo"), "  -x" + gap.substr(4) + "one\n" + gap + "two\n");
}

}  // namespace
}  // namespace troupe
