#include "runtime/node/log_relay.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/require.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

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
  EXPECT_EQ(text_of(path), "one\ntwo\nthe rest\n");
  relay->finish();
}

TEST(LogRelay, takes_on_what_is_said_while_the_disk_is_full) {
  const tests::TemporaryFolder folder;
  const auto disk = test::SmallDisk::mount(folder.path(), 1 << 20);
  if (!disk.ok()) GTEST_SKIP() << disk.error().message;
  const auto path = folder.path() / "a.log";
  // Its thread writes to the disk that this one has mounted.
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
    found = text_of(path);
  }
  EXPECT_NE(found.find("troupe: "), std::string::npos) << found;
  EXPECT_NE(found.find(" lines of this log were dropped, as the disk did not take them\n"),
            std::string::npos)
      << found;
  relay->finish();
  EXPECT_TRUE(text_of(path).ends_with("after\n"));
}

}  // namespace
}  // namespace troupe
