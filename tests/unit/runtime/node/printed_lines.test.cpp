#include "runtime/node/printed_lines.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using std::chrono::milliseconds;

TEST(PrintedLines, go_to_the_driver_but_for_those_of_the_log) {
  PrintedLines printed;
  const auto taken = printed.take("one\n2026-11-26T20:00:00.123456Z I first: two\nthree 2026\n",
                                  PrintedLines::Clock::now());
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->lines, "one\nthree 2026\n");
  EXPECT_EQ(taken->dropped, 0U);
  EXPECT_FALSE(
      printed.take("2026-11-26T20:00:00.123456Z I first: two\n", PrintedLines::Clock::now()));
}

TEST(PrintedLines, beyond_so_many_a_second_are_counted_and_told_of_with_the_next) {
  PrintedLines printed;
  std::string many;
  for (std::size_t i = 0; i < PrintedLines::lines_per_second + 7; ++i) many += "x\n";
  const PrintedLines::Clock::time_point now{std::chrono::hours(1)};
  const auto first = printed.take(many, now);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->lines.size(), 2 * PrintedLines::lines_per_second);
  EXPECT_FALSE(printed.take("y\n", now + milliseconds(999)));
  const auto later = printed.take("z\n", now + milliseconds(1000));
  ASSERT_TRUE(later);
  EXPECT_EQ(later->lines, "z\n");
  EXPECT_EQ(later->dropped, 8U);
}

TEST(PrintedLines, of_many_bytes_count_as_too_many) {
  PrintedLines printed;
  const PrintedLines::Clock::time_point now{std::chrono::hours(1)};
  const std::string line(PrintedLines::bytes_per_second, 'x');
  EXPECT_FALSE(printed.take(line + "\n", now));
  const auto next = printed.take("short\n", now);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->dropped, 1U);
}

}  // namespace
}  // namespace troupe
