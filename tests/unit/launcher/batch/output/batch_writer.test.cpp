#include "launcher/batch/output/batch_writer.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <random>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/process/unique_fd.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/unit/launcher/batch/temp_folder.hpp"

namespace {

/// What fsync fails with, as on a network file system that is full or broken; 0: it does not.
int fsync_error = 0;

}  // namespace

/// The program's own goes before the C library's.
extern "C" int fsync(int file) {
  if (fsync_error == 0) return static_cast<int>(::syscall(SYS_fsync, file));
  errno = fsync_error;
  return -1;
}

namespace troupe {
namespace {

namespace fs = std::filesystem;
using BatchWriting = TempFolder;

/// Makes fsync fail during its life.
struct FailingFsync {
  explicit FailingFsync(int error) { fsync_error = error; }
  ~FailingFsync() { fsync_error = 0; }
  FailingFsync(const FailingFsync&) = delete;
  FailingFsync& operator=(const FailingFsync&) = delete;
};

/// During its life no file grows: a write fails with EFBIG.
struct NoRoomInFiles {
  NoRoomInFiles() {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoRoomInFiles() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  NoRoomInFiles(const NoRoomInFiles&) = delete;
  NoRoomInFiles& operator=(const NoRoomInFiles&) = delete;

 private:
  rlimit before_{};
};

TEST_F(BatchWriting, appends_whole_lines_to_a_new_file) {
  auto writer = BatchWriter::open(path("out"), {});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_TRUE(writer->append("one").ok());
  EXPECT_EQ(read(path("out")), "one\n");
  EXPECT_TRUE(writer->append("two").ok());
  EXPECT_TRUE(writer->finish().ok());
  EXPECT_EQ(read(path("out")), "one\ntwo\n");
}

TEST_F(BatchWriting, keeps_so_much_of_a_file_and_cuts_the_rest_off) {
  write("out", "precious\ntorn");
  ASSERT_TRUE(check_output(path("out"), {}).ok());
  EXPECT_EQ(read(path("out")), "precious\ntorn") << "looking must not change the file";
  {
    auto writer = BatchWriter::open(path("out"), {.input_path = {}, .keep_bytes = 9});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    EXPECT_TRUE(writer->append("new").ok());
  }
  EXPECT_EQ(read(path("out")), "precious\nnew\n");
  ASSERT_TRUE(BatchWriter::open(path("out"), {}).ok());
  EXPECT_EQ(read(path("out")), "");
}

TEST_F(BatchWriting, cuts_nothing_off_a_file_that_is_not_the_one_that_was_looked_at) {
  write("out", "theirs\nand more\n");
  const auto other =
      BatchWriter::open(path("out"), {.input_path = {}, .keep_bytes = 7, .size_before = 7});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::already_exists);
  EXPECT_EQ(other.error().message,
            fmt::format("the output {} was written by others while this job began: it had 7 bytes, "
                        "and has 16",
                        path("out")));
  EXPECT_EQ(read(path("out")), "theirs\nand more\n");
  EXPECT_TRUE(
      BatchWriter::open(path("out"), {.input_path = {}, .keep_bytes = 7, .size_before = 16}).ok());
  EXPECT_EQ(read(path("out")), "theirs\n");
}

TEST_F(BatchWriting, notices_that_the_file_was_deleted) {
  auto writer = BatchWriter::open(path("out"), {});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  ASSERT_TRUE(writer->append("one").ok());
  ASSERT_TRUE(writer->finish().ok());
  fs::remove(path("out"));
  ASSERT_TRUE(writer->append("two").ok());
  const auto synced = writer->finish();
  ASSERT_FALSE(synced.ok());
  EXPECT_EQ(synced.error().code, ErrorCode::not_found);
  EXPECT_EQ(synced.error().message,
            fmt::format("the output {} was deleted while this job wrote it", path("out")));
}

TEST_F(BatchWriting, packs_the_lines_between_two_syncs_into_a_member) {
  for (const char* name : {"out.gz", "out.zst"}) {
    auto writer = BatchWriter::open(path(name), {});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    EXPECT_TRUE(writer->append("one").ok());
    EXPECT_TRUE(writer->append("two").ok());
    EXPECT_EQ(read(path(name)), "") << "nothing was synced yet";
    const auto later = std::chrono::steady_clock::now() + std::chrono::hours(1);
    EXPECT_TRUE(writer->sync_if_due(later).ok());
    EXPECT_EQ(lines_of(path(name), 100), (Lines{{1, "one"}, {2, "two"}}));
    const auto first_member = read(path(name)).size();
    EXPECT_EQ(*whole_member_bytes(path(name), compression_of_name(name)), first_member);
    EXPECT_TRUE(writer->append("three").ok());
    EXPECT_TRUE(writer->finish().ok());
    EXPECT_EQ(lines_of(path(name), 100), (Lines{{1, "one"}, {2, "two"}, {3, "three"}}));
  }
}

TEST_F(BatchWriting, gives_a_pipe_that_nobody_reads_up_when_it_is_told_to) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  bool waits = true;
  const OutputOptions options{.input_path = {}, .keep_bytes = 0, .keep_waiting = [&] {
                                return std::exchange(waits, false);
                              }};
  const auto lonely = BatchWriter::open(path("fifo"), options);
  ASSERT_FALSE(lonely.ok());
  EXPECT_EQ(lonely.error().code, ErrorCode::cancelled);
  const UniqueFd reader(::open(path("fifo").c_str(), O_RDONLY | O_NONBLOCK));
  auto writer = BatchWriter::open(path("fifo"), options);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_TRUE(writer->append("one").ok());
  std::array<char, 8> got{};
  EXPECT_EQ(::read(reader.get(), got.data(), got.size()), 4);
  const auto stuck = writer->append(std::string(1 << 20, 'x'));
  ASSERT_FALSE(stuck.ok());
  EXPECT_EQ(stuck.error().code, ErrorCode::cancelled);
}

TEST_F(BatchWriting, never_overwrites_its_own_input) {
  write("in", "requests\n");
  fs::create_symlink(path("in"), path("link"));
  for (const char* name : {"in", "link"}) {
    const auto writer = BatchWriter::open(path(name), {.input_path = path("in")});
    ASSERT_FALSE(writer.ok());
    EXPECT_EQ(writer.error().message,
              fmt::format("the output {} is the input file itself", path(name)));
  }
  EXPECT_EQ(read(path("in")), "requests\n");
}

TEST_F(BatchWriting, says_before_the_start_what_cannot_be_written) {
  const auto orphan = check_output(path("no/folder/out"), {});
  ASSERT_FALSE(orphan.ok());
  EXPECT_EQ(orphan.error().code, ErrorCode::not_found);
  EXPECT_EQ(orphan.error().message,
            fmt::format("the folder of the output {} does not exist; make it first: mkdir -p {}",
                        path("no/folder/out"), path("no/folder")));
  const auto folder = check_output(path(""), {});
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::invalid_argument);
  write("file", "x");
  const auto below = check_output(path("file/out"), {});
  ASSERT_FALSE(below.ok());
  EXPECT_FALSE(fs::exists(path("out")));
  EXPECT_TRUE(check_output(path("out"), {}).ok());
  EXPECT_FALSE(fs::exists(path("out"))) << "looking must not create the file";
}

