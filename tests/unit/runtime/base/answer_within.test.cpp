#include "runtime/base/answer_within.hpp"

#include <string>

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

TEST(AnswerWithin, returns_what_comes_in_time) {
  const auto good = answer_within<int>(10s, [] { return Result<int>(7); }, "nobody answers");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 7);
  const auto bad = answer_within<int>(
      10s, []() -> Result<int> { return fail(ErrorCode::not_found, "no such host"); },
      "nobody answers");
  EXPECT_EQ(bad.error().code, ErrorCode::not_found);
}

TEST(AnswerWithin, does_not_wait_for_what_blocks) {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto late = answer_within<int>(
      1ms,
      [gate, opened = gate->get_future().share()] {
        opened.wait();
        return Result<int>(7);
      },
      "nobody answers");
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::timed_out);
  EXPECT_EQ(late.error().message, "nobody answers within 1 ms");
  gate->set_value();
}

}  // namespace
}  // namespace troupe
