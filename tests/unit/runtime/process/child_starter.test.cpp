#include "runtime/process/child_starter.hpp"

#include <csignal>
#include <map>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

namespace troupe {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds limit{20};

ChildOptions shell(const std::string& script) {
  return {.arguments = {"sh", "-c", script}, .program = "sh"};
}

/// Waits for `count` starts.
std::vector<ChildStarter::Started> take(ChildStarter& starter, std::size_t count) {
  std::vector<ChildStarter::Started> all;
  while (all.size() < count) {
    pollfd ready{starter.fd(), POLLIN, 0};
    if (::poll(&ready, 1, 20'000) != 1) throw std::runtime_error("no start is reported");
    for (auto& started : starter.take()) all.push_back(std::move(started));
  }
  return all;
}

void start(ChildStarter& starter, std::uint64_t tag, const std::string& script) {
  starter.start(tag, shell(script), {});
}

void begin(ChildStarter& starter) {
  if (auto begun = starter.begin(); !begun.ok()) throw std::runtime_error(begun.error().message);
}

TEST(ChildStarter, reports_the_starts_in_their_order) {
  ChildStarter starter;
  begin(starter);
  for (std::uint64_t tag = 0; tag < 16; ++tag) {
    start(starter, tag, "exit " + std::to_string(tag));
  }
  auto all = take(starter, 16);
  for (std::uint64_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].tag, i);
    ASSERT_TRUE(all[i].process.ok());
    const auto ended = all[i].process->wait(limit);
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->code, static_cast<int>(i));
  }
  EXPECT_TRUE(starter.take().empty());
  pollfd ready{starter.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 0) << "nothing is there any more";
}

TEST(ChildStarter, gives_the_child_its_descriptor_and_keeps_none) {
  ChildStarter starter;
  begin(starter);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  starter.start(7, shell("echo hello >&3"), UniqueFd(ends[1]));
  auto started = take(starter, 1);
  ASSERT_TRUE(started[0].process.ok());
  std::string text(64, '\0');
  const ssize_t count = ::read(reading.get(), text.data(), text.size());
  EXPECT_EQ(text.substr(0, static_cast<std::size_t>(std::max<ssize_t>(count, 0))), "hello\n");
  EXPECT_EQ(::read(reading.get(), text.data(), text.size()), 0) << "somebody else still has it";
}

TEST(ChildStarter, reports_why_a_start_has_failed) {
  ChildStarter starter;
  begin(starter);
  starter.start(1, {.arguments = {"x"}, .program = "no-such-program"}, {});
  start(starter, 2, "exit 0");
  const auto all = take(starter, 2);
  ASSERT_FALSE(all[0].process.ok());
  EXPECT_EQ(all[0].process.error().code, ErrorCode::not_found);
  EXPECT_TRUE(all[1].process.ok());
}

TEST(ChildStarter, takes_its_children_along) {
  ChildStarter starter;
  begin(starter);
  start(starter, 1, "sleep 100");
  auto started = take(starter, 1);
  ASSERT_TRUE(started[0].process.ok());
  EXPECT_FALSE(started[0].process->wait(milliseconds(50))) << "it lives as long as the starter";
  starter.stop();
  const auto ended = started[0].process->wait(limit);
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->signalled);
  EXPECT_EQ(ended->code, SIGKILL);
  start(starter, 2, "exit 0");
  EXPECT_TRUE(starter.take().empty());
}

TEST(ChildStarter, may_end_while_starts_wait) {
  ChildStarter starter;
  begin(starter);
  for (std::uint64_t tag = 0; tag < 200; ++tag) start(starter, tag, "sleep 9");
  starter.stop();
  EXPECT_LE(starter.take().size(), 200U);
}

}  // namespace
}  // namespace troupe
