#include "launcher/cli/weights_bench_options.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "launcher/cli/known_options.hpp"

namespace troupe {
namespace {

constexpr std::string_view help_command = "launcher bench weights --help";

EarlyExit refuse(std::string_view message) {
  return {ExitCode::refused, fmt::format("launcher: {}\n", message), true};
}

}  // namespace

std::variant<WeightsBenchOptions, EarlyExit> parse_weights_bench_options(
    std::span<const std::string> arguments) {
  const auto is_help = [](const std::string& given) { return given == "--help" || given == "-h"; };
  if (std::ranges::any_of(arguments, is_help)) {
    return EarlyExit{ExitCode::all_answered, weights_bench_help_text(), false};
  }
  WeightsBenchOptions options;
  std::vector<std::string> sets;
  CLI::App app;
  app.set_help_flag();  // help is ours: it comes before any other complaint
  app.allow_extras();   // so that the nearest option can be named
  app.add_option("--config", options.config_path)->expected(1);
  app.add_option("--set", sets)->allow_extra_args(false);
  app.add_option("--make", options.make_folder)->expected(1);
  app.add_option("--repeat", options.repeat)->check(CLI::Range(1, 1000));
  app.add_flag("--cold", options.cold);
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
  return options;
}

std::string weights_bench_help_text() {
  return R"(launcher bench weights --config FILE [options]: reads the weights of FILE's
model into the memory of one device, as a worker of it that is alone does, and
tells how fast, beside what bounds it: a copy of page-locked memory to the
device, and a plain reading of the same files by as many threads.

  --config FILE     the model, its dtype and the device
  --set KEY=VALUE   a key of the YAML by its dotted name; may be given often
  --make FOLDER     first write a checkpoint of the model's shapes into FOLDER,
                    with random numbers, and read that: for a model of which
                    there is only its config.json. Not a model's own folder
  --repeat N        how often they are read (3)
  --cold            drop the files from the page cache before each reading
  --json FILE       all figures, for programs
  -h, --help        print this text
)";
}

}  // namespace troupe
