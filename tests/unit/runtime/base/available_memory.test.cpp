#include "runtime/base/available_memory.hpp"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

void write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(AvailableMemory, of_this_machine_is_known) {
  EXPECT_GT(available_memory_bytes().value_or(0), 0U);
}

TEST(AvailableMemory, is_what_the_tightest_control_group_leaves) {
  const tests::TemporaryFolder folder;
  const std::filesystem::path& root = folder.path();
  write(root / "job/memory.max", "1000\n");
  write(root / "job/memory.current", "600\n");
  write(root / "job/memory.stat", "anon 400\ninactive_file 150\nactive_file 50\n");
  write(root / "job/step/memory.max", "max\n");
  write(root / "job/step/memory.current", "600\n");
  EXPECT_EQ(memory_left_in_group(root, "/job/step"), 1000 - (600 - 150));
  EXPECT_EQ(memory_left_in_group(root, "/job"), 1000 - (600 - 150));
  write(root / "job/step/memory.max", "610\n");
  EXPECT_EQ(memory_left_in_group(root, "/job/step"), 10U);
  write(root / "job/step/memory.current", "700\n");
  EXPECT_EQ(memory_left_in_group(root, "/job/step"), 0U);
}

TEST(AvailableMemory, knows_the_first_version_of_control_groups) {
  const tests::TemporaryFolder folder;
  const std::filesystem::path& root = folder.path();
  write(root / "memory.limit_in_bytes", "9223372036854771712\n");
  write(root / "memory.usage_in_bytes", "5000\n");
  write(root / "slurm/memory.limit_in_bytes", "3000\n");
  write(root / "slurm/memory.usage_in_bytes", "2500\n");
  write(root / "slurm/memory.stat", "cache 900\ntotal_inactive_file 500\n");
  EXPECT_EQ(memory_left_in_group(root, "/slurm"), 1000U);
}

TEST(AvailableMemory, is_not_bounded_where_there_are_no_limits) {
  const tests::TemporaryFolder folder;
  EXPECT_EQ(memory_left_in_group(folder.path(), "/not/there"), std::nullopt);
  write(folder.path() / "memory.current", "5\n");
  write(folder.path() / "memory.max", "max\n");
  EXPECT_EQ(memory_left_in_group(folder.path(), "/"), std::nullopt);
}

}  // namespace
}  // namespace troupe
