#include "actors/staging/checkpoint_pieces.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/require.hpp"
#include "tests/support/temporary_folder.hpp"

namespace {

/// What this program has asked the kernel to put on the disk and to rename, in order, by name.
std::vector<std::string>& disk_log() {
  static std::vector<std::string> log;
  return log;
}

std::string last_name(const std::filesystem::path& path) {
  const std::string name = path.filename();
  return name.substr(0, name.find(".part-"));
}

}  // namespace

// These take the place of the C library's in this program.
extern "C" int fsync(int fd) {
  disk_log().push_back(
      "sync " + last_name(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd))));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  disk_log().push_back("rename to " + last_name(to));
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

namespace troupe {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A folder like a checkpoint's, with a file of two and a half pieces.
class CheckpointCopies : public testing::Test {
 protected:
  CheckpointCopies() {
    std::string weights(piece_bytes * 5 / 2, 'w');
    weights[piece_bytes + 7] = 'x';
    folder_.write("model.safetensors", weights);
    folder_.write("config.json", "{}");
    folder_.write("empty.json", "");
  }

  std::string source() const { return folder_.path().string(); }
  std::string target() const { return (copies_.path() / "cache" / "m-1").string(); }
  std::vector<CheckpointFile> files() const { return look_at_checkpoint(source()).files; }

  Result<CheckpointCopy> copy_all() const {
    TROUPE_TRY(CheckpointCopy copy, CheckpointCopy::begin(target()));
    for (const CheckpointFile& file : files()) {
      TROUPE_CHECK(copy.begin_file(file));
      for (std::uint64_t at = 0; at < file.bytes; at += piece_bytes) {
        TROUPE_TRY(const CheckpointPiece piece, read_piece(source(), file.name, at));
        TROUPE_CHECK(copy.append(piece));
      }
    }
    return copy;
  }

  /// Leaves a copy as a process does that is killed; in a child.
  [[noreturn]] void copy_and_die() const {
    const auto copy = copy_all();
    ::_exit(copy.ok() ? 0 : 1);
  }

