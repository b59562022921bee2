#include "runtime/base/log.hpp"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

namespace troupe {
namespace {

TEST(Log, leaves_the_default_logger_of_spdlog_to_the_program) {
  const auto before = spdlog::default_logger();
  ASSERT_TRUE(log::open("me", log::to_stderr, log::Level::info).ok());
  EXPECT_EQ(spdlog::default_logger(), before);
  ASSERT_TRUE(log::open("me", "", log::Level::info).ok());
  EXPECT_EQ(spdlog::default_logger(), before);
}

TEST(Log, writes_only_warnings_and_errors_to_stderr_without_a_path) {
  ASSERT_TRUE(log::open("me", "", log::Level::debug).ok());
  testing::internal::CaptureStderr();
  log::info("all is well");
  log::warning("the disk is full");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "me: warning: the disk is full\n");
  EXPECT_EQ(log::destination(), log::to_stderr);
}

}  // namespace
}  // namespace troupe
