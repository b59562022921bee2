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

/// Runs a command once its arguments are known.
using Action = std::function<ExitCode()>;

/// A command of the launcher: a row of the table that drives parsing, help and dispatch.
struct Subcommand {
  std::string_view name;     ///< its words: "bench ops"
  std::string_view summary;  ///< one sentence, for its help and the list of commands
  std::string details = {};  ///< text after the options in its help; lines of at most 80 columns
  /// Declares the options on an app. The returned function is called after the app has parsed and
  /// checks the values. Empty: a command that only has subcommands.
  std::function<std::function<Result<Action>()>(CLI::App&)> parse = {};
};

/// Makes the row of a command whose arguments are an `Arguments`: a class with `summary` and
/// `details()`, `declare(CLI::App&)`, and `judge()`, which returns a Result of the options that
/// `run` takes. `given` goes to its constructor.
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

/// Nothing is left to run: print `text` and exit with `code`. Texts end with a newline and fit 80
/// columns.
struct EarlyExit {
  ExitCode code = ExitCode::refused;
  std::string text;
  bool to_stderr = true;
};

/// Finds the command that `arguments` (without the program's name) name and reads its options.
/// Arguments that begin with an option, or none at all, belong to the first row. --help, `help` and
/// --version return an EarlyExit with code 0 for stdout, whatever else is given; a mistake returns
/// one with `refused` that says what to do, with the nearest known word for a misspelt one.
std::variant<Action, EarlyExit> parse_arguments(std::span<const Subcommand> table,
                                                std::span<const std::string> arguments);

/// The output of `launcher NAME --help`; for an empty name, of `launcher --help`.
std::string help_text(std::span<const Subcommand> table, std::string_view name);

}  // namespace troupe
