#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace CLI {
class App;
}

namespace troupe {

/// A way to break a job.
enum class FaultKind {
  worker,    ///< SIGKILL of a worker
  executor,  ///< SIGKILL of an executor
  stop,      ///< SIGSTOP of a worker, which falls silent
  hang,      ///< a worker's step stands still, and all else in its process goes on
  agent,     ///< SIGKILL of a node's agent; the processes that it has started end with it
  node,      ///< SIGKILL of a node's agent and all of its processes at once
  freeze,    ///< SIGSTOP of a node's agent and all of its processes; later they go on
  link,      ///< a node's network device is down for some seconds
};
/// "worker", "executor", "stop", "hang", "agent", "node", "freeze" or "link".
std::string_view to_string(FaultKind kind);

/// True if the fault takes a whole node.
bool takes_node(FaultKind kind);

/// The faults of `launcher bench faults`.
struct FaultOptions {
  std::vector<FaultKind> kinds = {};  ///< each once; empty: all that the job's nodes recover from
  std::int64_t count = 10;
  double interval_seconds = 2;   ///< mean time from one fault's next step to the next fault
  double outage_seconds = 4;     ///< of freeze and link
  std::string link_device = {};  ///< the nodes' network device, for link
  bool alters_request = false;   ///< after the undisturbed run, so that the comparison must fail
};

/// The options of `launcher bench faults` beside those of other benches.
class FaultArguments {
 public:
  void declare(CLI::App& app);
  /// Errors: invalid_argument with the option, the expected and the given value.
  Result<FaultOptions> judge() const;

 private:
  std::string kinds_;
  FaultOptions options_;
};

}  // namespace troupe
