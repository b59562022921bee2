#include "launcher/cli/subcommand.hpp"

#include <gmock/gmock.h>

#include "launcher/cli/bench_options.hpp"
#include "launcher/cli/check_options.hpp"
#include "launcher/cli/version.hpp"
#include "tests/unit/launcher/cli/parsed_arguments.hpp"

namespace troupe {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A few commands that note which of them ran.
class Commands : public testing::Test {
 protected:
  template <class Arguments, class... Given>
  Subcommand row(std::string_view name, Given... given) {
    const auto note = [this, name](const auto&) {
      ran_ = std::string(name);
      return ExitCode::all_answered;
    };
    return subcommand<Arguments>(name, note, given...);
  }

  std::variant<Action, EarlyExit> parse(const std::vector<std::string>& arguments) {
    return parse_arguments(table_, arguments);
  }
  std::string ran(const std::vector<std::string>& arguments) {
    ran_.clear();
    const auto parsed = parse(arguments);
    if (const auto* early = std::get_if<EarlyExit>(&parsed)) return early->text;
    std::get<Action>(parsed)();
    return ran_;
  }

  std::string ran_;
  const std::vector<Subcommand> table_ = {
      program_row(),
      row<RunArguments>("run"),
      row<CheckArguments>("check"),
      bench_row(),
      row<BenchArguments>("bench latency", BenchOptions::Kind::latency),
      row<BenchArguments>("bench sweep", BenchOptions::Kind::sweep),
  };
};

TEST_F(Commands, run_is_the_one_of_a_command_line_without_a_command) {
  EXPECT_EQ(ran({"--config", "c.yaml"}), "run");
  EXPECT_EQ(ran({"-q", "-c", "c.yaml"}), "run");
  EXPECT_EQ(ran({"run", "--config", "c.yaml"}), "run");
  EXPECT_THAT(ran({}), HasSubstr("which topology? Give --config FILE"));
}

TEST_F(Commands, are_found_by_their_words) {
  EXPECT_EQ(ran({"check", "--config", "c.yaml"}), "check");
  EXPECT_EQ(ran({"bench", "latency", "--config", "c.yaml"}), "bench latency");
  EXPECT_EQ(ran({"run", "--config", "check"}), "run") << "a value is no command";
}

TEST_F(Commands, that_are_misspelt_are_answered_with_the_nearest) {
  expect_refused(
      [this](const auto& arguments) { return parse(arguments); },
      {{{"chekc", "--config", "c.yaml"}, "unknown command chekc; did you mean check?"},
       {{"zebra"}, "unknown command zebra; known are run, check, bench"},
       {{"bench", "latenc"}, "unknown command bench latenc; did you mean bench latency?"},
       {{"bench"}, "bench what? latency, sweep; try launcher bench --help"},
       {{"bench", "--config", "c.yaml"}, "--config is not an option of launcher bench"},
       {{"run", "--config", "c", "check"}, "unexpected argument check"}});
}

TEST_F(Commands, tell_whose_an_option_is_that_they_do_not_have) {
  expect_refused(
      [this](const auto& arguments) { return parse(arguments); },
      {{{"bench", "latency", "--config", "c", "--rates", "1"},
        "--rates is not an option of launcher bench latency, but of launcher bench sweep"},
       {{"--config", "c", "--assume-gpu", "H200:8"}, "but of launcher check"}});
}

TEST_F(Commands, have_help_of_their_own_whatever_else_is_there) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{"--help"}, ""},
      {{"-h"}, ""},
      {{"help"}, ""},
      {{"help", "bench", "sweep"}, "bench sweep"},
      {{"check", "--help"}, "check"},
      {{"bench", "--help"}, "bench"},
      {{"bench", "latency", "-h", "--zebra"}, "bench latency"},
      {{"--config", "--zebra", "--help"}, "run"},
  };
  for (const auto& [arguments, name] : table) {
    const auto result = parse(arguments);
    const auto* exit = std::get_if<EarlyExit>(&result);
    ASSERT_NE(exit, nullptr);
    EXPECT_EQ(exit->code, ExitCode::all_answered);
    EXPECT_FALSE(exit->to_stderr);
    EXPECT_EQ(exit->text, help_text(table_, name));
    EXPECT_THAT(exit->text,
                HasSubstr(name.empty() ? "Usage: launcher " : "Usage: launcher " + name));
    std::istringstream lines(exit->text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  }
  EXPECT_THAT(help_text(table_, "bench sweep"), HasSubstr("--rates LIST"));
  EXPECT_THAT(help_text(table_, "bench latency"), Not(HasSubstr("--rates")));
  EXPECT_THAT(help_text(table_, ""), HasSubstr("\n  check "));
}

TEST_F(Commands, tell_the_version_of_the_project) {
  EXPECT_EQ(ran({"--version"}), std::string(program_version()) + "\n");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--config", "c.yaml", "--version"},
        {"run", "--version"},
        {"bench", "ops", "--no-such", "--version"}}) {
    EXPECT_EQ(ran(arguments), std::string(program_version()) + "\n");
  }
  EXPECT_THAT(std::string(program_version()),
              testing::MatchesRegex("launcher \\(Troupe\\) 0\\.[2-9].*"));
}

}  // namespace
}  // namespace troupe
