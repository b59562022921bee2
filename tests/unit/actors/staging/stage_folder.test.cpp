#include "actors/staging/stage_folder.hpp"

#include <filesystem>
#include <optional>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/require.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

TEST(FolderMarks, are_seen_in_their_folder_alone_and_gone_with_their_owner) {
  const tests::TemporaryFolder place;
  const std::string shared = (place.path() / "a" / "copies").string();
  const std::string other = (place.path() / "b").string();
  REQUIRE_OK(auto first, FolderMark::make(shared));
  REQUIRE_OK(auto second, FolderMark::make(shared));
  REQUIRE_OK(auto elsewhere, FolderMark::make(other));
  EXPECT_NE(first.name(), second.name());
  EXPECT_TRUE(has_mark(shared, first.name()));
  EXPECT_TRUE(has_mark(shared, second.name()));
  EXPECT_FALSE(has_mark(shared, elsewhere.name()));
  const std::string name = first.name();
  {
    const FolderMark ended = std::move(first);
  }
  EXPECT_FALSE(has_mark(shared, name));
  EXPECT_TRUE(has_mark(shared, second.name()));
}

TEST(FolderMarks, of_killed_processes_are_removed_by_the_next_one) {
  const tests::TemporaryFolder place;
  const std::string folder = place.path().string();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto mark = FolderMark::make(folder);
    ::_exit(mark.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_FALSE(fs::is_empty(folder));
  {
    REQUIRE_OK(auto mark, FolderMark::make(folder));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  }
  EXPECT_TRUE(fs::is_empty(folder));
}

}  // namespace
}  // namespace troupe
