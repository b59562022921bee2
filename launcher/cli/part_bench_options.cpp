#include "launcher/cli/part_bench_options.hpp"

#include <algorithm>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "launcher/cli/known_options.hpp"

namespace troupe {

EarlyExit refuse_bench(std::string_view message) {
  return {ExitCode::refused, fmt::format("launcher: {}\n", message), true};
}

std::optional<EarlyExit> parse_part_bench(CLI::App& app, const PartBench& bench,
                                          std::span<const std::string> arguments,
                                          PartBenchOptions& options) {
  // It comes before any complaint.
  const auto is_help = [](const std::string& given) { return given == "--help" || given == "-h"; };
  if (std::ranges::any_of(arguments, is_help)) {
    return EarlyExit{ExitCode::all_answered, bench.help_text, false};
  }
  std::vector<std::string> sets;
  app.set_help_flag();
  app.allow_extras();  // so that the nearest option can be named
  app.add_option("--config", options.config_path)->expected(1);
  app.add_option("--set", sets)->allow_extra_args(false);
  app.add_option("--json", options.json_path)->expected(1);
  try {
    // CLI11 takes a vector from its end.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Error& error) {
    return refuse_bench(fmt::format("{}; try {}", error.what(), bench.help_command));
  }
  if (const auto extras = app.remaining(); !extras.empty()) {
    const std::string name = extras.front().substr(0, extras.front().find('='));
    if (!name.starts_with('-')) {
      return refuse_bench(fmt::format("unexpected argument {}; try {}", name, bench.help_command));
    }
    return refuse_bench(about_unknown_option(name, option_names(app), bench.help_command));
  }
  if (options.config_path.empty()) {
    return refuse_bench(fmt::format("which {}? Give --config FILE, a cluster YAML", bench.subject));
  }
  for (const std::string& set : sets) {
    auto parsed = parse_override(set);
    if (!parsed.ok()) return refuse_bench(parsed.error().message);
    options.overrides.push_back(*std::move(parsed));
  }
  return std::nullopt;
}

}  // namespace troupe
