#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/troupe/state_command.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// The arguments of the launcher's commands that are those of `troupe`: status, actors, ...
class StateArguments {
 public:
  explicit StateArguments(StateCommand::Kind kind);

  std::string_view summary() const { return info_->summary; }
  std::string details() const { return state_details(*info_, "launcher"); }
  void declare(CLI::App& app);
  Result<StateCommand> judge() const;

 private:
  const StateCommandInfo* info_;
  std::vector<std::string> words_;
  std::map<std::string, bool> flags_;
  std::map<std::string, std::string> values_;
};

}  // namespace troupe
