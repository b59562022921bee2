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
#include <unistd.h>

#include "launcher/batch/batch_reader.hpp"
#include "launcher/batch/batch_writer.hpp"

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
std::multimap<std::string, std::string> outcome(const std::string& path) {
  std::multimap<std::string, std::string> result;
  auto reader = BatchReader::open(path, {{"fable-moe"}, 0});
  if (!reader) return {{"open", reader.error().message}};
  for (;;) {
    auto item = reader->next();
    if (!item) return {{"read", item.error().message}};
    if (!*item) return result;
    if (const auto* error = std::get_if<LineError>(&**item)) {
      result.emplace(error->custom_id.value_or(fmt::format("line {}", error->line)), error->code);
    } else {
      result.emplace(std::get<BatchRequest>(**item).header.custom_id, "ok");
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

TEST(DuplicateIds, tells_a_hundred_thousand_names_apart) {
  DuplicateIds ids;
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(ids.insert(fmt::format("request-{}", i))) << i;
  for (int i = 0; i < 100'000; ++i) ASSERT_FALSE(ids.insert(fmt::format("request-{}", i))) << i;
  EXPECT_EQ(ids.size(), 100'000U);
  EXPECT_TRUE(ids.insert(""));
  EXPECT_TRUE(ids.insert(std::string(1, '\0')));
  EXPECT_TRUE(ids.insert(std::string(2, '\0')));
  EXPECT_TRUE(ids.insert(std::string(8, '\0')));
  EXPECT_TRUE(ids.insert(std::string(9, '\0')));
}

TEST_F(BatchWriting, appends_whole_lines_to_a_new_file) {
  auto writer = BatchWriter::open(path("out"), {});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_TRUE(writer->append("one").ok());
  EXPECT_EQ(read(path("out")), "one\n");
  EXPECT_TRUE(writer->append("two").ok());
  EXPECT_TRUE(writer->finish().ok());
  EXPECT_EQ(read(path("out")), "one\ntwo\n");
  EXPECT_EQ(writer->lines_written(), 2U);
}

TEST_F(BatchWriting, refuses_a_file_with_content_unless_told_to_overwrite) {
  write("out", "precious\n");
  for (const auto& result : {check_output(path("out"), {}), [&]() -> Result<void> {
                               auto writer = BatchWriter::open(path("out"), {});
                               return writer ? Result<void>{} : writer.error();
                             }()}) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::already_exists);
    EXPECT_NE(result.error().message.find("--overwrite"), std::string::npos);
  }
  EXPECT_EQ(read(path("out")), "precious\n");
  EXPECT_TRUE(check_output(path("out"), {.overwrite = true, .input_path = {}}).ok());
  EXPECT_EQ(read(path("out")), "precious\n");
  auto writer = BatchWriter::open(path("out"), {.overwrite = true, .input_path = {}});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_EQ(read(path("out")), "");
  write("empty", "");
  EXPECT_TRUE(BatchWriter::open(path("empty"), {}).ok());
}

TEST_F(BatchWriting, never_overwrites_its_own_input) {
  write("in", "requests\n");
  fs::create_symlink(path("in"), path("link"));
  for (const char* name : {"in", "link"}) {
    const auto writer =
        BatchWriter::open(path(name), {.overwrite = true, .input_path = path("in")});
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
  const auto second = BatchWriter::open(path("out"), {.overwrite = true, .input_path = {}});
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
