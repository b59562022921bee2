#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "launcher/batch/input/request_parser.hpp"

namespace troupe {

/// The context in which these tests check lines.
inline const ParseContext line_context{{"fable-moe", "tales"}, 7};

inline std::variant<BatchRequest, LineError> parse(std::string_view line) {
  return parse_line(line, 3, line_context);
}

inline std::string chat_line(std::string_view more) {
  return fmt::format(R"({{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":)"
                     R"({{"messages":[{{"role":"user","content":"hi"}}]{}}}}})",
                     more);
}

inline std::string completion_line(std::string_view more) {
  return fmt::format(R"({{"custom_id":"a","method":"POST","url":"/v1/completions","body":)"
                     R"({{"prompt":"Once"{}}}}})",
                     more);
}

inline std::string body_line(std::string_view url, std::string_view body) {
  return fmt::format(R"({{"custom_id":"a","method":"POST","url":"{}","body":{}}})", url, body);
}

/// Parses the line as a request; fails the test if it is none.
inline BatchRequest good(const std::string& line) {
  auto result = parse(line);
  if (const auto* error = std::get_if<LineError>(&result)) {
    ADD_FAILURE() << "expected a request, came: " << error->message << "\n" << line;
    return {};
  }
  return std::get<BatchRequest>(result);
}

/// A line and its expected error.
struct BadLine {
  std::string line;
  std::string_view code;
  std::string message;
  bool has_custom_id = true;
};

inline void expect_refused(const std::vector<BadLine>& table) {
  for (const auto& [line, code, message, has_custom_id] : table) {
    const auto result = parse(line);
    const auto* error = std::get_if<LineError>(&result);
    ASSERT_NE(error, nullptr) << "expected " << code << " for " << line.substr(0, 300);
    EXPECT_EQ(error->code, code) << line.substr(0, 300);
    EXPECT_EQ(error->message, message) << line.substr(0, 300);
    EXPECT_EQ(error->custom_id.has_value(), has_custom_id) << line.substr(0, 300);
    EXPECT_EQ(error->line, 3U);
  }
}

}  // namespace troupe
