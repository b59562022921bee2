#include "models/json/json_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string nested(int levels) {
  return R"({"a": )" + std::string(static_cast<std::size_t>(levels - 1), '[') +
         std::string(static_cast<std::size_t>(levels - 1), ']') + "}";
}

TEST(JsonFile, takes_64_levels_and_not_one_more) {
  EXPECT_TRUE(parse_json_object(nested(max_checkpoint_json_depth), "f").ok());
  const auto deeper = parse_json_object(nested(max_checkpoint_json_depth + 1), "f");
  ASSERT_FALSE(deeper.ok());
  EXPECT_EQ(deeper.error().code, ErrorCode::corrupt_data);
  EXPECT_EQ(deeper.error().message, "f:1:70: nested deeper than 64 levels");
}

TEST(JsonFile, counts_no_brackets_and_commas_within_texts) {
  const std::string text = R"({"a": "\"\\)" + std::string(100, '[') + R"(", "b": 1})";
  EXPECT_TRUE(parse_json_object(text, "f").ok());
}

TEST(JsonFile, refuses_more_values_than_memory_is_meant_for) {
  std::string text = R"({"a": [0)";
  for (std::size_t i = 0; i < max_checkpoint_json_values; ++i) text += ",0";
  text += "]}";
  const auto many = parse_json_object(text, "f");
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().code, ErrorCode::corrupt_data);
  EXPECT_THAT(many.error().message, HasSubstr("more than 4000000 values"));
}

TEST(JsonFile, tells_the_place_of_a_syntax_error_without_quoting_the_file) {
  const std::string text = "{\n  \"a\": nul" + std::string(100'000, 'l') + "}";
  const auto broken = parse_json_object(text, "f");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, StartsWith("f:2:"));
  EXPECT_LT(broken.error().message.size(), 200U) << broken.error().message;
}

TEST(JsonFile, refuses_a_file_above_64_mebibytes_without_reading_it) {
  const tests::TemporaryFolder folder;
  const auto path = folder.write("large.json", "{}");
  std::filesystem::resize_file(path, (std::uintmax_t{64} << 20) + 1);
  const auto large = read_json_object(path);
  ASSERT_FALSE(large.ok());
  EXPECT_THAT(large.error().message, HasSubstr("67108865 bytes"));
}

}  // namespace
}  // namespace troupe
