#include "launcher/cli/subcommand.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/cli/help_formatter.hpp"
#include "launcher/cli/version.hpp"
#include "launcher/config/nearest.hpp"

namespace troupe {
namespace {

constexpr std::string_view program = "launcher";

EarlyExit refuse(std::string_view message) {
  return {ExitCode::refused, fmt::format("launcher: {}\n", message), true};
}

bool is_option(std::string_view argument) { return argument.starts_with('-'); }
bool asks_for_help(std::string_view argument) { return argument == "--help" || argument == "-h"; }
/// True if words may stand behind the command's options.
bool takes_words(const CLI::App& app) {
  return std::ranges::any_of(app.get_options(),
                             [](auto* option) { return option->get_positional(); });
}
bool asks_for_version(std::string_view argument) { return argument == "--version"; }

/// "bench" for "bench ops"; empty for a top-level command.
std::string_view parent_of(std::string_view name) {
  const auto space = name.rfind(' ');
  return space == name.npos ? std::string_view{} : name.substr(0, space);
}

std::string_view last_word_of(std::string_view name) { return name.substr(name.rfind(' ') + 1); }

std::string joined(std::string_view a, std::string_view b) {
  return a.empty() || b.empty() ? fmt::format("{}{}", a, b) : fmt::format("{} {}", a, b);
}

/// The table as CLI11 apps: one for each row, below that of its parent.
class Commands {
 public:
  explicit Commands(std::span<const Subcommand> table) : table_(table) {
    for (const Subcommand& row : table) add(row);
  }

  std::variant<Action, EarlyExit> parse(std::vector<std::string> arguments);
  std::string help(std::string_view name) const;

 private:
  using Judge = std::function<Result<Action>()>;

  struct Command {
    const Subcommand* row = nullptr;
    CLI::App* app = nullptr;
    Judge judge;
  };

  void add(const Subcommand& row) {
    CLI::App* app = &root_;
    if (!row.name.empty()) {
      app = find(parent_of(row.name))->app->add_subcommand(std::string(last_word_of(row.name)));
    }
    app->group("Commands");
    app->description(std::string(row.summary));
    app->footer(row.details);
    app->allow_extras();  // so that the nearest option can be suggested
    app->set_help_flag("-h,--help", "print this text");
    app->require_subcommand(0, 1);
    format_help(*app);
    if (row.name.empty()) {
      app->name(std::string(program));
      app->set_version_flag("--version", std::string(program_version()), "print the version");
    }
    commands_.push_back({&row, app, row.parse ? row.parse(*app) : Judge()});
  }

  const Command* find(std::string_view name) const {
    const auto found =
        std::ranges::find(commands_, name, [](const Command& c) { return c.row->name; });
    return found == commands_.end() ? nullptr : &*found;
  }

  /// The command named by the first words of `arguments`; the program itself if there is none.
  const Command& named(std::span<const std::string> arguments) const {
    const Command* command = find("");
    for (const std::string& word : arguments) {
      const Command* next = find(joined(command->row->name, word));
      if (next == nullptr) break;
      command = next;
    }
    return *command;
  }

  std::vector<std::string_view> words_below(std::string_view name) const;
  std::string about_unknown_option(const Command& command, std::string_view option) const;
  std::string about_unexpected(const Command& command, const std::string& argument) const;
  static std::string help_command(const Command& command) {
    return joined(program, joined(command.row->name, "--help"));
  }

