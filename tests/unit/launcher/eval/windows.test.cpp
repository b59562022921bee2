#include "launcher/eval/windows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Windows, follow_each_other_and_drop_what_is_less_than_one) {
  EXPECT_THAT(cut_windows(11, {.length = 4, .stride = 4}),
              ElementsAre(Window{0, 4, 1}, Window{4, 4, 1}));
  EXPECT_THAT(cut_windows(12, {.length = 4, .stride = 4, .most = 1}), ElementsAre(Window{0, 4, 1}));
}

TEST(Windows, that_overlap_score_each_token_once) {
  const auto windows = cut_windows(10, {.length = 6, .stride = 2});
  EXPECT_THAT(windows, ElementsAre(Window{0, 6, 1}, Window{2, 6, 4}, Window{4, 6, 4}));
  std::size_t scored = 0;
  for (const Window& window : windows) scored += window.scored();
  EXPECT_EQ(scored, 9U);  // all but the first
}

TEST(Windows, of_a_short_text_are_the_text) {
  EXPECT_THAT(cut_windows(3, {.length = 512, .stride = 512}), ElementsAre(Window{0, 3, 1}));
  EXPECT_THAT(cut_windows(1, {.length = 512, .stride = 512}), IsEmpty());
  EXPECT_THAT(cut_windows(0, {.length = 512, .stride = 512}), IsEmpty());
}

}  // namespace
}  // namespace troupe
