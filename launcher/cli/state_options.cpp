#include "launcher/cli/state_options.hpp"

#include <algorithm>
#include <limits>

#include <CLI/CLI.hpp>

namespace troupe {

StateArguments::StateArguments(StateCommand::Kind kind)
    : info_(&*std::ranges::find(state_commands(), kind, &StateCommandInfo::kind)) {}

void StateArguments::declare(CLI::App& app) {
  app.add_option(std::string(info_->word), words_, std::string(info_->word_text))
      ->type_name("")
      ->expected(0, info_->takes_several ? std::numeric_limits<int>::max() : 1);
  for (const StateOption& option : info_->options) {
    const std::string name(option.name);
    const std::string names =
        option.short_name.empty() ? name : fmt::format("{},{}", option.short_name, name);
    if (option.value.empty()) {
      app.add_flag(names, flags_[name], std::string(option.text));
    } else {
      app.add_option(names, values_[name], std::string(option.text))
          ->type_name(std::string(option.value))
          ->expected(1);
    }
  }
}

Result<StateCommand> StateArguments::judge() const {
  GivenState given{.options = {}, .words = words_};
  for (const auto& [name, is_given] : flags_) {
    if (is_given) given.options[name] = "";
  }
  for (const auto& [name, value] : values_) {
    if (!value.empty()) given.options[name] = value;
  }
  return judge_state_command(*info_, given);
}

}  // namespace troupe
