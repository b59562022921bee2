#pragma once

#include <memory>
#include <mutex>

#include "runtime/node/log_relay.hpp"
#include "runtime/node/node_starter.hpp"
#include "runtime/process/child_process.hpp"

namespace troupe {

/// A child of this process that is an agent, or a client (ssh, srun) that has one started
/// elsewhere and hands its own stdin on to it.
class StartedNode final : public NodeProcess {
 public:
  /// Starts the child with one end of a socketpair as its stdin, and sends `ticket`: one line, a
  /// ticket's text or a MUNGE credential of it. The other end stays open as long as this object
  /// lives. What another program than this one says goes to options.output_path by a LogRelay.
  static Result<std::unique_ptr<NodeProcess>> start(std::string ticket, ChildOptions options);
  /// The same without a ticket, which send is to follow with.
  static Result<std::unique_ptr<StartedNode>> start(ChildOptions options);

  StartedNode(ChildProcess process, UniqueFd input, std::unique_ptr<LogRelay> log)
      : log_(std::move(log)), process_(std::move(process)), input_(std::move(input)) {}
  int pid() const override { return process_.pid(); }
  int pidfd() const override { return process_.pidfd(); }
  std::optional<ExitStatus> wait(std::chrono::milliseconds timeout) override;
  void signal(int signal_number) override { process_.signal(signal_number); }
  void leave() override { process_.leave(); }
  /// Sends a short line; an end that is closed is no error. Errors: io.
  Result<void> send(std::string_view line);
  int input() const { return input_.get(); }  ///< this end of its stdin

 private:
  std::mutex mutex_;
  std::unique_ptr<LogRelay> log_;  ///< null: the child writes its log itself
  ChildProcess process_;
  UniqueFd input_;
};

}  // namespace troupe
