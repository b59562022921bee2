#include "runtime/base/line_file.hpp"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "runtime/base/log.hpp"
#include "tests/support/require.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

/// Sends the log to stderr again at the end of a test, whatever comes of it.
struct LogReset {
  ~LogReset() { (void)log::open("me", "", log::Level::info); }
};

/// Files on a small disk.
class LineFiles : public testing::Test {
 protected:
  void SetUp() override {
    auto disk = test::SmallDisk::mount(folder_.path(), 1 << 20);
    if (!disk.ok()) GTEST_SKIP() << disk.error().message;
    disk_ = *std::move(disk);
  }

  tests::TemporaryFolder folder_;
  std::unique_ptr<test::SmallDisk> disk_;
  const std::filesystem::path path_ = folder_.path() / "a.log";
};

TEST_F(LineFiles, drop_what_a_full_disk_does_not_take_and_begin_a_new_line_afterwards) {
  REQUIRE_OK(LineFile file, LineFile::open(path_));
  EXPECT_TRUE(file.append("one\n"));
  disk_->fill();
  EXPECT_FALSE(file.append(std::string(5000, 'x') + "\n")) << "a page has room for a part of it";
  EXPECT_FALSE(file.append("two\n"));
  disk_->make_room();
  EXPECT_TRUE(file.append("three\nfour\n"));
  EXPECT_TRUE(file.append("five\n"));
  EXPECT_EQ(folder_.read("a.log"),
            "one\n" + std::string(4092, 'x') +
                "\ntroupe: 2 lines of this log were dropped, as the disk did not take them\n"
                "three\nfour\nfive\n");
}

TEST_F(LineFiles, are_made_once_there_is_room) {
  // Empty files take the last inodes, so the log file cannot be made.
  disk_->fill();
  for (int i = 0; std::ofstream(folder_.path() / std::to_string(i)); ++i) ASSERT_LT(i, 200);
  REQUIRE_OK(LineFile file, LineFile::open(path_));
  EXPECT_FALSE(file.append("one\n"));
  disk_->make_room();
  EXPECT_TRUE(file.append("two\n"));
  EXPECT_EQ(folder_.read("a.log"),
            "troupe: 1 line of this log was dropped, as the disk did not take it\ntwo\n");
}

TEST_F(LineFiles, of_a_log_tell_how_many_lines_were_dropped) {
  const LogReset reset{};
  ASSERT_TRUE(log::open("me", path_, log::Level::info).ok());
  EXPECT_EQ(log::destination(), path_);
  log::info("one");
  disk_->fill();
  const std::string text(5000, 'x');
  log::info("{}", text);
  log::info("two");
  disk_->make_room();
  log::info("three");
  ASSERT_TRUE(log::open("me", "", log::Level::info).ok());
  const std::string found = folder_.read("a.log");
  EXPECT_NE(found.find("W me: 2 lines of this log were dropped, as the disk did not take them\n"),
            std::string::npos)
      << found;
  EXPECT_NE(found.find("I me: three\n"), std::string::npos) << found;
  EXPECT_EQ(found.find("two"), std::string::npos) << found;
}

TEST(LineFile, says_why_it_cannot_be_opened) {
  const auto file = LineFile::open("/nowhere/a.log");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().message,
            "cannot open the log file /nowhere/a.log: No such file or directory");
}

}  // namespace
}  // namespace troupe