  /// What lies in the cache.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(copies_.path() / "cache")) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  const tests::TemporaryFolder folder_;
  const tests::TemporaryFolder copies_;
};

TEST_F(CheckpointCopies, have_the_content_and_are_there_only_once_they_are_whole) {
  REQUIRE_OK(auto copy, copy_all());
  EXPECT_FALSE(fs::exists(target()));
  ASSERT_TRUE(copy.finish(files()).ok());
  EXPECT_THAT(names(), ::testing::ElementsAre("m-1"));
  EXPECT_TRUE(are_equal(look_at_checkpoint(target()).files, files()));
  EXPECT_EQ(fs::status(target()).permissions(), fs::perms::owner_all);
}

TEST_F(CheckpointCopies, are_on_the_disk_before_they_get_their_name_and_then_the_name_is) {
  disk_log().clear();
  REQUIRE_OK(auto copy, copy_all());
  ASSERT_TRUE(copy.finish(files()).ok());
  EXPECT_THAT(disk_log(), ::testing::ElementsAre("sync config.json", "sync empty.json",
                                                 "sync model.safetensors", "sync m-1",
                                                 "rename to m-1", "sync cache"));
}

TEST_F(CheckpointCopies, leave_nothing_behind_if_they_are_given_up) {
  {
    REQUIRE_OK(auto copy, copy_all());
  }
  EXPECT_THAT(names(), ::testing::IsEmpty());
}

TEST_F(CheckpointCopies, remove_what_killed_ones_left_but_not_what_others_are_writing) {
  REQUIRE_OK(const auto other, copy_all());
  const pid_t child = ::fork();
  if (child == 0) copy_and_die();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const fs::path elsewhere = target() + ".part-0123456789abcdef-1-XXXXXX";  // of another host
  fs::create_directory(elsewhere);
  ASSERT_EQ(names().size(), 3U);
  REQUIRE_OK(const auto copy, copy_all());
  EXPECT_THAT(names(), ::testing::UnorderedElementsAre(fs::path(other.part()).filename(),
                                                       fs::path(copy.part()).filename(),
                                                       elsewhere.filename()));
  EXPECT_TRUE(fs::exists(fs::path(other.part()) / "model.safetensors"));
}

TEST_F(CheckpointCopies, have_a_tokenizer_model_as_it_changes_how_others_are_read) {
  folder_.write("tokenizer.model", "pieces");
  REQUIRE_OK(auto copy, copy_all());
  ASSERT_TRUE(copy.finish(files()).ok());
  EXPECT_TRUE(fs::exists(fs::path(target()) / "tokenizer.model"));
}

TEST_F(CheckpointCopies, are_trusted_only_where_nobody_else_may_write_them) {
  REQUIRE_OK(auto copy, copy_all());
  ASSERT_TRUE(copy.finish(files()).ok());
  const auto distrust = [this] {
    return gather_facts({.checkpoints = {},
                         .stage_folder = fs::path(target()).parent_path().string(),
                         .stage_names = {fs::path(target()).filename().string()}})
        .staged.at(0)
        .distrust;
  };
  EXPECT_EQ(distrust(), "");
  const fs::path config = fs::path(target()) / "config.json";
  fs::permissions(config, fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(distrust(), HasSubstr("others may write " + config.string()));
  fs::permissions(config, fs::perms::others_write, fs::perm_options::remove);
  fs::permissions(fs::path(target()).parent_path(), fs::perms::all);
  EXPECT_THAT(distrust(), HasSubstr("others may replace what is in "));
  fs::permissions(fs::path(target()).parent_path(), fs::perms::owner_all);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(::lchown(config.c_str(), 1001, 1001), 0);
  EXPECT_THAT(distrust(), HasSubstr("belongs to another user (uid 1001)"));
}

TEST_F(CheckpointCopies, leave_one_in_place_that_somebody_else_has_made_meanwhile) {
  REQUIRE_OK(auto first, copy_all());
  REQUIRE_OK(auto second, copy_all());
  ASSERT_TRUE(first.finish(files()).ok());
  {
    auto late = std::move(second);
    EXPECT_TRUE(late.finish(files()).ok());
  }
  EXPECT_THAT(names(), ::testing::ElementsAre("m-1"));
}

TEST_F(CheckpointCopies, refuse_a_piece_with_other_bytes_than_its_hash) {
  REQUIRE_OK(auto copy, CheckpointCopy::begin(target()));
  ASSERT_TRUE(copy.begin_file({"config.json", 2, ""}).ok());
  REQUIRE_OK(auto piece, read_piece(source(), "config.json", 0));
  piece.bytes[0] = std::byte{'['};
  EXPECT_EQ(copy.append(piece).error().code, ErrorCode::corrupt_data);
}

TEST_F(CheckpointCopies, are_not_finished_if_a_file_is_missing) {
  REQUIRE_OK(auto copy, CheckpointCopy::begin(target()));
  const auto finished = copy.finish(files());
  ASSERT_FALSE(finished.ok());
  EXPECT_THAT(finished.error().message, HasSubstr("is not what was sent"));
}

TEST_F(CheckpointCopies, take_the_place_of_a_link_to_what_is_gone) {
  ASSERT_TRUE(link_checkpoint("/nowhere", target()).ok());
  ASSERT_TRUE(link_checkpoint(source(), target()).ok());
  EXPECT_TRUE(are_equal(look_at_checkpoint(target()).files, files()));
  ASSERT_TRUE(link_checkpoint("/nowhere", target()).ok());
  REQUIRE_OK(auto copy, copy_all());
  ASSERT_TRUE(copy.finish(files()).ok());
  EXPECT_TRUE(fs::is_directory(fs::symlink_status(target())));
  ASSERT_TRUE(link_checkpoint("/nowhere", target()).ok()) << "a copy stays";
  EXPECT_TRUE(are_equal(look_at_checkpoint(target()).files, files()));
  EXPECT_THAT(names(), ::testing::ElementsAre("m-1"));
}

TEST_F(CheckpointCopies, take_no_names_of_other_folders) {
  for (const char* name : {"../config.json", "/etc/passwd", "..", ""}) {
    EXPECT_EQ(read_piece(source(), name, 0).error().code, ErrorCode::invalid_argument) << name;
    REQUIRE_OK(auto copy, CheckpointCopy::begin(target()));
    EXPECT_EQ(copy.begin_file({name, 1, ""}).error().code, ErrorCode::invalid_argument) << name;
  }
}

}  // namespace
}  // namespace troupe
