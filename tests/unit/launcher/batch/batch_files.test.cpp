#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/batch/batch_reader.hpp"
#include "launcher/batch/batch_writer.hpp"
#include "launcher/compression/compression.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {
namespace {

namespace fs = std::filesystem;

const std::string data_folder = TROUPE_SOURCE_DIR "/tests/data/batches/";

class TempFolder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / fmt::format("troupe_{}_{}", ::getpid(), test->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(std::string_view name) const { return (folder_ / name).string(); }

  std::string write(std::string_view name, std::string_view text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

  static std::string read(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(name, std::ios::binary).rdbuf();
    return text.str();
  }

 private:
  fs::path folder_;
};

using LineReading = TempFolder;
using BatchReading = TempFolder;
using BatchWriting = TempFolder;

std::vector<std::pair<std::size_t, std::string>> lines_of(const std::string& path,
                                                          std::size_t limit) {
  std::vector<std::pair<std::size_t, std::string>> lines;
  auto reader = LineReader::open(path, "input", limit);
  if (!reader) return {{0, reader.error().message}};
  for (;;) {
    auto line = reader->next();
    if (!line) return {{0, line.error().message}};
    if (!*line) return lines;
    lines.emplace_back((*line)->number, (*line)->too_long ? "<too long>" : (*line)->text);
  }
}

using Lines = std::vector<std::pair<std::size_t, std::string>>;

TEST_F(LineReading, cuts_lines_whatever_their_ends) {
  const std::vector<std::pair<std::string, Lines>> table = {
      {"", {}},
      {"\n\n", {}},
      {"a", {{1, "a"}}},
      {"a\n", {{1, "a"}}},
      {"a\nb", {{1, "a"}, {2, "b"}}},
      {"a\r\nb\r\n", {{1, "a"}, {2, "b"}}},
      {"a\r\n\r\n \t\nb", {{1, "a"}, {4, "b"}}},
      {"\xEF\xBB\xBF"
       "a\n",
       {{1, "a"}}},
      {"\xEF\xBB\xBF\nb", {{2, "b"}}},
      {"a\n\xEF\xBB\xBF"
       "b",
       {{1, "a"},
        {2,
         "\xEF\xBB\xBF"
         "b"}}},
      {"0123456789\nb", {{1, "0123456789"}, {2, "b"}}},
      {"0123456789\r\nb", {{1, "0123456789"}, {2, "b"}}},
      {"0123456789x\nb", {{1, "<too long>"}, {2, "b"}}},
      {"b\n0123456789x", {{1, "b"}, {2, "<too long>"}}},
  };
  for (const auto& [text, expected] : table) {
    EXPECT_EQ(lines_of(write("in", text), 10), expected) << testing::PrintToString(text);
    EXPECT_EQ(*count_lines(path("in")), expected.size()) << testing::PrintToString(text);
  }
}

TEST_F(LineReading, skips_a_line_much_longer_than_its_buffer) {
  const std::string text =
      "first\n" + std::string(1'000'000, 'x') + "\r\nthird\n" + std::string(300'000, 'y');
  EXPECT_EQ(lines_of(write("in", text), 100'000),
            (Lines{{1, "first"}, {2, "<too long>"}, {3, "third"}, {4, "<too long>"}}));
  const Lines whole = lines_of(path("in"), 1'000'000);
  ASSERT_EQ(whole.size(), 4U);
  EXPECT_EQ(whole[1].second.size(), 1'000'000U);
}

TEST_F(LineReading, says_what_cannot_be_read) {
  const auto missing = LineReader::open(path("none"), "input", 10);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_EQ(missing.error().message,
            fmt::format("cannot open the input {}: No such file or directory", path("none")));
  const auto folder = LineReader::open(path(""), "input", 10);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(folder.error().message,
            fmt::format("the input {} is a folder; it must be a file", path("")));
}

/// Reads a whole batch: custom_id (or "line N") -> "ok" or the error's code.
std::multimap<std::string, std::string> outcome(const std::string& path, LineIds answered = {}) {
  std::multimap<std::string, std::string> result;
  auto reader = BatchReader::open(path, {{"fable-moe"}, 0}, std::move(answered));
  if (!reader) return {{"open", reader.error().message}};
  for (;;) {
    auto item = reader->next();
    if (!item) return {{"read", item.error().message}};
    if (std::holds_alternative<BatchReader::End>(*item)) return result;
    if (const auto* error = std::get_if<LineError>(&*item)) {
      result.emplace(error->custom_id.value_or(fmt::format("line {}", error->line)), error->code);
    } else if (const auto* request = std::get_if<BatchRequest>(&*item)) {
      result.emplace(request->header.custom_id, "ok");
    } else {
      result.emplace("somewhere", "answered before");
    }
  }
}

using Outcome = std::multimap<std::string, std::string>;

TEST(BrokenBatches, get_an_error_for_the_broken_lines_and_keep_the_good_ones) {
  const std::vector<std::pair<std::string, Outcome>> table = {
      {"malformed-line",
       {{"r1", "ok"}, {"r2", "ok"}, {"line 3", "invalid_json"}, {"r4", "ok"}, {"r5", "ok"}}},
      {"missing-custom-id", {{"r1", "ok"}, {"line 2", "missing_custom_id"}, {"r3", "ok"}}},
      {"wrong-method",
       {{"r1", "ok"}, {"r2", "invalid_method"}, {"r3", "invalid_method"}, {"r4", "ok"}}},
      {"empty-file", {}},
      {"invalid-utf8", {{"r1", "ok"}, {"line 2", "invalid_utf8"}, {"r3", "ok"}}},
      {"max-tokens",
       {{"r1", "ok"},
        {"r2", "invalid_value"},
        {"r3", "invalid_value"},
        {"r4", "invalid_value"},
        {"r5", "invalid_value"},
        {"r6", "ok"}}},
      {"messages-empty",
       {{"r1", "ok"},
        {"r2", "invalid_value"},
        {"r3", "missing_field"},
        {"r4", "invalid_value"},
        {"r5", "ok"}}},
      {"unknown-model", {{"r1", "ok"}, {"r2", "model_not_found"}, {"r3", "ok"}, {"r4", "ok"}}},
      {"null-fields",
       {{"r1", "ok"},
        {"r2", "ok"},
        {"r3", "missing_field"},
        {"r4", "missing_field"},
        {"line 5", "missing_custom_id"},
        {"r6", "ok"}}},
      {"crlf-and-no-final-newline", {{"r1", "ok"}, {"r2", "ok"}, {"r3", "ok"}}},
  };
  for (const auto& [name, expected] : table) {
    EXPECT_EQ(outcome(data_folder + name + ".jsonl"), expected) << name;
  }
}

TEST(DemoBatch, has_48_requests_that_are_all_valid) {
  const Outcome lines = outcome(TROUPE_SOURCE_DIR "/configs/demo/requests.jsonl");
  EXPECT_EQ(lines.size(), 48U);
  for (const auto& [custom_id, code] : lines) EXPECT_EQ(code, "ok") << custom_id;
}

std::string request_line(std::string_view custom_id, std::string_view prompt) {
  return fmt::format(
      R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{{"prompt":"{}"}}}})",
      custom_id, prompt);
}

TEST_F(BatchReading, passes_a_request_of_5_mb_on_and_refuses_a_line_of_17_mib) {
  const std::string text =
      request_line("r1", "x") + "\n" + request_line("r2", std::string(5'000'000, 'w')) + "\n" +
      request_line("r3", std::string(17 << 20, 'w')) + "\n" + request_line("r4", "x");
  EXPECT_EQ(outcome(write("in", text)),
            (Outcome{{"r1", "ok"}, {"r2", "ok"}, {"line 3", "line_too_long"}, {"r4", "ok"}}));
}

TEST_F(BatchReading, refuses_a_custom_id_that_was_there_before_even_on_a_broken_line) {
  const std::string text = request_line("a", "x") + "\n" + request_line("b", "") + "\n" +
                           request_line("a", "y") + "\n" + request_line("b", "x") + "\n" +
                           request_line("A", "x") + "\n";
  EXPECT_EQ(outcome(write("in", text)), (Outcome{{"a", "ok"},
                                                 {"b", "invalid_value"},
                                                 {"a", "duplicate_custom_id"},
                                                 {"b", "duplicate_custom_id"},
                                                 {"A", "ok"}}));
}

TEST_F(BatchReading, leaves_out_what_an_earlier_run_has_answered_and_knows_duplicates_of_it) {
  const std::string text = request_line("a", "x") + "\n" + request_line("b", "x") + "\n" +
                           request_line("a", "y") + "\n{\n" + request_line("c", "") + "\n{\n" +
                           request_line("b", "z") + "\n";
  LineIds answered;
  answered.add_answer("a");
  answered.add_error(4, std::nullopt);
  answered.add_error(5, "c");
  answered.add_error(7, "b");
  EXPECT_EQ(outcome(write("in", text), std::move(answered)),
            (Outcome{{"somewhere", "answered before"},
                     {"b", "ok"},
                     {"a", "duplicate_custom_id"},
                     {"somewhere", "answered before"},
                     {"somewhere", "answered before"},
                     {"line 6", "invalid_json"},
                     {"somewhere", "answered before"}}));
}

TEST(LineIds, tell_a_hundred_thousand_names_apart) {
  LineIds ids;
  using Met = LineIds::Met;
  for (int i = 0; i < 100'000; ++i) {
    const std::string name = fmt::format("request-{}", i);
    if (i % 3 == 0) ids.add_answer(name);
    ASSERT_EQ(ids.meet(name), i % 3 == 0 ? Met::answered : Met::first) << name;
  }
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(ids.meet(fmt::format("request-{}", i)), Met::duplicate) << i;
  }
  EXPECT_EQ(ids.size(), 100'000U);
  for (const std::size_t zeros : {0, 1, 2, 8, 9}) {
    EXPECT_EQ(ids.meet(std::string(zeros, '\0')), Met::first) << zeros << " zero bytes";
  }
}

TEST(LineIds, keep_lines_with_errors_apart_from_names) {
  LineIds ids;
  ids.reserve(10);
  ids.add_error(3, "a");
  ids.add_error(4, std::nullopt);
  EXPECT_TRUE(ids.has_error(3, "a"));
  EXPECT_TRUE(ids.has_error(4, std::nullopt));
  EXPECT_FALSE(ids.has_error(4, "a"));
  EXPECT_FALSE(ids.has_error(3, "b"));
  EXPECT_FALSE(ids.has_error(3, std::nullopt));
  EXPECT_EQ(ids.meet("a"), LineIds::Met::first) << "an error's custom_id is no answer";
  EXPECT_EQ(ids.size(), 3U);
}

/// A pipe with a writer of the test's.
class PipeReading : public TempFolder {
 protected:
  void SetUp() override {
    TempFolder::SetUp();
    ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  }
  int open_writer() const { return ::open(path("fifo").c_str(), O_WRONLY | O_NONBLOCK); }
};

TEST_F(PipeReading, does_not_wait_longer_than_it_may_and_joins_what_comes_in_pieces) {
  using State = LineReader::State;
  auto reader = LineReader::open(path("fifo"), "input", 100);  // before there is a writer
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  constexpr auto at_once = std::chrono::milliseconds(0);
  EXPECT_EQ(reader->take(at_once)->state, State::not_yet) << "a FIFO without a writer is no end";
  const UniqueFd writer(open_writer());
  ASSERT_GE(writer.get(), 0);
  const auto send = [&](std::string_view text) {
    ASSERT_EQ(::write(writer.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  send("one\ntw");
  EXPECT_EQ(reader->take(at_once)->line.text, "one");
  EXPECT_EQ(reader->take(at_once)->state, State::not_yet);
  send("o\n");
  const auto second = reader->take(at_once);
  EXPECT_EQ(second->line.text, "two");
  EXPECT_EQ(second->line.number, 2U);
  EXPECT_EQ(reader->take(at_once)->state, State::not_yet);
}

TEST_F(PipeReading, ends_with_its_writer_and_unpacks) {
  std::string packed;
  ASSERT_TRUE(append_member(Compression::gzip, "one\ntwo", packed).ok());
  auto reader = LineReader::open(path("fifo"), "input", 100);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  UniqueFd writer(open_writer());
  ASSERT_EQ(::write(writer.get(), packed.data(), packed.size()),
            static_cast<ssize_t>(packed.size()));
  writer.reset();
  EXPECT_EQ((*reader->next())->text, "one");
  EXPECT_EQ((*reader->next())->text, "two");
  EXPECT_FALSE(reader->next()->has_value());
}

TEST_F(LineReading, unpacks_gzip_and_zstd_in_several_members_whatever_the_name) {
  for (const Compression packing : {Compression::gzip, Compression::zstd}) {
    std::string packed;
    const std::string large(300'000, 'y');
    for (const std::string& text : {std::string("one\ntw"), std::string(), "o\n" + large}) {
      ASSERT_TRUE(append_member(packing, text, packed).ok());
    }
    EXPECT_EQ(lines_of(write("in", packed), 1'000'000),
              (Lines{{1, "one"}, {2, "two"}, {3, large}}));
    EXPECT_EQ(*count_lines(path("in")), 3U);
    const Lines torn = lines_of(write("in", packed.substr(0, packed.size() - 5)), 1'000'000);
    ASSERT_EQ(torn.size(), 1U);
    EXPECT_EQ(torn[0].second, fmt::format("{} ends in the middle of packed data", path("in")));
    const Lines broken = lines_of(write("in", packed + "rubbish"), 1'000'000);
    ASSERT_EQ(broken.size(), 1U);
    EXPECT_NE(broken[0].second.find("not valid"), std::string::npos) << broken[0].second;
  }
}

TEST_F(LineReading, tells_where_lines_end) {
  auto reader = LineReader::open(write("in", "ab\r\n\ncdefghijklmnop\nq"), "input", 10);
  ASSERT_TRUE(reader.ok());
  const std::vector<std::pair<std::uint64_t, bool>> expected = {{4, true}, {20, true}, {21, false}};
  for (const auto& [end, has_newline] : expected) {
    const auto line = reader->next();
    ASSERT_TRUE(line.ok() && line->has_value());
    EXPECT_EQ((*line)->end, end);
    EXPECT_EQ((*line)->has_newline, has_newline);
  }
}

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
  limit.rlim_cur = 150;  // stands for a full disk: the next write takes 50 bytes, then fails
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto torn = writer->append(std::string(99, 'b'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(torn.ok());
  EXPECT_EQ(torn.error().code, ErrorCode::resource_exhausted) << torn.error().message;
  EXPECT_EQ(read(path("out")), std::string(99, 'a') + "\n");
  EXPECT_TRUE(writer->append("c").ok());
  EXPECT_EQ(read(path("out")), std::string(99, 'a') + "\nc\n");
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
