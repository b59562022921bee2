#include "launcher/config/nearest.hpp"

#include <array>

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(EditDistance, counts_insertions_deletions_substitutions_and_swaps) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("block", "block"), 0U);
  EXPECT_EQ(edit_distance("blok", "block"), 1U);
  EXPECT_EQ(edit_distance("blocck", "block"), 1U);
  EXPECT_EQ(edit_distance("bl0ck", "block"), 1U);
  EXPECT_EQ(edit_distance("blokc", "block"), 1U);
  EXPECT_EQ(edit_distance("ca", "abc"), 3U);  // no substring is edited twice
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(Nearest, finds_what_was_probably_meant_and_else_nothing) {
  constexpr std::array<std::string_view, 4> known = {"top_k", "top_p", "min_p", "temperature"};
  EXPECT_EQ(nearest("temprature", known), "temperature");
  EXPECT_EQ(nearest("TOP-K", known), "top_k");
  EXPECT_EQ(nearest("topp", known), "top_p");
  EXPECT_EQ(nearest("banana", known), "");
  EXPECT_EQ(nearest("", known), "");
  EXPECT_EQ(nearest(std::string(5000, 'a'), known), "");
}

}  // namespace
}  // namespace troupe
