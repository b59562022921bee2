#include "actors/scheduler/prompt_lookup.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<std::int32_t>;

TEST(PromptLookup, gives_what_followed_the_longest_known_ending) {
  const Tokens tokens = {1, 2, 3, 9, 8, 2, 3, 7, 1, 2, 3};
  EXPECT_THAT(look_up_continuation(tokens, 3, 2), ElementsAre(9, 8)) << "after 1 2 3, not 2 3";
  EXPECT_THAT(look_up_continuation(tokens, 2, 2), ElementsAre(7, 1)) << "the last time 2 3 came";
}

TEST(PromptLookup, gives_no_more_than_there_is) {
  EXPECT_THAT(look_up_continuation(Tokens{5, 6, 5}, 3, 4), ElementsAre(6, 5));
  EXPECT_THAT(look_up_continuation(Tokens{5, 5}, 3, 4), ElementsAre(5));
}

TEST(PromptLookup, gives_nothing_for_what_never_came) {
  EXPECT_THAT(look_up_continuation(Tokens{1, 2, 3}, 3, 4), IsEmpty());
  EXPECT_THAT(look_up_continuation(Tokens{1}, 3, 4), IsEmpty());
  EXPECT_THAT(look_up_continuation(Tokens{1, 1}, 3, 0), IsEmpty());
}

}  // namespace
}  // namespace troupe
