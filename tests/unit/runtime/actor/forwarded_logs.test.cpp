#include "runtime/actor/forwarded_logs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using std::chrono::seconds;

constexpr ForwardedLogs::Clock::time_point start{std::chrono::hours(1)};

LogLines from(const std::string& process, const std::string& lines) {
  return {.process = process, .pid = 7, .lines = lines};
}

TEST(ForwardedLogs, say_where_a_line_comes_from) {
  ForwardedLogs logs;
  EXPECT_EQ(logs.take("node1", from("worker-0", "one\n\ntwo\x1b[2J\n"), start),
            "(worker-0 pid=7, node1) one\n(worker-0 pid=7, node1) two?[2J\n");
  EXPECT_EQ(logs.take("node1", {.process = "a", .pid = 8, .lines = "x\n", .dropped = 3}, start),
            "(a pid=8, node1) 3 lines are left out, as there were too many\n(a pid=8, node1) x\n");
}

TEST(ForwardedLogs, fold_a_line_that_comes_again_until_its_time_is_over) {
  ForwardedLogs logs;
  EXPECT_EQ(logs.take("node1", from("a", "same\n"), start), "(a pid=7, node1) same\n");
  EXPECT_EQ(logs.take("node2", from("b", "same\nsame\n"), start + seconds(1)), "");
  EXPECT_EQ(logs.take_repeated(start + seconds(4)), "");
  EXPECT_TRUE(logs.is_waiting());
  EXPECT_EQ(logs.take_repeated(start + ForwardedLogs::window),
            "(b pid=7, node2) same [repeated 2x by 2 processes]\n");
  EXPECT_FALSE(logs.is_waiting());
  EXPECT_EQ(logs.take("node2", from("b", "same\n"), start + seconds(9)), "(b pid=7, node2) same\n");
  EXPECT_EQ(logs.take_repeated(start + seconds(60)), "") << "it has come once";
}

TEST(ForwardedLogs, tell_of_all_at_the_end) {
  ForwardedLogs logs;
  (void)logs.take("node1", from("a", "same\nsame\n"), start);
  EXPECT_EQ(logs.take_repeated(start, true), "(a pid=7, node1) same [repeated 1x by 1 process]\n");
}

TEST(ForwardedLogs, remember_a_bounded_number_of_lines) {
  ForwardedLogs logs;
  for (std::size_t i = 0; i < ForwardedLogs::max_lines; ++i) {
    (void)logs.take("n", from("a", std::to_string(i) + "\n"), start);
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(logs.take("n", from("a", "new\n"), start), "(a pid=7, n) new\n");
  }
}

}  // namespace
}  // namespace troupe
