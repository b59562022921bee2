#include "runtime/troupe/arguments.hpp"

#include <algorithm>

#include "runtime/base/terminal_text.hpp"

namespace troupe {
namespace {

constexpr std::size_t columns = 80;

std::string program_help() {
  std::string text =
      "troupe: shows what runs on Troupe's actor runtime, and ends it.\n\n"
      "Usage: troupe COMMAND [options]\n\nCommands:\n";
  for (const auto& info : state_commands()) {
    text += two_columns(info.name, info.summary);
  }
  return text + "\ntroupe COMMAND --help tells the options of each.\n";
}

std::string command_help(const StateCommandInfo& info) {
  std::string text = paragraph(info.summary, columns);
  text += fmt::format("\nUsage: troupe {} [{}]{} [options]\n\n", info.name, info.word,
                      info.takes_several ? "..." : "");
  text += two_columns(info.word, info.word_text) + "\nOptions:\n";
  for (const auto& option : info.options) {
    std::string name(option.name);
    if (!option.short_name.empty()) name = fmt::format("{}, {}", option.short_name, name);
    if (!option.value.empty()) name += fmt::format(" {}", option.value);
    text += two_columns(name, option.text);
  }
  text += two_columns("-h, --help", "print this text");
  return text + "\n" + state_details(info, "troupe") + "\n";
}

}  // namespace

Result<std::variant<StateCommand, std::string>> parse_troupe_arguments(
    std::span<const std::string> arguments) {
  using Parsed = std::variant<StateCommand, std::string>;
  const auto commands = state_commands();
  const auto info = std::ranges::find_if(commands, [&](const auto& command) {
    return !arguments.empty() && arguments.front() == command.name;
  });
  const bool wants_help = std::ranges::any_of(
      arguments, [](const auto& word) { return word == "--help" || word == "-h"; });
  if (info == commands.end()) {
    if (arguments.empty() || wants_help || arguments.front() == "help") {
      return Parsed(program_help());
    }
    return fail(ErrorCode::invalid_argument, "unknown command {}; try troupe --help",
                arguments.front());
  }
  if (wants_help) return Parsed(command_help(*info));
  GivenState given;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!word.starts_with('-')) {
      given.words.push_back(word);
      continue;
    }
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto option = std::ranges::find_if(info->options, [&](const auto& known) {
      return name == known.name || name == known.short_name;
    });
    if (option == info->options.end()) {
      return fail(ErrorCode::invalid_argument, "unknown option {}; try troupe {} --help", name,
                  info->name);
    }
    std::string value;
    if (!option->value.empty()) {
      if (equals == word.npos && i + 1 == arguments.size()) {
        return fail(ErrorCode::invalid_argument, "{} wants a value: {} {}", name, name,
                    option->value);
      }
      value = equals == word.npos ? arguments[++i] : word.substr(equals + 1);
    } else if (equals != word.npos) {
      return fail(ErrorCode::invalid_argument, "{} takes no value", name);
    }
    given.options[std::string(option->name)] = value;
  }
  TROUPE_TRY(auto command, judge_state_command(*info, given));
  return Parsed(std::move(command));
}

}  // namespace troupe
