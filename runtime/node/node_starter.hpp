#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/call/codec.hpp"
#include "runtime/process/child_process.hpp"

namespace troupe {

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
  /// Starts the agent and sends it `bootstrap` (which holds the job's secret) over a private
  /// channel that stays open: its closing tells the agent that the driver is gone. `log_path` takes
  /// the agent's stdout and stderr; empty: they are inherited. Called on a thread that outlives the
  /// agents.
  virtual Result<std::unique_ptr<NodeProcess>> start(const std::string& node,
                                                     const Bytes& bootstrap,
                                                     const std::string& log_path) = 0;
};

/// Starts agents on this machine, as children of this process.
class LocalNodeStarter final : public NodeStarter {
 public:
  Result<std::unique_ptr<NodeProcess>> start(const std::string& node, const Bytes& bootstrap,
                                             const std::string& log_path) override;
};

}  // namespace troupe
