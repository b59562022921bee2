#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/node/node_ticket.hpp"
#include "runtime/process/child_process.hpp"

namespace troupe {

/// The first argument of a process that is an agent, whose ticket comes over stdin.
inline constexpr const char* agent_flag = "--troupe-process=agent";

/// A started agent. The destructor kills and reaps it.
class NodeProcess {
 public:
  virtual ~NodeProcess() = default;
  virtual int pid() const = 0;
  /// Waits at most `timeout` for the agent to end; empty if it still runs. Callable from any
  /// thread.
  virtual std::optional<ExitStatus> wait(std::chrono::milliseconds timeout) = 0;
  virtual void signal(int signal_number) = 0;
};

/// Starts the agent of a node: on this machine, over ssh, in a Slurm allocation.
class NodeStarter {
 public:
  virtual ~NodeStarter() = default;
  /// Starts the agent and gives it `ticket` over a private stream, which stays open: its end tells
  /// the agent that the driver is gone. `log_path` takes the agent's stdout and stderr; empty: they
  /// stay as they are. Called on a thread that outlives the agents, for each node on one of its
  /// own.
  virtual Result<std::unique_ptr<NodeProcess>> start(const NodeTicket& ticket,
                                                     const std::string& log_path) = 0;
  /// True if the node is on this machine and sees the same network, so that its processes and the
  /// driver's may meet at unix sockets.
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
