#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "runtime/node/node_starter.hpp"

namespace troupe {

/// Starts agents over ssh, by OpenSSH's client: the user's configuration, agent, jump hosts and
/// known hosts hold. Nobody is asked for a password (BatchMode).
///
/// The ticket goes over the client's stdin. The agent sees the end of that when the client ends,
/// but the end of the client proves nothing about the agent: it ends by itself once it has lost the
/// driver.
class SshNodeStarter final : public NodeStarter {
 public:
  struct Options {
    /// The program of the agents on every host; empty: where this one is here.
    std::string program;
    /// "host" or "user@host" as ssh takes it, of each node.
    std::map<std::string, std::string> host_of_node;
    /// For ssh, in front of the host: {"-p", "2222"}.
    std::vector<std::string> ssh_options;
    std::chrono::seconds connect_timeout{10};
    /// NAME=VALUE, told to the agents and so to their processes.
    std::vector<std::string> environment;
  };
  explicit SshNodeStarter(Options options) : options_(std::move(options)) {}

  Result<std::unique_ptr<NodeProcess>> start(const NodeTicket& ticket,
                                             const std::string& log_path) override;
  bool is_local() const override { return false; }

 private:
  const Options options_;
};

/// `text` as one word for a POSIX shell.
std::string quote_for_shell(std::string_view text);

}  // namespace troupe
