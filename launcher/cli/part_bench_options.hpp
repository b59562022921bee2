#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/cli/command_line.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// What the benches of one part of the engine have in common: `launcher bench ops`, `collectives`
/// and `weights`.
struct PartBenchOptions {
  std::string config_path;
  std::vector<Override> overrides;
  std::string json_path;  ///< where all figures go too; empty: nowhere
};

/// How such a bench speaks of itself.
struct PartBench {
  std::string_view help_command;  ///< "launcher bench ops --help"
  std::string help_text;
  std::string_view subject;  ///< "model": what --config is there for
};

/// A mistake in a bench's arguments.
EarlyExit refuse_bench(std::string_view message);

/// Has `app`, which knows the bench's own options already, read `arguments`; --config, --set and
/// --json go to `options`. Help and mistakes come back as with parse_command_line, else nothing.
std::optional<EarlyExit> parse_part_bench(CLI::App& app, const PartBench& bench,
                                          std::span<const std::string> arguments,
                                          PartBenchOptions& options);

}  // namespace troupe
