#include "actors/executor/stop_strings.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace troupe {
namespace {

using Strings = std::vector<std::string>;

TEST(StopStrings, are_found_where_they_end_behind_what_was_searched) {
  const Strings stops{"the end"};
  const std::string text = "it is the end, the end";
  const auto first = find_stop_string(stops, text, 0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->begin, 6U);
  EXPECT_EQ(first->end, 13U);
  EXPECT_EQ(find_stop_string(stops, text, 12)->begin, 6U) << "its last byte is new";
  EXPECT_EQ(find_stop_string(stops, text, 13)->begin, 15U);
  EXPECT_FALSE(find_stop_string(stops, text, text.size()));
  EXPECT_FALSE(find_stop_string(stops, "the en", 0));
  EXPECT_FALSE(find_stop_string({}, text, 0));
}

TEST(StopStrings, go_in_the_order_of_the_list_and_not_of_the_text) {
  const auto found = find_stop_string(Strings{"zz", "b", "a"}, "abc", 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->string, 1U);
  EXPECT_EQ(found->begin, 1U);
}

TEST(StopStrings, may_be_longer_than_the_text) {
  EXPECT_FALSE(find_stop_string(Strings{"abcdef"}, "abc", 0));
  EXPECT_FALSE(find_stop_string(Strings{"abcdef"}, "", 0));
  EXPECT_TRUE(find_stop_string(Strings{"abcdef"}, "abcdef", 5));
}

}  // namespace
}  // namespace troupe
