#include "runtime/process/process_stack.hpp"

#include <csignal>
#include <cstdlib>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/process/child_process.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ProcessStack, has_a_line_for_each_thread_and_none_for_the_process) {
  EXPECT_EQ(readable_stack("PID 1 - process\nTID 999999:\n#0  0x01 poll\n#1  0x02\n", 1),
            "thread 999999 ():\n#0  0x01 poll\n#1  0x02\n");
  EXPECT_EQ(readable_stack("", 1), "");
}

TEST(ProcessStack, shows_where_a_child_is_also_if_it_is_stopped_and_lets_it_go_on) {
  if (!find_program("eu-stack").ok()) GTEST_SKIP() << "elfutils is not installed";
  auto child =
      ChildProcess::start({.arguments = {"sleep", "60"}, .output_path = "", .program = "sleep"});
  ASSERT_TRUE(child.ok()) << child.error().message;
  for (const bool is_stopped : {false, true}) {
    if (is_stopped) child->signal(SIGSTOP);
    while (is_stopped && !child->is_stopped()) std::this_thread::yield();
    std::string text;
    for (int i = 0; i < 100 && text.find("nanosleep") == std::string::npos; ++i) {
      const auto stack = process_stack(child->pid(), 10s);  // it may not have begun to sleep
      ASSERT_TRUE(stack.ok()) << stack.error().message;
      text = *stack;
    }
    EXPECT_THAT(text, AllOf(HasSubstr("thread "), HasSubstr("(sleep):"), HasSubstr("nanosleep")));
    EXPECT_EQ(child->is_stopped(), is_stopped);
  }
}

TEST(ProcessStack, says_what_to_install) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  const auto none = process_stack(1, 10s);
  ::setenv("PATH", path.c_str(), 1);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::not_found);
  EXPECT_THAT(none.error().message, HasSubstr("install the package elfutils"));
}

TEST(ProcessStack, says_that_a_process_has_ended) {
  if (!find_program("eu-stack").ok()) GTEST_SKIP() << "elfutils is not installed";
  const auto none = process_stack(999'999'999, 10s);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::not_found) << none.error().message;
}

}  // namespace
}  // namespace troupe