TEST_F(BatchWriting, keeps_a_second_job_off) {
  const auto first = BatchWriter::open(path("out"), {});
  ASSERT_TRUE(first.ok());
  const auto second = BatchWriter::open(path("out"), {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message,
            fmt::format("another process is writing the output {}", path("out")));
}

TEST_F(BatchWriting, cuts_a_line_off_again_that_the_disk_took_only_partly) {
  auto writer = BatchWriter::open(path("out"), {});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->append(std::string(99, 'a')).ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 150;  // the next write takes 50 bytes, then fails
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto torn = writer->append(std::string(99, 'b'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(torn.ok());
  EXPECT_EQ(torn.error().code, ErrorCode::io) << torn.error().message;
  EXPECT_EQ(read(path("out")), std::string(99, 'a') + "\n");
  EXPECT_TRUE(writer->append("c").ok());
  EXPECT_EQ(read(path("out")), std::string(99, 'a') + "\nc\n");
}

TEST_F(BatchWriting, keeps_whole_lines_that_a_full_disk_does_not_take_and_writes_them_later) {
  fs::create_directory(path("disk"));
  const auto disk = test::SmallDisk::mount(path("disk"), 1 << 20);
  if (!disk.ok()) GTEST_SKIP() << disk.error().message;
  const std::string first(1000, 'a'), third(10, 'c');
  std::string second(9000, ' ');  // does not fit packed either
  std::mt19937 random(1);
  for (char& letter : second) letter = static_cast<char>('!' + random() % 90);
  for (const std::string name : {"out", "out.gz"}) {
    const std::string output = path("disk/" + name);
    auto writer = BatchWriter::open(output, {.input_path = {}, .keeps_backlog = true});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    ASSERT_TRUE(writer->append(first).ok());
    ASSERT_TRUE(writer->finish().ok());
    const std::string before = read(output);
    (*disk)->fill();
    ASSERT_TRUE(writer->append(second).ok());
    ASSERT_TRUE(writer->append(third).ok());
    const auto full = writer->finish();
    ASSERT_FALSE(full.ok());
    EXPECT_EQ(full.error().code, ErrorCode::resource_exhausted);
    ASSERT_NE(writer->backlog(), nullptr);
    EXPECT_EQ(writer->backlog()->lines, 2U);
    EXPECT_EQ(writer->backlog()->reason, full.error().message);
    EXPECT_THAT(full.error().message, testing::EndsWith(": No space left on device"));
    EXPECT_EQ(read(output), before) << "a line that went in only in part is cut off";
    (*disk)->make_room();
    const auto later = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    ASSERT_TRUE(writer->sync_if_due(later).ok());
    EXPECT_EQ(writer->backlog(), nullptr);
    ASSERT_TRUE(writer->append("d").ok());
    ASSERT_TRUE(writer->finish().ok());
    EXPECT_EQ(lines_of(output, 1 << 20), (Lines{{1, first}, {2, second}, {3, third}, {4, "d"}}));
  }
}

TEST_F(BatchWriting, cuts_off_and_keeps_lines_that_are_lost_when_they_are_synced) {
  auto writer = BatchWriter::open(path("out"), {.input_path = {}, .keeps_backlog = true});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->append("safe").ok());
  ASSERT_TRUE(writer->finish().ok());
  ASSERT_TRUE(writer->append("one").ok());
  ASSERT_TRUE(writer->append("two").ok());
  const auto later = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  {
    const FailingFsync full(EDQUOT);
    ASSERT_TRUE(writer->sync_if_due(later).ok());
    ASSERT_NE(writer->backlog(), nullptr);
    EXPECT_EQ(writer->backlog()->lines, 2U);
    EXPECT_EQ(writer->backlog()->bytes, 8U);
    EXPECT_EQ(read(path("out")), "safe\n");
  }
  ASSERT_TRUE(writer->sync_if_due(later + std::chrono::seconds(1)).ok());
  EXPECT_EQ(writer->backlog(), nullptr);
  EXPECT_EQ(read(path("out")), "safe\none\ntwo\n");
  const FailingFsync failing(EIO);
  ASSERT_TRUE(writer->append("three").ok());
  const auto broken = writer->finish();
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, ErrorCode::io) << "waiting does not help";
}

TEST_F(BatchWriting, counts_the_lines_that_wait_for_room_and_those_that_an_error_loses) {
  // What is written is cut off again as it cannot be synced; then no file may grow any more.
  for (const std::string name : {"out", "out.gz"}) {
    auto writer = BatchWriter::open(path(name), {.input_path = {}, .keeps_backlog = true});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->append("one").ok());
    ASSERT_TRUE(writer->append("two").ok());
    EXPECT_EQ(writer->missing_lines(), 0U);
    auto later = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    {
      const FailingFsync full(ENOSPC);
      ASSERT_TRUE(writer->sync_if_due(later).ok());
      ASSERT_TRUE(writer->append("three").ok());
      EXPECT_EQ(writer->missing_lines(), 3U);
      ASSERT_NE(writer->backlog(), nullptr);
      EXPECT_EQ(writer->backlog()->lines, 3U);
    }
    const NoRoomInFiles none;
    later += std::chrono::seconds(1);
    ASSERT_FALSE(writer->sync_if_due(later).ok()) << "EFBIG: waiting does not help";
    EXPECT_EQ(writer->backlog(), nullptr);
    EXPECT_EQ(writer->missing_lines(), 3U) << "they are lost, not written";
  }
}

TEST_F(BatchWriting, reports_a_full_device_and_syncs_once_a_second) {
  auto full = BatchWriter::open("/dev/full", {});
  ASSERT_TRUE(full.ok()) << full.error().message;
  const auto result = full->append("x");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::resource_exhausted);
  EXPECT_EQ(result.error().message, "cannot write the output /dev/full: No space left on device");
  auto writer = BatchWriter::open(path("out"), {});
  ASSERT_TRUE(writer->append("x").ok());
  EXPECT_TRUE(writer->sync_if_due(std::chrono::steady_clock::now() + std::chrono::hours(1)).ok());
}

}  // namespace
}  // namespace troupe
