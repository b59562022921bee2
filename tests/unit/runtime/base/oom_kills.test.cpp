#include "runtime/base/oom_kills.hpp"

#include <fstream>

#include <gtest/gtest.h>

#include "runtime/process/temporary_folder.hpp"

namespace troupe {
namespace {

void write(const std::filesystem::path& file, const char* text) { std::ofstream(file) << text; }

TEST(OomKills, are_read_from_control_groups_of_both_versions) {
  const auto folder = TemporaryFolder::create("oom");
  ASSERT_TRUE(folder.ok());
  EXPECT_FALSE(oom_kills_in(folder->path()).has_value());
  write(folder->path() / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  EXPECT_EQ(oom_kills_in(folder->path())->count, 3U);
  write(folder->path() / "memory.events",
        "low 0\nhigh 0\nmax 17\noom 2\noom_kill 5\noom_group_kill 0\n");
  EXPECT_EQ(oom_kills_in(folder->path())->count, 5U);
  EXPECT_EQ(oom_kills_in(folder->path())->source, folder->path() / "memory.events");
}

TEST(OomKills, of_this_machine_are_counted) { EXPECT_TRUE(oom_kills().has_value()); }

}  // namespace
}  // namespace troupe
