#include "launcher/cli/ops_bench_options.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "launcher/cli/known_options.hpp"

namespace troupe {
namespace {

constexpr std::string_view help_command = "launcher bench ops --help";

EarlyExit refuse(std::string_view message) {
  return {ExitCode::refused, fmt::format("launcher: {}\n", message), true};
}

bool asks_for_help(std::span<const std::string> arguments) {
  return std::ranges::any_of(
      arguments, [](const std::string& given) { return given == "--help" || given == "-h"; });
}

}  // namespace

std::variant<OpsBenchOptions, EarlyExit> parse_ops_bench_options(
    std::span<const std::string> arguments) {
  if (asks_for_help(arguments)) {
    return EarlyExit{ExitCode::all_answered, ops_bench_help_text(), false};
  }
  OpsBenchOptions options;
  std::vector<std::string> sets;
  CLI::App app;
  app.set_help_flag();  // help is ours: it comes before any other complaint
  app.allow_extras();   // so that the nearest option can be named
  app.add_option("--config", options.config_path)->expected(1);
  app.add_option("--set", sets)->allow_extra_args(false);
  app.add_option("--rows", options.rows)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--context", options.context)->check(CLI::Range(1, 1 << 24));
  app.add_option("--seconds", options.seconds)->check(CLI::Range(0.001, 60.0));
  app.add_option("--json", options.json_path)->expected(1);
  std::vector<std::string> rest(arguments.begin(), arguments.end());
  try {
    std::ranges::reverse(rest);  // CLI11 takes a vector from its end
    app.parse(std::move(rest));
  } catch (const CLI::Error& error) {
    return refuse(fmt::format("{}; try {}", error.what(), help_command));
  }
  if (const auto extras = app.remaining(); !extras.empty()) {
    const std::string name = extras.front().substr(0, extras.front().find('='));
    if (!name.starts_with('-')) {
      return refuse(fmt::format("unexpected argument {}; try {}", name, help_command));
    }
    return refuse(about_unknown_option(name, option_names(app), help_command));
  }
  if (options.config_path.empty()) return refuse("which model? Give --config FILE, a cluster YAML");
  for (const std::string& set : sets) {
    auto parsed = parse_override(set);
    if (!parsed) return refuse(parsed.error().message);
    options.overrides.push_back(std::move(*parsed));
  }
  std::ranges::sort(options.rows);
  const auto same = std::ranges::unique(options.rows);
  options.rows.erase(same.begin(), same.end());
  return options;
}

std::string ops_bench_help_text() {
  return R"(launcher bench ops --config FILE [options]: times the operations of one
worker of FILE's model on its device, on random numbers, each beside what the
device could do at most: its bytes at the speed of a large copy, or its
multiply-adds at that of a large product, whichever takes longer. Starts no
engine and reads no weights.

For as many rows as sequences fit in a step (engine.max_num_seqs) the table
ends with a decode step of them: the sum of these least times (the roofline),
and of the times measured. Rows beyond are prefill.

  --config FILE     the model, its dtype, the device and tensor_parallel_size
  --set KEY=VALUE   a key of the YAML by its dotted name; may be given often
  --rows LIST       tokens of a pass (1,8,64,256,4096)
  --context N       tokens of each sequence (512)
  --seconds S       about how long each operation is timed for (0.05)
  --json FILE       all figures, for programs
  -h, --help        print this text
)";
}

}  // namespace troupe
