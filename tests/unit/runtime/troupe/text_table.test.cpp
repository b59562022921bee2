#include "runtime/troupe/text_table.hpp"

#include <sstream>

#include <gtest/gtest.h>

#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(TextTable, columns_are_as_wide_as_their_widest_cell) {
  TextTable table({"NAME", "PID"});
  table.add({"a-long-name", "7"});
  table.add({"b", "12345"});
  EXPECT_EQ(table.text(),
            "NAME         PID\n"
            "a-long-name  7\n"
            "b            12345\n");
}

TEST(TextTable, wide_and_combining_characters_do_not_shift_what_follows) {
  TextTable table({"NAME", "PID"});
  table.add({"\u4e2d\u6587", "1"});
  table.add({"e\u0301\u00e9", "2"});
  table.add({"abcd", "3"});
  EXPECT_EQ(table.text(),
            "NAME  PID\n"
            "\u4e2d\u6587  1\n"
            "e\u0301\u00e9    2\n"
            "abcd  3\n");
}

TEST(TextTable, the_widest_cells_are_cut_until_the_lines_fit) {
  TextTable table({"NAME", "TYPE", "NODE"});
  table.add({std::string(60, 'n'), std::string(30, 't'), "node0"});
  table.add({std::string(40, '\xff'),
             "\u4e2d\u6587\u4e2d\u6587\u4e2d\u6587\u4e2d\u6587\u4e2d\u6587\u4e2d\u6587", "x"});
  for (const std::size_t columns : {200U, 80U, 60U, 40U}) {
    for (const std::string& line : lines_of(table.text(columns))) {
      EXPECT_LE(width_of(line), columns) << line;
    }
  }
  const auto narrow = lines_of(table.text(40));
  EXPECT_NE(narrow[1].find("nnn..."), std::string::npos) << narrow[1];
  EXPECT_NE(narrow[1].find("node0"), std::string::npos) << narrow[1];
}

TEST(TextTable, no_cell_is_cut_to_less_than_eight_columns_on_the_narrowest_terminal) {
  TextTable table({"A", "B", "C", "D", "E"});
  table.add(std::vector<std::string>(5, "abcdefghij"));
  EXPECT_EQ(lines_of(table.text(10))[1], "abcde...  abcde...  abcde...  abcde...  abcde...");
}

TEST(TextTable, hostile_cells_stay_on_their_line) {
  TextTable table({"NAME", "NODE"});
  table.add({"a\nINJECTED  node9", "n\x1b[31m"});
  EXPECT_EQ(lines_of(table.text()).size(), 2U);
  EXPECT_EQ(table.text().find('\x1b'), std::string::npos);
}

TEST(TextTable, rows_may_have_fewer_cells_than_the_heading) {
  TextTable table({"A", "B"});
  table.add({"1"});
  table.add({});
  EXPECT_EQ(table.text(), "A  B\n1\n\n");
}

}  // namespace
}  // namespace troupe
