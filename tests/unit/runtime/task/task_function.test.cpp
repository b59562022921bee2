#include "runtime/task/task_function.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::test {

int twice(int value) { return 2 * value; }
std::string twice_text(const std::string& text) { return text + text; }

namespace {

using ::testing::HasSubstr;

TEST(TaskFunctions, know_those_that_are_used) {
  const auto run = TaskFunctions::find(TaskFunction<&twice>::id);
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(TaskFunctions::name_of(TaskFunction<&twice>::id), "troupe::test::twice");
  EXPECT_NE(TaskFunction<&twice>::id, TaskFunction<&twice_text>::id);
  EXPECT_EQ(TaskFunctions::find(1).error().code, ErrorCode::not_found);
}

TEST(TaskFunctions, tell_functions_of_one_name) {
  EXPECT_TRUE(TaskFunctions::check().ok());
  const auto other = [](ActorContext&, std::span<const std::byte>,
                        const std::weak_ptr<CallHub>&) -> Result<Bytes> { return Bytes{}; };
  const auto third = [](ActorContext&, std::span<const std::byte>,
                        const std::weak_ptr<CallHub>&) -> Result<Bytes> { return Bytes(1); };
  const auto id = TaskFunctions::add("hidden", "int (*)()", other);
  EXPECT_EQ(TaskFunctions::add("hidden", "int (*)()", other), id);
  EXPECT_TRUE(TaskFunctions::check().ok());
  EXPECT_NE(TaskFunctions::add("hidden", "void (*)()", third), id) << "an overload";
  EXPECT_TRUE(TaskFunctions::check().ok());
  TaskFunctions::add("hidden", "int (*)()", third);
  const auto refused = TaskFunctions::check();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("hidden"));
}

}  // namespace
}  // namespace troupe::test
