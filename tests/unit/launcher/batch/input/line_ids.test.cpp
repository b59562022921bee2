#include "launcher/batch/input/line_ids.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(LineIds, tell_a_hundred_thousand_names_apart) {
  LineIds ids;
  using Met = LineIds::Met;
  for (int i = 0; i < 100'000; ++i) {
    const std::string name = fmt::format("request-{}", i);
    if (i % 3 == 0) ids.add_answer(name);
    ASSERT_EQ(ids.meet(name), i % 3 == 0 ? Met::answered : Met::first) << name;
  }
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(ids.meet(fmt::format("request-{}", i)), Met::duplicate) << i;
  }
  EXPECT_EQ(ids.size(), 100'000U);
  for (const std::size_t zeros : {0, 1, 2, 8, 9}) {
    EXPECT_EQ(ids.meet(std::string(zeros, '\0')), Met::first) << zeros << " zero bytes";
  }
}

TEST(LineIds, keep_lines_with_errors_apart_from_names) {
  LineIds ids;
  ids.reserve(10);
  ids.add_error(3, "a");
  ids.add_error(4, std::nullopt);
  EXPECT_TRUE(ids.has_error(3, "a"));
  EXPECT_TRUE(ids.has_error(4, std::nullopt));
  EXPECT_FALSE(ids.has_error(4, "a"));
  EXPECT_FALSE(ids.has_error(3, "b"));
  EXPECT_FALSE(ids.has_error(3, std::nullopt));
  EXPECT_EQ(ids.meet("a"), LineIds::Met::first) << "an error's custom_id is no answer";
  EXPECT_EQ(ids.size(), 3U);
}

}  // namespace
}  // namespace troupe
