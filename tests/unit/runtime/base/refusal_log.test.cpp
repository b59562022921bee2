#include "runtime/base/refusal_log.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

TEST(RefusalLog, sums_up_what_came_in_one_line_in_ten_seconds) {
  RefusalLog log("control plane");
  const auto start = RefusalLog::Clock::time_point{} + 1h;
  EXPECT_EQ(log.take_line(start), "");
  EXPECT_EQ(log.due(), RefusalLog::Clock::time_point::max());
  log.note("silent");
  EXPECT_EQ(log.take_line(start), "control plane: refused 1 connection (1 silent)");
  for (int i = 0; i < 500; ++i) log.note("no TLS");
  log.note("silent", 2);
  EXPECT_EQ(log.take_line(start + 9999ms), "");
  EXPECT_EQ(log.due(), start + 10s);
  EXPECT_EQ(log.take_line(start + 10s),
            "control plane: refused 502 connections (500 no TLS, 2 silent)");
  EXPECT_EQ(log.take_line(start + 30s), "");
}

}  // namespace
}  // namespace troupe
