// Compares docs/operations.md with the program: options, exit codes, error codes.

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "launcher/batch/input/request_parser.hpp"
#include "launcher/cli/bench_options.hpp"
#include "launcher/cli/check_options.hpp"
#include "launcher/cli/eval_options.hpp"
#include "launcher/cli/init_options.hpp"
#include "launcher/cli/program_help.hpp"
#include "launcher/cli/quantize_options.hpp"
#include "launcher/cli/state_options.hpp"
#include "launcher/metrics/job_metrics.hpp"
#include "tests/support/source_path.hpp"

namespace troupe {
namespace {

std::string page() {
  std::ifstream file(test::source_path("docs/operations.md"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The words of `text` that begin with "--" and a letter.
std::set<std::string> options_in(const std::string& text) {
  std::set<std::string> options;
  for (auto at = text.find("--"); at != text.npos; at = text.find("--", at + 2)) {
    const auto end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at + 2);
    const std::string option = text.substr(at, end - at);
    if (option.size() > 2 && option[2] != '-') options.insert(option);
  }
  return options;
}

TEST(OperationsPage, names_the_options_of_the_help_text_and_no_others) {
  const auto nothing = [](const auto&) { return ExitCode::all_answered; };
  using State = StateCommand::Kind;
  const std::vector<Subcommand> table = {
      program_row(),
      subcommand<CheckArguments>("check", nothing),
      subcommand<InitArguments>("init", nothing),
      subcommand<QuantizeArguments>("quantize", nothing),
      subcommand<StateArguments>("status", nothing, State::status),
      subcommand<StateArguments>("actors", nothing, State::actors),
      subcommand<StateArguments>("join", nothing, State::join),
      subcommand<StateArguments>("logs", nothing, State::logs),
      subcommand<StateArguments>("metrics", nothing, State::metrics),
      subcommand<StateArguments>("stack", nothing, State::stack),
      subcommand<StateArguments>("timeline", nothing, State::timeline),
      subcommand<StateArguments>("stop", nothing, State::stop)};
  std::string help;
  for (const Subcommand& row : table) help += help_text(table, row.name);
  // The page need not name all options of these.
  const std::vector<Subcommand> partly = {
      program_row(), bench_row(),
      subcommand<BenchArguments>("bench faults", nothing, BenchOptions::Kind::faults),
      subcommand<EvalArguments>("eval", nothing)};
  std::set<std::string> known = options_in(help);
  const std::set<std::string> others =
      options_in(help_text(partly, "bench faults") + help_text(partly, "eval"));
  for (const std::string& option : options_in(page())) {
    if (others.contains(option)) known.insert(option);
  }
  EXPECT_EQ(options_in(page()), known);
}

TEST(OperationsPage, tells_every_exit_code) {
  const std::string text = page();
  for (const ExitCode code :
       {ExitCode::all_answered, ExitCode::finished_with_errors, ExitCode::refused, ExitCode::failed,
        ExitCode::drained, ExitCode::interrupted}) {
    const std::string row = fmt::format("\n| {} | ", static_cast<int>(code));
    EXPECT_NE(text.find(row), text.npos) << "no row for exit code " << static_cast<int>(code);
  }
}

TEST(OperationsPage, tells_every_error_code_of_a_line) {
  const std::string text = page();
  for (const auto code :
       {line_error::invalid_utf8, line_error::invalid_json, line_error::line_too_long,
        line_error::missing_custom_id, line_error::duplicate_custom_id, line_error::invalid_method,
        line_error::invalid_url, line_error::model_not_found, line_error::invalid_value,
        line_error::missing_field, line_error::unknown_field, line_error::unsupported}) {
    EXPECT_NE(text.find(fmt::format("`{}`", code)), text.npos) << code << " is not on the page";
  }
}

TEST(OperationsPage, names_every_metric) {
  JobMetrics metrics("m", 100);
  metrics.set_rank_busy({0.5});
  const std::string text = page();
  std::istringstream lines(metrics.text());
  int names = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE ")) continue;
    std::istringstream words(line.substr(7));
    std::string name;
    words >> name;
    const bool alone = text.find(fmt::format("`{}`", name)) != text.npos;
    const bool labelled = text.find(fmt::format("`{}{{", name)) != text.npos;
    EXPECT_TRUE(alone || labelled) << name << " is not on the page";
    ++names;
  }
  EXPECT_GT(names, 15);
}

}  // namespace
}  // namespace troupe
