#include "launcher/batch/input/line_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include "launcher/compression/compression.hpp"
#include "runtime/process/unique_fd.hpp"
#include "tests/unit/launcher/batch/temp_folder.hpp"

namespace troupe {
namespace {

using LineReading = TempFolder;

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

/// A pipe with a writer controlled by the test.
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

TEST_F(LineReading, shards_share_out_the_lines_and_keep_their_numbers) {
  const std::string path = write("in", "a\nb\n\nd\ne\nf\n");
  const std::vector<Lines> expected = {{{1, "a"}, {5, "e"}}, {{2, "b"}, {4, "d"}, {6, "f"}}};
  for (const std::size_t index : {0, 1}) {
    const Shard shard{index, 2};
    auto reader = LineReader::open(path, "input", 100);
    ASSERT_TRUE(reader.ok());
    reader->take_only(shard);
    Lines found;
    for (auto line = reader->next(); line.ok() && *line; line = reader->next()) {
      found.emplace_back((*line)->number, (*line)->text);
    }
    EXPECT_EQ(found, expected[index]);
    EXPECT_EQ(*count_lines(path, shard), expected[index].size());
  }
}

}  // namespace
}  // namespace troupe
