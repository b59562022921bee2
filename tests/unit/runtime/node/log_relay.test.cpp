#include "runtime/node/log_relay.hpp"

#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/require.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

void say(int file, const std::string& text) {
  ASSERT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

TEST(LogRelay, copies_all_that_was_said_when_it_ends_whoever_has_the_other_end_open) {
  const tests::TemporaryFolder folder;
  const auto path = folder.path() / "a.log";
  REQUIRE_OK(const auto relay, LogRelay::start(path));
  const UniqueFd other(::dup(relay->input()));
  relay->close_input();
  say(other.get(), "one\ntw");
  say(other.get(), "o\nthe rest");
  relay->finish();
  EXPECT_EQ(folder.read("a.log"), "one\ntwo\nthe rest\n");
  relay->finish();
}

TEST(LogRelay, takes_on_what_is_said_while_the_disk_is_full) {
  const tests::TemporaryFolder folder;
  const auto disk = test::SmallDisk::mount(folder.path(), 1 << 20);
  if (!disk.ok()) GTEST_SKIP() << disk.error().message;
  const auto path = folder.path() / "a.log";
  // The relay's thread is started after the mount, and so sees the small disk.
  REQUIRE_OK(const auto relay, LogRelay::start(path));
  (*disk)->fill();
  const std::string line = std::string(999, 'x') + "\n";
  // More than the pipe holds.
  for (int i = 0; i < 1000; ++i) say(relay->input(), line);
  (*disk)->make_room();
  // What is still in the pipe may go in, too.
  std::string found;
  for (int i = 0; i < 1000 && found.find("dropped") == std::string::npos; ++i) {
    say(relay->input(), "after\n");
    ::usleep(10'000);
    found = folder.read("a.log");
  }
  EXPECT_NE(found.find("troupe: "), std::string::npos) << found;
  EXPECT_NE(found.find(" lines of this log were dropped, as the disk did not take them\n"),
            std::string::npos)
      << found;
  relay->finish();
  EXPECT_TRUE(folder.read("a.log").ends_with("after\n"));
}

}  // namespace
}  // namespace troupe
