#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "launcher/cli/exit_code.hpp"
#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// What a command does once its arguments are known.
using Action = std::function<ExitCode()>;

/// A command of the launcher: a row of the table that parsing, help and dispatch are made from.
struct Subcommand {
  std::string_view name;     ///< its words: "bench ops"
  std::string_view summary;  ///< one sentence, for its help and the list of commands
  std::string details = {};  ///< what follows the options in its help; lines of at most 80 columns
  /// Declares the options on an app. The function it returns is called after the app has parsed and
  /// checks what was given. Empty: a command that only has others below it.
  std::function<std::function<Result<Action>()>(CLI::App&)> parse = {};
};

/// The row of a command whose arguments are an `Arguments`: a class with `summary` and `details()`,
/// `declare(CLI::App&)`, and `judge()`, which returns a Result of the options that `run` takes.
/// `given` goes to its constructor.
template <class Arguments, class Run, class... Given>
Subcommand subcommand(std::string_view name, Run run, Given... given) {
  const Arguments described(given...);
  return {name, described.summary(), described.details(), [=](CLI::App& app) {
            auto arguments = std::make_shared<Arguments>(given...);
            arguments->declare(app);
            return [arguments, run]() -> Result<Action> {
              auto options = arguments->judge();
              if (!options.ok()) return std::move(options).error();
              return Action([run, chosen = *std::move(options)] { return run(chosen); });
            };
          }};
}

/// The command line is dealt with: print `text` and end with `code`. Texts end with a newline and
/// fit 80 columns.
struct EarlyExit {
  ExitCode code = ExitCode::refused;
  std::string text;
  bool to_stderr = true;
};

/// Finds the command that `arguments` (without the program's name) name and reads its options.
/// Arguments that begin with an option, or none at all, belong to the first row. --help, `help` and
/// --version come back as an EarlyExit with code 0 for stdout, whatever else is given; a mistake as
/// one with `refused` that says what to do, with the nearest known word for one that is misspelt.
std::variant<Action, EarlyExit> parse_arguments(std::span<const Subcommand> table,
                                                std::span<const std::string> arguments);

/// What `launcher NAME --help` prints; an empty name: `launcher --help`.
std::string help_text(std::span<const Subcommand> table, std::string_view name);

}  // namespace troupe
