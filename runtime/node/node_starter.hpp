#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/node/node_ticket.hpp"
#include "runtime/process/child_process.hpp"

namespace troupe {

/// The first argument of a process that is an agent, whose ticket comes over stdin.
inline constexpr const char* agent_flag = "--troupe-process=agent";
/// The first argument of a process that prints its build (this_build(), hexadecimal) and ends.
inline constexpr const char* build_flag = "--troupe-process=build";

/// A started agent. The destructor kills and reaps it.
class NodeProcess {
 public:
  virtual ~NodeProcess() = default;
  virtual int pid() const = 0;
  /// Becomes readable when the agent has ended (pidfd_open(2)).
  virtual int pidfd() const = 0;
  /// Waits at most `timeout` for the agent to end; empty if it still runs. Callable from any
  /// thread.
  virtual std::optional<ExitStatus> wait(std::chrono::milliseconds timeout) = 0;
  virtual void signal(int signal_number) = 0;
  /// Gives the agent its ticket once it is being executed; before that it may have to copy the
  /// program there. Blocks; ends soon after the process has, and once the descriptor `given_up` is
  /// readable. Call once, if start() succeeded. Errors: why the agent cannot be executed there.
  virtual Result<void> give_ticket(int /*given_up*/) { return {}; }
  /// The process does not end: the destructor is to leave it alone.
  virtual void leave() {}
};

/// Copies of the program that are on their way to hosts.
struct ProgramCopies {
  std::size_t hosts = 0;
  std::uint64_t sent = 0, total = 0;  ///< bytes
};

/// Starts the agent of a node: on this machine, over ssh, in a Slurm allocation.
class NodeStarter {
 public:
  virtual ~NodeStarter() = default;
  /// Starts the agent, which gets `ticket` (at once, or by give_ticket) over a private stream that
  /// stays open: its closing tells the agent that the driver is gone. `log_path` takes the agent's
  /// stdout and stderr; empty: they are inherited. Called on a thread that outlives the agent, one
  /// for each node.
  virtual Result<std::unique_ptr<NodeProcess>> start(const NodeTicket& ticket,
                                                     const std::string& log_path) = 0;
  /// What a person can do about an agent that did not start, whose last words were `said`; empty:
  /// nothing is known.
  virtual std::string remedy(const std::string& /*node*/, const std::string& /*said*/) const {
    return "";
  }
  /// The copies that are being made now. Callable from any thread.
  virtual ProgramCopies copies() const { return {}; }
  /// True if agents are children of this process, whose unix sockets they see.
  virtual bool is_local() const = 0;
};

/// Starts agents on this machine, as children of this process.
class LocalNodeStarter final : public NodeStarter {
 public:
  Result<std::unique_ptr<NodeProcess>> start(const NodeTicket& ticket,
                                             const std::string& log_path) override;
  bool is_local() const override { return true; }
};

}  // namespace troupe
