#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/node/node_starter.hpp"
#include "runtime/node/ssh_node.hpp"

namespace troupe {

/// A host as ssh takes it.
struct SshHost {
  std::string destination;  ///< "host" or "user@host", as the user's ssh configuration knows it
  std::uint16_t port = 0;   ///< 0: ssh's choice
};

/// Starts agents over ssh, by OpenSSH's client: the user's configuration, agent, jump hosts and
/// known hosts hold. Nobody is asked for a password (BatchMode).
///
/// The ticket goes over the client's stdin. The agent sees the end of that when the client ends,
/// but the end of the client proves nothing about the agent: it ends by itself once it has lost the
/// driver.
class SshNodeStarter final : public NodeStarter {
 public:
  struct Options {
    /// The program of the agents on every host; empty: where this one is here. A host where that is
    /// not this build uses the copy of an earlier job in the user's cache (ssh_start_command).
    std::string program;
    /// Hosts without either get a copy.
    bool copies_program = true;
    std::vector<std::string> copied_beside;  ///< see ProgramArchive::make
    /// The folder that agents are to run in, if it is there too; empty: the user's home.
    std::string folder;
    std::map<std::string, SshHost> host_of_node;
    std::chrono::seconds connect_timeout{10};
    /// NAME=VALUE, told to the agents and so to their processes.
    std::vector<std::string> environment;
  };
  explicit SshNodeStarter(Options options)
      : options_(std::move(options)),
        hosts_(options_.host_of_node),
        source_(options_.copies_program ? std::make_shared<ProgramSource>(options_.copied_beside)
                                        : nullptr) {}

  /// The node is on that host from now on. Callable from any thread.
  void set_host(const std::string& node, SshHost host);
  Result<std::unique_ptr<NodeProcess>> start(const NodeTicket& ticket,
                                             const std::string& log_path) override;
  std::string remedy(const std::string& node, const std::string& said) const override;
  ProgramCopies copies() const override { return source_ ? source_->copies() : ProgramCopies{}; }
  bool is_local() const override { return false; }

 private:
  std::optional<SshHost> host_of(const std::string& node) const;

  const Options options_;
  mutable std::mutex mutex_;              ///< of hosts_
  std::map<std::string, SshHost> hosts_;  ///< by node
  const std::shared_ptr<ProgramSource> source_;
};

}  // namespace troupe
