#include "runtime/troupe/json_text.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe {
namespace {

using nlohmann::json;

TEST(JsonText, any_bytes_become_a_string_that_parses) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string bytes{static_cast<char>(first), static_cast<char>(second)};
      const std::string text = json_string(bytes);
      ASSERT_TRUE(json::accept(text)) << first << " " << second << ": " << text;
      if (first < 0x80 && second < 0x80) {
        ASSERT_EQ(json::parse(text).get<std::string>(), bytes);
      }
    }
  }
}

TEST(JsonText, what_json_escapes_comes_back) {
  const std::string text = "\"\\/\n\r\t\b\f\x01\x7f caf\u00e9 \u4e2d \U0001f600 \u2028";
  EXPECT_EQ(json::parse(json_string(text)).get<std::string>(), text);
  EXPECT_EQ(json_string("a\nb").find('\n'), std::string::npos);
}

TEST(JsonText, invalid_utf8_becomes_the_replacement_character) {
  for (const char* bytes : {"\xff", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe4\xb8"}) {
    const auto parsed = json::parse(json_string(bytes)).get<std::string>();
    EXPECT_EQ(parsed.substr(0, 3), "\ufffd") << bytes;
  }
  EXPECT_EQ(json::parse(json_string("a\xff"
                                    "b"))
                .get<std::string>(),
            "a\ufffd"
            "b");
}

TEST(JsonObject, keeps_the_order_and_the_kinds_of_its_members) {
  const std::string text = JsonObject()
                               .add("z", "text")
                               .add("a", std::numeric_limits<std::uint64_t>::max())
                               .add("m", std::numeric_limits<std::int64_t>::min())
                               .add_json("list", json_array(std::vector<std::string>{"1", "[]"}))
                               .text();
  EXPECT_EQ(text,
            R"({"z":"text","a":18446744073709551615,"m":-9223372036854775808,"list":[1,[]]})");
  EXPECT_TRUE(json::accept(text));
}

TEST(JsonObject, hostile_names_and_values_add_no_members) {
  const std::string text =
      JsonObject().add("a\",\"b\":1,\"c", "\",\"is_admin\":true,\"x\":\"").text();
  const json parsed = json::parse(text);
  EXPECT_EQ(parsed.size(), 1U) << text;
  EXPECT_EQ(parsed.begin().key(), "a\",\"b\":1,\"c");
}

TEST(JsonObject, may_be_empty) {
  EXPECT_EQ(JsonObject().text(), "{}");
  EXPECT_EQ(json_array({}), "[]");
}

}  // namespace
}  // namespace troupe
