#include "launcher/compression/compression.hpp"

#include <filesystem>
#include <fstream>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace troupe {
namespace {

class CompressionTest : public testing::TestWithParam<Compression> {
 protected:
  void SetUp() override {
    const auto name = fmt::format("troupe_pack_{}", ::getpid());
    file_ = (std::filesystem::path(testing::TempDir()) / name).string();
  }
  void TearDown() override { std::filesystem::remove(file_); }

  static std::string packed(std::string_view text) {
    std::string out;
    EXPECT_TRUE(append_member(GetParam(), text, out).ok());
    return out;
  }
  Result<std::uint64_t> whole_bytes_of(std::string_view bytes) const {
    std::ofstream(file_, std::ios::binary) << bytes;
    return whole_member_bytes(file_, GetParam());
  }

  std::string file_;
};

/// Text that packs to about a third.
std::string some_text(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) text += fmt::format("word-{} ", random() % 1000);
  return text;
}

TEST_P(CompressionTest, unpacks_what_it_has_packed_in_pieces_of_any_size) {
  const std::string text = some_text(200'000, 1);
  const std::string bytes = packed(text) + packed("") + packed("end");
  EXPECT_LT(bytes.size(), text.size());
  for (const std::size_t step : {1, 7, 4096, 1 << 20}) {
    auto unpacker = Decompressor::make(GetParam());
    ASSERT_TRUE(unpacker.ok());
    std::string found;
    std::string room(step, '\0');
    int members = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t length = std::min(step, bytes.size() - at);
      const auto piece = unpacker->unpack({bytes.data() + at, length}, room);
      ASSERT_TRUE(piece.ok()) << piece.error().message;
      found.append(room, 0, piece->produced);
      at += piece->consumed;
      members += piece->member_ended ? 1 : 0;
    }
    EXPECT_EQ(found, text + "end") << "in steps of " << step;
    EXPECT_EQ(members, 3) << "in steps of " << step;
  }
}

TEST_P(CompressionTest, is_known_by_its_first_bytes) {
  EXPECT_EQ(compression_of_content(packed("x").substr(0, compression_magic_bytes)), GetParam());
  EXPECT_EQ(compression_of_content("{\"custom_id\""), Compression::none);
  EXPECT_EQ(compression_of_content(""), Compression::none);
}

TEST_P(CompressionTest, torn_anywhere_keeps_the_members_before) {
  const std::string first = packed(some_text(70'000, 2));
  const std::string second = packed(some_text(3000, 3));
  const std::string both = first + second;
  EXPECT_EQ(*whole_bytes_of(both), both.size());
  EXPECT_EQ(*whole_bytes_of(""), 0U);
  for (std::size_t size = first.size(); size < both.size(); size += 1 + size % 13) {
    const auto whole = whole_bytes_of(both.substr(0, size));
    ASSERT_TRUE(whole.ok()) << "torn at " << size << ": " << whole.error().message;
    EXPECT_EQ(*whole, first.size()) << "torn at " << size;
  }
  for (std::size_t size = 0; size < first.size(); size += 1 + first.size() / 50) {
    EXPECT_EQ(*whole_bytes_of(both.substr(0, size)), 0U) << "torn at " << size;
  }
}

TEST_P(CompressionTest, zeros_behind_the_last_member_are_room_that_was_never_written) {
  const std::string first = packed(some_text(70'000, 2));
  for (const std::size_t zeros : {1, 4, 100, 200'000}) {
    const auto whole = whole_bytes_of(first + std::string(zeros, '\0'));
    ASSERT_TRUE(whole.ok()) << zeros << " zeros: " << whole.error().message;
    EXPECT_EQ(*whole, first.size()) << zeros << " zeros";
  }
  EXPECT_FALSE(whole_bytes_of(first + std::string(100, '\0') + first).ok());
}

TEST_P(CompressionTest, is_not_looked_through_to_the_end_when_that_is_not_wanted_any_more) {
  ASSERT_TRUE(whole_bytes_of(packed("some text")).ok());
  EXPECT_EQ(whole_member_bytes(file_, GetParam(), [] { return false; }).error().code,
            ErrorCode::cancelled);
}

TEST_P(CompressionTest, damaged_is_no_torn_end) {
  const std::string first = packed("some text");
  const auto whole = whole_bytes_of(first + "rubbish that is no member");
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(whole.error().code, ErrorCode::corrupt_data);
  EXPECT_NE(whole.error().message.find(fmt::format("behind its byte {}", first.size())),
            std::string::npos)
      << whole.error().message;
  EXPECT_NE(whole.error().message.find(fmt::format("truncate -s {} '{}'", first.size(), file_)),
            std::string::npos)
      << whole.error().message;
  const auto nothing = whole_bytes_of("no member at all");
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().message.find("truncate"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Of, CompressionTest, testing::Values(Compression::gzip, Compression::zstd),
                         [](const auto& info) {
                           return info.param == Compression::gzip ? "gzip" : "zstd";
                         });

TEST(CompressionOfName, looks_at_the_end) {
  EXPECT_EQ(compression_of_name("a/out.jsonl.gz"), Compression::gzip);
  EXPECT_EQ(compression_of_name("out.zst"), Compression::zstd);
  EXPECT_EQ(compression_of_name("out.gz.jsonl"), Compression::none);
  EXPECT_EQ(compression_of_name("-"), Compression::none);
}

}  // namespace
}  // namespace troupe
