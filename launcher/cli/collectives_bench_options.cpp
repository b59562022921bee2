#include "launcher/cli/collectives_bench_options.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "launcher/cli/known_options.hpp"

namespace troupe {
namespace {

constexpr std::string_view help_command = "launcher bench collectives --help";
constexpr std::int64_t bytes_of_word = 8;  // of which every message is made
constexpr std::int64_t most_bytes = std::int64_t{1} << 30;

EarlyExit refuse(std::string_view message) {
  return {ExitCode::refused, fmt::format("launcher: {}\n", message), true};
}

bool asks_for_help(std::span<const std::string> arguments) {
  return std::ranges::any_of(
      arguments, [](const std::string& given) { return given == "--help" || given == "-h"; });
}

}  // namespace

std::variant<CollectivesBenchOptions, EarlyExit> parse_collectives_bench_options(
    std::span<const std::string> arguments) {
  if (asks_for_help(arguments)) {
    return EarlyExit{ExitCode::all_answered, collectives_bench_help_text(), false};
  }
  CollectivesBenchOptions options;
  std::vector<std::string> sets;
  CLI::App app;
  app.set_help_flag();  // help is ours: it comes before any other complaint
  app.allow_extras();   // so that the nearest option can be named
  app.add_option("--config", options.config_path)->expected(1);
  app.add_option("--set", sets)->allow_extra_args(false);
  app.add_option("--bytes", options.bytes)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(bytes_of_word, most_bytes));
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
  if (options.config_path.empty()) {
    return refuse("which topology? Give --config FILE, a cluster YAML");
  }
  const auto odd = std::ranges::find_if(
      options.bytes, [](std::int64_t bytes) { return bytes % bytes_of_word != 0; });
  if (odd != options.bytes.end()) {
    return refuse(fmt::format("--bytes {}: expected a multiple of {}", *odd, bytes_of_word));
  }
  for (const std::string& set : sets) {
    auto parsed = parse_override(set);
    if (!parsed) return refuse(parsed.error().message);
    options.overrides.push_back(std::move(*parsed));
  }
  std::ranges::sort(options.bytes);
  const auto same = std::ranges::unique(options.bytes);
  options.bytes.erase(same.begin(), same.end());
  return options;
}

std::string collectives_bench_help_text() {
  return R"(launcher bench collectives --config FILE [options]: times what the workers
of FILE's topology would tell each other, on its device: sums, gathers and
exchanges within a tensor group, exchanges between the ranks that experts are
dealt to, messages from stage to stage. Starts no engine and reads no weights;
a thread stands for each rank, and one group is timed at a time.

The bus bandwidth is what a ring would have to carry of the bytes: of a sum 2
(n - 1) / n of them, of what is only moved (n - 1) / n, of a message all. It is
set beside what one large message between two ranks reaches on GPUs, and a copy
of memory on a CPU. On GPUs the table has NCCL's own sums of the same run.

  --config FILE     the topology, the device and the model's dtype
  --set KEY=VALUE   a key of the YAML by its dotted name; may be given often
  --bytes LIST      sizes (8,64,512,4096 and on to 67108864)
  --seconds S       about how long each is timed for (0.05)
  --json FILE       all figures, for programs
  -h, --help        print this text
)";
}

}  // namespace troupe
