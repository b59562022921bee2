#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/cli/program_help.hpp"
#include "launcher/cli/subcommand.hpp"

namespace troupe {

/// The result of parsing a command's arguments: its options, or an early exit.
template <class Options>
using Parsed = std::variant<Options, EarlyExit>;

/// Parses `words` for the command `name`; `given` goes to the constructor of its arguments.
template <class Arguments, class... Given>
auto parse_for(const std::string& name, std::vector<std::string> words, Given... given) {
  using Options = std::decay_t<decltype(*std::declval<Arguments>().judge())>;
  Options options;
  const auto keep = [&options](const Options& chosen) {
    options = chosen;
    return ExitCode::all_answered;
  };
  const std::vector<Subcommand> table = {program_row(), bench_row(),
                                         subcommand<Arguments>(name, keep, given...)};
  std::istringstream of_name(name);
  std::vector<std::string> all;
  for (std::string word; of_name >> word;) all.push_back(word);
  all.insert(all.end(), words.begin(), words.end());
  const auto parsed = parse_arguments(table, all);
  if (const auto* early = std::get_if<EarlyExit>(&parsed)) return Parsed<Options>(*early);
  std::get<Action>(parsed)();
  return Parsed<Options>(std::move(options));
}

/// Returns the options; fails the test if there are none.
template <class Options>
Options options_of(Parsed<Options> parsed) {
  if (const auto* early = std::get_if<EarlyExit>(&parsed)) {
    ADD_FAILURE() << "expected options, came: " << early->text;
    return {};
  }
  return std::get<Options>(std::move(parsed));
}

/// Arguments of a command, and a part of the resulting error.
using Mistakes = std::vector<std::pair<std::vector<std::string>, std::string>>;

/// `parse` parses a list of one command's arguments.
template <class Parse>
void expect_refused(Parse&& parse, const Mistakes& mistakes) {
  for (const auto& [arguments, message] : mistakes) {
    const auto parsed = parse(arguments);
    ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed)) << message;
    const auto& early = std::get<EarlyExit>(parsed);
    EXPECT_THAT(early.text, testing::HasSubstr(message));
    EXPECT_EQ(early.code, ExitCode::refused);
    EXPECT_TRUE(early.to_stderr);
    EXPECT_TRUE(early.text.starts_with("launcher: ")) << early.text;
    EXPECT_TRUE(early.text.ends_with("\n")) << early.text;
  }
}

/// Help is printed whatever else is given, and fits 80 columns.
template <class Parse>
void expect_help_fits_a_terminal(Parse&& parse) {
  const auto parsed = parse(std::vector<std::string>{"--set", "--help"});
  ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed));
  const auto& early = std::get<EarlyExit>(parsed);
  EXPECT_EQ(early.code, ExitCode::all_answered);
  EXPECT_FALSE(early.to_stderr);
  std::istringstream lines(early.text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

}  // namespace troupe
