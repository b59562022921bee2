#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "launcher/cli/bench_options.hpp"
#include "launcher/cli/exit_code.hpp"
#include "launcher/config/cluster_config.hpp"
#include "runtime/base/log.hpp"

namespace troupe {

/// What the person asked for.
struct CommandLine {
  enum class Command {
    run,    ///< launcher --config FILE
    check,  ///< launcher check --config FILE: say what would run, start nothing
    bench,  ///< launcher bench KIND --config FILE: measure
  };
  Command command = Command::run;
  std::string config_path;
  /// Those of --set in the order given, then those of --input, --output and --resume: pass them to
  /// load_config.
  std::vector<Override> overrides;
  bool overwrite = false;     ///< an output file that has content may be replaced
  bool resume_asked = false;  ///< a job that cannot be gone on with is refused
  /// Error lines of earlier runs that are asked again: of these codes, all if there are none.
  std::optional<std::vector<std::string>> retry_errors = {};
  bool quiet = false;             ///< no progress; errors still go to stderr
  bool json_progress = false;     ///< progress as JSON lines, for programs
  std::int64_t show_answers = 0;  ///< how many answers to print on stdout at the end
  log::Level log_level = log::Level::info;
  BenchOptions bench;  ///< of Command::bench
};

/// The command line is dealt with: print `text` and end with `code`. Texts end with a newline and
/// fit 80 columns.
struct EarlyExit {
  ExitCode code = ExitCode::refused;
  std::string text;
  bool to_stderr = true;
};

/// Reads `arguments` (without the program's name). --help and --version come back as an EarlyExit
/// with code 0 for stdout; a mistake as one with `refused` that says what to do, with the nearest
/// known option for one that is misspelt.
std::variant<CommandLine, EarlyExit> parse_command_line(std::span<const std::string> arguments);

/// What --help and --version print.
std::string help_text();
std::string version_text();

}  // namespace troupe
