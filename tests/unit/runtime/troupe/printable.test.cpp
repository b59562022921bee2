#include "runtime/troupe/printable.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(Printable, what_could_move_the_cursor_or_turn_text_around_is_not_printed) {
  EXPECT_EQ(printable("a\nb\tc\x1b[2Jd\x7f"), "a?b?c?[2Jd?");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(printable("\u0085\u009b31m"), "??31m");     // C1: next line, CSI
  EXPECT_EQ(printable("x\u202egpj.exe"), "x?gpj.exe");  // right to left
  EXPECT_EQ(printable("\u2066a\u2069\u2028b"), "?a??b");
  EXPECT_EQ(printable("caf\u00e9 \u4e2d\u6587 \U0001f600"), "caf\u00e9 \u4e2d\u6587 \U0001f600");
}

TEST(Printable, invalid_utf8_is_replaced_byte_by_byte) {
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

TEST(Printable, wide_characters_take_two_columns_and_combining_ones_none) {
  EXPECT_EQ(width_of(""), 0U);
  EXPECT_EQ(width_of("abc"), 3U);
  EXPECT_EQ(width_of("\u4e2d\u6587"), 4U);
  EXPECT_EQ(width_of("\uac00\uff21\U0001f600"), 6U);
  EXPECT_EQ(width_of("e\u0301"), 1U);
  EXPECT_EQ(width_of("\u00e9\u03b1\u0416"), 3U);
}

TEST(Printable, a_beginning_never_takes_more_columns_nor_cuts_a_character) {
  const std::string text = "a\u4e2de\u0301b";
  EXPECT_EQ(cut_to(text, 0), "");
  EXPECT_EQ(cut_to(text, 1), "a");
  EXPECT_EQ(cut_to(text, 2), "a");
  EXPECT_EQ(cut_to(text, 3), "a\u4e2d");
  EXPECT_EQ(cut_to(text, 4), "a\u4e2de\u0301");
  EXPECT_EQ(cut_to(text, 99), text);
}

}  // namespace
}  // namespace troupe
