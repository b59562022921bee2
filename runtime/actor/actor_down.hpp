#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/call/actor_address.hpp"

namespace troupe {

/// Why an actor is gone.
enum class DownCause : std::uint8_t {
  stopped,        ///< it was asked to stop (Cluster::stop or shutdown)
  exited,         ///< it called ActorContext::exit
  exit_code,      ///< its process ended with a code by itself
  signal,         ///< its process was killed by a signal
  unresponsive,   ///< its process no longer answered heartbeats and was killed
  node_lost,      ///< the agent of its node died or fell silent
  not_restarted,  ///< it could not be started again
  forgotten,      ///< it ended too long ago: only the latest ends are remembered
};
std::string_view to_string(DownCause cause);

/// The end of an actor, or of one of its incarnations; reported exactly once to each watcher.
struct ActorDown {
  ActorId id = 0;
  std::string name = {};
  std::string type = {};
  std::string node = {};
  int pid = 0;
  std::vector<int> devices = {};  ///< that it held
  DownCause cause = DownCause::stopped;
  int code = 0;                   ///< exit code or signal number, where the cause has one
  std::uint32_t incarnation = 0;  ///< which one ended
  bool restarts = false;          ///< the actor is started again, under its id and name
  /// One sentence for people: which actor, where, why, and the log's path.
  std::string message = {};
  std::string log_path = {};                ///< its process's log; empty if there is none
  std::vector<std::string> log_lines = {};  ///< the last ones, for those who have looked at it

  template <class Archive>
  void fields(Archive& archive) {
    archive(id, name, type, node, pid, devices, cause, code, incarnation, restarts, message,
            log_path, log_lines);
  }
};

}  // namespace troupe
