#pragma once

#include <functional>
#include <map>
#include <string>

#include "runtime/base/deadline.hpp"
#include "runtime/control/messages.hpp"

namespace troupe {

/// The driver's questions to the processes of a node that are not answered yet: puts the answers
/// together, and gives up those that are late. Not synchronised.
class AgentInquiries {
 public:
  /// `send` gives a report to the driver.
  explicit AgentInquiries(std::function<void(NodeReport)> send) : send_(std::move(send)) {}

  /// The processes, with their names, have been asked. More than `max_open` questions at once are
  /// answered at once, with a problem.
  void begin(const AskProcesses& ask, std::map<ProcessId, std::string> asked);
  /// A process has answered, or said its last words (request 0), which are passed on.
  void take(ProcessReport report);
  /// A process has ended.
  void forget(ProcessId process);
  /// Looks at the clock.
  void tick();

  static constexpr std::size_t max_open = 64;
  /// Of a report; processes beyond it are left out as if they were silent.
  static constexpr std::size_t max_bytes = std::size_t{128} << 20;

 private:
  struct Open {
    NodeReport report;
    std::map<ProcessId, std::string> awaited;
    Deadline until;
    std::size_t bytes = 0;
  };
  using Opens = std::map<std::uint64_t, Open>;
  Opens::iterator finish(Opens::iterator open);

  const std::function<void(NodeReport)> send_;
  Opens open_;  ///< by request
};

/// The agent's steady clock.
std::int64_t agent_clock_ns();

}  // namespace troupe
