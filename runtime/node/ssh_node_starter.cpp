#include "runtime/node/ssh_node_starter.hpp"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "runtime/node/ssh_start_script.hpp"
#include "runtime/node/started_node.hpp"
#include "runtime/security/handshake.hpp"

namespace troupe {

void SshNodeStarter::set_host(const std::string& node, SshHost host) {
  const std::lock_guard lock(mutex_);
  hosts_[node] = std::move(host);
}

std::optional<SshHost> SshNodeStarter::host_of(const std::string& node) const {
  const std::lock_guard lock(mutex_);
  const auto host = hosts_.find(node);
  return host == hosts_.end() ? std::nullopt : std::optional(host->second);
}

std::string SshNodeStarter::remedy(const std::string& node, const std::string& said) const {
  const auto host = host_of(node);
  if (!host) return "";
  const std::string& name = host->destination;
  const auto has = [&](std::string_view text) { return said.find(text) != said.npos; };
  if (has("no program of this build")) {
    return "install the same Troupe at the same path there, or set cluster.copy_program: true";
  }
  std::string other_cache =
      fmt::format("set XDG_CACHE_HOME for ssh {} to a folder that it can write and execute", name);
  if (has("the copy does not run there") && has("Permission denied")) return other_cache;
  if (has("the copy does not run there")) {
    return "it has another kind of CPU or an older C library: build Troupe there, or take it out "
           "of cluster.hosts";
  }
  if (has("the copy needs")) return "install it there";
  if (has("cannot write to /") || has("cannot make /") || has("cannot unpack to /") ||
      has("cannot put the copy to")) {
    return fmt::format("make room there, or {}", other_cache);
  }
  if (has("there is no program 'ssh'")) return "install OpenSSH's client here";
  if (has("others may write") || has("belongs to somebody else")) return "";
  if (has("Permission denied (")) {  // the methods that were tried
    return fmt::format("let your key in there (ssh-copy-id {}), or load it (ssh-add)", name);
  }
  if (has("Host key verification failed")) {
    return fmt::format("log in once by hand to accept its key: ssh {}", name);
  }
  if (has("Could not resolve hostname")) return "check its name in cluster.hosts";
  if (has("Connection refused")) return "start sshd there, or give its port: HOST:PORT";
  if (has("No route to host") || has("timed out") || has("Network is unreachable")) {
    return "start it, mend its network, or take it out of cluster.hosts";
  }
  if (has("not found") || has("Permission denied") || has("No such file or directory")) {
    return "install the same Troupe at the same path there";
  }
  return fmt::format("try by hand: ssh {} true", name);
}

Result<std::unique_ptr<NodeProcess>> SshNodeStarter::start(const NodeTicket& ticket,
                                                           const std::string& log_path) {
  const auto host = host_of(ticket.node);
  if (!host) {
    return fail(ErrorCode::not_found, "node '{}' has no host", ticket.node);
  }
  std::string program = options_.program;
  if (program.empty()) {
    TROUPE_TRY(program, own_program());
  }
  std::vector<std::string> arguments{
      "ssh",
      "-o",
      "BatchMode=yes",
      "-o",
      fmt::format("ConnectTimeout={}", options_.connect_timeout.count()),
      "-o",
      "ServerAliveInterval=5",
      "-o",
      "ServerAliveCountMax=3"};
  if (host->port != 0) {
    arguments.emplace_back("-p");
    arguments.push_back(std::to_string(host->port));
  }
  arguments.emplace_back("--");
  arguments.push_back(host->destination);
  const std::string build = to_hex(this_build());
  TROUPE_TRY(const std::string mark, mark_of_files(options_.copied_beside));
  arguments.push_back(ssh_start_command({.program = program,
                                         .build = build,
                                         .copy = mark.empty() ? build : build + "-" + mark,
                                         .folder = options_.folder,
                                         .environment = options_.environment}));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "cannot make the pipe from ssh");
  UniqueFd said(ends[0]);
  const UniqueFd stdout_end(ends[1]);
  ::fcntl(said.get(), F_SETFL, O_NONBLOCK);
  TROUPE_TRY(auto client, StartedNode::start({.arguments = std::move(arguments),
                                              .output_path = log_path,
                                              .program = "ssh",
                                              .stdout_fd = stdout_end.get()}));
  return std::unique_ptr<NodeProcess>(
      std::make_unique<SshNode>(std::move(client), std::move(said), ticket, source_));
}

}  // namespace troupe
