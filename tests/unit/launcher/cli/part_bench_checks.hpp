#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/cli/part_bench_options.hpp"

namespace troupe {

/// Arguments of a bench, and what the answer to them says.
using Mistakes = std::vector<std::pair<std::vector<std::string>, std::string>>;

/// `parse` is a bench's own, of a list of arguments.
template <class Parse>
void expect_refused(Parse&& parse, const Mistakes& mistakes) {
  for (const auto& [arguments, message] : mistakes) {
    const auto parsed = parse(arguments);
    ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed)) << message;
    EXPECT_THAT(std::get<EarlyExit>(parsed).text, testing::HasSubstr(message));
    EXPECT_EQ(std::get<EarlyExit>(parsed).code, ExitCode::refused);
  }
}

template <class Parse>
void expect_help_fits_a_terminal(Parse&& parse) {
  const auto parsed = parse(std::vector<std::string>{"--help"});
  ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed));
  EXPECT_EQ(std::get<EarlyExit>(parsed).code, ExitCode::all_answered);
  std::istringstream lines(std::get<EarlyExit>(parsed).text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

}  // namespace troupe