  std::span<const Subcommand> table_;
  CLI::App root_;
  std::vector<Command> commands_;
};

std::string Commands::help(std::string_view name) const {
  const Command* command = find(name);
  if (command == nullptr) return {};
  const std::string above = name.empty() ? "" : joined(program, parent_of(name));
  return CLI::detail::find_and_replace(command->app->help(above), "\n\n\n", "\n\n");
}

std::vector<std::string_view> Commands::words_below(std::string_view name) const {
  std::vector<std::string_view> words;
  for (const Subcommand& row : table_) {
    if (!row.name.empty() && parent_of(row.name) == name) words.push_back(last_word_of(row.name));
  }
  return words;
}

std::string Commands::about_unknown_option(const Command& command, std::string_view option) const {
  const std::string given(option);
  std::vector<std::string> owners;
  for (const Command& other : commands_) {
    if (other.app->get_option_no_throw(given) != nullptr && !other.row->name.empty()) {
      owners.push_back(fmt::format("{} {}", program, other.row->name));
    }
  }
  const std::string name = joined(program, command.row->name);
  if (!owners.empty()) {
    return fmt::format("{} is not an option of {}, but of {}", option, name,
                       fmt::join(owners, ", "));
  }
  std::vector<std::string> names;
  for (const CLI::Option* known : command.app->get_options()) names.push_back(known->get_name());
  const auto near = nearest(option, std::vector<std::string_view>(names.begin(), names.end()));
  if (near.empty()) return fmt::format("unknown option {}; try {}", option, help_command(command));
  return fmt::format("unknown option {}; did you mean {}?", option, near);
}

std::string Commands::about_unexpected(const Command& command, const std::string& argument) const {
  const auto words = words_below(command.row->name);
  if (argument.ends_with(".yaml") || argument.ends_with(".yml")) {
    return fmt::format("{} needs --config before it: --config {}", argument, argument);
  }
  if (!words.empty()) {
    const auto near = nearest(argument, words);
    const std::string given = joined(command.row->name, argument);
    if (near.empty()) {
      return fmt::format("unknown command {}; known are {}", given, fmt::join(words, ", "));
    }
    return fmt::format("unknown command {}; did you mean {}?", given,
                       joined(command.row->name, near));
  }
  std::error_code ignored;
  if (command.app->get_option_no_throw("--model") != nullptr &&
      std::filesystem::is_directory(argument, ignored)) {
    return fmt::format("{} needs --model before it: --model {}", argument, argument);
  }
  return fmt::format("unexpected argument {}; try {}", argument, help_command(command));
}

std::variant<Action, EarlyExit> Commands::parse(std::vector<std::string> arguments) {
  if (!arguments.empty() && arguments.front() == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  const bool names_none = arguments.empty() || is_option(arguments.front());
  if (names_none && (arguments.empty() || !asks_for_help(arguments.front()))) {
    const auto first = std::ranges::find_if(table_, [](auto& row) { return !row.name.empty(); });
    arguments.insert(arguments.begin(), std::string(first->name));
  }
  const Command& command = named(arguments);
  // Before any error.
  if (std::ranges::any_of(arguments, asks_for_help)) {
    return EarlyExit{ExitCode::all_answered, help(command.row->name), false};
  }
  if (std::ranges::any_of(arguments, asks_for_version)) {
    return EarlyExit{ExitCode::all_answered, fmt::format("{}\n", program_version()), false};
  }
  try {
    std::ranges::reverse(arguments);  // CLI11 takes a vector in reverse
    root_.parse(std::move(arguments));
  } catch (const CLI::Error& error) {
    return refuse(fmt::format("{}; try {}", error.what(), help_command(command)));
  }
  auto extras = command.app->remaining();
  if (takes_words(*command.app)) std::erase(extras, "--");  // which CLI11 leaves there
  if (!extras.empty()) {
    const std::string name = extras.front().substr(0, extras.front().find('='));
    return refuse(is_option(name) ? about_unknown_option(command, name)
                                  : about_unexpected(command, extras.front()));
  }
  if (!command.judge) {
    return refuse(fmt::format("{} what? {}; try {}", command.row->name,
                              fmt::join(words_below(command.row->name), ", "),
                              help_command(command)));
  }
  auto action = command.judge();
  if (!action.ok()) return refuse(action.error().message);
  return *std::move(action);
}

}  // namespace

std::variant<Action, EarlyExit> parse_arguments(std::span<const Subcommand> table,
                                                std::span<const std::string> arguments) {
  return Commands(table).parse({arguments.begin(), arguments.end()});
}

std::string help_text(std::span<const Subcommand> table, std::string_view name) {
  return Commands(table).help(name);
}

}  // namespace troupe
