#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/node/node_starter.hpp"
#include "runtime/node/program_archive.hpp"
#include "runtime/node/started_node.hpp"

namespace troupe {

/// The program for hosts that do not have it, packed when the first of them is found, and the
/// copies that are on their way. Callable from any thread.
class ProgramSource {
 public:
  /// `beside`: see ProgramArchive::make.
  explicit ProgramSource(std::vector<std::string> beside) : beside_(std::move(beside)) {}

  /// Errors: those of ProgramArchive::make.
  Result<const ProgramArchive*> archive();
  ProgramCopies copies() const { return {hosts_, sent_, total_}; }

 private:
  friend class SshNode;

  /// Counts a copy while it lives.
  class Copy {
   public:
    explicit Copy(ProgramSource& source) : source_(source) { ++source_.hosts_; }
    ~Copy() { --source_.hosts_; }
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;

   private:
    ProgramSource& source_;
  };

  const std::vector<std::string> beside_;
  std::mutex mutex_;
  std::optional<Result<ProgramArchive>> archive_;
  std::atomic<std::size_t> hosts_ = 0;
  std::atomic<std::uint64_t> sent_ = 0, total_ = 0;
};

/// An ssh client that runs ssh_start_command, and the agent that this becomes.
class SshNode final : public NodeProcess {
 public:
  /// `source` is null if the program is not to be copied. `said`: the client's stdout, which
  /// does not block.
  SshNode(std::unique_ptr<StartedNode> client, UniqueFd said, NodeTicket ticket,
          std::shared_ptr<ProgramSource> source)
      : client_(std::move(client)),
        said_(std::move(said)),
        ticket_(std::move(ticket)),
        source_(std::move(source)) {}

  int pid() const override { return client_->pid(); }
  int pidfd() const override { return client_->pidfd(); }
  std::optional<ExitStatus> wait(std::chrono::milliseconds timeout) override {
    return client_->wait(timeout);
  }
  void signal(int signal_number) override { client_->signal(signal_number); }
  void leave() override { client_->leave(); }
  Result<void> give_ticket(int given_up) override;

 private:
  enum class Wait { ready, given_up, timed_out };
  /// Waits until the descriptor is ready or the client has ended.
  Wait wait_until_ready(int fd, short events,
                        const std::optional<std::chrono::seconds>& timeout) const;
  /// Returns the next line that begins with "troupe: ", without that; empty if the client has
  /// closed its stdout or is given up. Errors: timed_out; io for a host that says too much.
  Result<std::string> next_line(const std::optional<std::chrono::seconds>& timeout);
  /// Returns what the host says of the copy. Errors: timed_out; those of ProgramSource.
  Result<std::string> copy_program();
  Result<void> send_archive(const ProgramArchive& archive);

  const std::unique_ptr<StartedNode> client_;
  const UniqueFd said_;
  NodeTicket ticket_;
  const std::shared_ptr<ProgramSource> source_;
  int given_up_ = -1;   ///< a descriptor that is readable once the node is given up
  std::string unread_;  ///< behind the last line
};

}  // namespace troupe
