#include "runtime/base/last_lines.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/process/temporary_folder.hpp"

namespace troupe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LastLines, are_those_at_the_end_whole_or_not) {
  const auto folder = TemporaryFolder::create("lines");
  ASSERT_TRUE(folder.ok());
  const auto path = (folder->path() / "log").string();
  EXPECT_THAT(last_lines(path), IsEmpty());
  std::ofstream(path) << "a\nb\n\nc";
  EXPECT_THAT(last_lines(path, 3), ElementsAre("b", "", "c"));
  EXPECT_THAT(last_lines(path, 9), ElementsAre("a", "b", "", "c"));
}

TEST(LastLines, of_a_large_file_begin_with_a_whole_line) {
  const auto folder = TemporaryFolder::create("lines");
  ASSERT_TRUE(folder.ok());
  const auto path = (folder->path() / "log").string();
  std::ofstream(path) << std::string(100'000, 'x') << "\nlast\n";
  EXPECT_THAT(last_lines(path, 3), ElementsAre("last"));
}

}  // namespace
}  // namespace troupe
