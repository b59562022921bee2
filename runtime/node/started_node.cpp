#include "runtime/node/started_node.hpp"

#include <cerrno>
#include <utility>

#include <sys/socket.h>

namespace troupe {

Result<std::unique_ptr<StartedNode>> StartedNode::start(ChildOptions options) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail_errno(errno, "cannot make the socketpair to an agent");
  }
  UniqueFd own(ends[0]);
  const UniqueFd childs(ends[1]);
  options.input_fd = childs.get();
  std::unique_ptr<LogRelay> log;
  if (!options.program.empty() && !options.output_path.empty()) {
    TROUPE_TRY(log, LogRelay::start(std::exchange(options.output_path, {})));
    options.output_fd = log->input();
  }
  TROUPE_TRY(auto process, ChildProcess::start(options));
  if (log) log->close_input();
  return std::make_unique<StartedNode>(std::move(process), std::move(own), std::move(log));
}

Result<std::unique_ptr<NodeProcess>> StartedNode::start(std::string ticket, ChildOptions options) {
  TROUPE_TRY(auto node, start(std::move(options)));
  const auto sent = node->send(ticket);
  wipe(std::as_writable_bytes(std::span(ticket)));
  TROUPE_CHECK(sent);
  return std::unique_ptr<NodeProcess>(std::move(node));
}

Result<void> StartedNode::send(std::string_view line) {
  const ssize_t sent = ::send(input_.get(), line.data(), line.size(), MSG_NOSIGNAL);  // it has room
  if (sent < 0 && errno != EPIPE) return fail_errno(errno, "cannot write to an agent");
  return {};
}

std::optional<ExitStatus> StartedNode::wait(std::chrono::milliseconds timeout) {
  std::lock_guard lock(mutex_);
  auto status = process_.wait(timeout);
  if (status && log_) log_->finish();
  return status;
}

}  // namespace troupe
