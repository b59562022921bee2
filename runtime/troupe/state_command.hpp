#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// What `troupe COMMAND` is to do.
struct StateCommand {
  enum class Kind {
    status,
    nodes,
    actors,
    groups,
    objects,
    logs,
    metrics,
    stack,
    timeline,
    drain,
    join,
    stop
  };
  Kind kind = Kind::status;
  std::string cluster;             ///< name, pid, HOST:PID or id; empty: the only one
  std::vector<std::string> logs;   ///< of `logs`: whose; empty: list them
  std::string node;                ///< of `drain`
  std::vector<std::string> hosts;  ///< of `join`
  bool stays = true;               ///< of `join` in an allocation of Slurm: as long as its nodes do
  bool json = false;
  bool follows = false;
  bool cleans = false;                 ///< of `status`: the file of `cluster`, which is named, goes
  std::uint64_t limit = 1000;          ///< of lists of actors or objects: the first ones; 0: all
  std::uint32_t ended = 10;            ///< of `actors`: so many that have ended
  std::optional<std::uint64_t> lines;  ///< of `logs`: the last ones; none: all
  std::chrono::seconds wait{60};       ///< of `stop`
  std::string actor;                   ///< of `stack`
  std::optional<std::uint16_t> listen;  ///< of `metrics`: serve them at this port; 0: any
  std::string address = "127.0.0.1";    ///< of `metrics`: where it listens
  std::string output = "trace.json";    ///< of `timeline`
  std::chrono::seconds seconds{5};      ///< of `timeline`
  std::string folder;                   ///< of the cluster files; empty: cluster_folder()
};

/// An option of a command, as help and parsers have it.
struct StateOption {
  std::string_view name;        ///< "--lines"
  std::string_view short_name;  ///< "-n"; empty: none
  std::string_view value;       ///< "N"; empty: a flag
  std::string_view text;
};

/// A command, as help and parsers have it: those of `troupe` and of programs that take the same
/// commands among their own.
struct StateCommandInfo {
  StateCommand::Kind kind;
  std::string_view name;
  std::string_view summary;    ///< one sentence
  std::string_view word;       ///< the argument, which may be left out: "CLUSTER"
  bool takes_several;          ///< of these arguments
  std::string_view word_text;  ///< its meaning
  std::vector<StateOption> options;
  std::string_view details;  ///< lines of at most 80 columns; %s stands for the program
};
std::span<const StateCommandInfo> state_commands();

/// What was given.
struct GivenState {
  std::map<std::string, std::string, std::less<>> options;  ///< by name; a flag's value is ""
  std::vector<std::string> words;                           ///< the arguments
};

/// Errors: invalid_argument names the option, and what its value must be.
Result<StateCommand> judge_state_command(const StateCommandInfo& info, const GivenState& given);

/// The text after the options in a command's help.
std::string state_details(const StateCommandInfo& info, std::string_view program);

}  // namespace troupe
