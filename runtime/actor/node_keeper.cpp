#include "runtime/actor/node_keeper.hpp"

#include <cerrno>
#include <csignal>

#include <poll.h>
#include <sys/eventfd.h>

#include "runtime/base/deadline.hpp"

namespace troupe {

NodeKeeper::NodeKeeper(std::shared_ptr<NodeStarter> starter, NodeTicket ticket,
                       std::string log_path, std::function<void(const std::string& how)> on_ended,
                       std::chrono::milliseconds kill_limit)
    : on_ended_(std::move(on_ended)),
      kill_limit_(kill_limit),
      given_up_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = std::thread([this, starter = std::move(starter), ticket = std::move(ticket),
                         log_path = std::move(log_path)] { run(*starter, ticket, log_path); });
}

NodeKeeper::~NodeKeeper() {
  signal(SIGKILL);
  join();
}

void NodeKeeper::run(NodeStarter& starter, const NodeTicket& ticket, const std::string& log_path) {
  auto started = starter.start(ticket, log_path);
  if (!started.ok()) return on_ended_(not_started + started.error().message);
  {
    std::lock_guard lock(mutex_);
    process_ = *std::move(started);
    if (pending_signal_ != 0) process_->signal(pending_signal_);
  }
  const auto given = process_->give_ticket(given_up_.get());
  if (!given.ok()) process_->signal(SIGKILL);
  const std::string end = wait_for_end();
  on_ended_(given.ok() ? end : not_started + given.error().message);
}

std::string NodeKeeper::wait_for_end() {
  pollfd polled[] = {{process_->pidfd(), POLLIN, 0}, {given_up_.get(), POLLIN, 0}};
  while (::poll(polled, 2, -1) < 0 && errno == EINTR) {
  }
  std::optional<ExitStatus> status = process_->wait(patience());
  const bool is_killed = !status;
  Deadline deadline(kill_limit_);
  while (!status && !deadline.is_over()) {
    process_->signal(SIGKILL);
    status = process_->wait(a_moment);
  }
  if (!status) {
    process_->leave();
    return describe("does not end although it was killed");
  }
  std::lock_guard lock(mutex_);
  if (!is_killed || why_given_up_.empty()) return describe(status->describe());
  return describe(fmt::format("was lost and killed: {}", why_given_up_));
}

std::string NodeKeeper::describe(const std::string& end) const {
  return fmt::format("(pid {}) {}", process_->pid(), end);
}

std::chrono::milliseconds NodeKeeper::patience() {
  std::lock_guard lock(mutex_);
  return patience_;
}

void NodeKeeper::give_up(std::string why, std::chrono::milliseconds patience) {
  {
    std::lock_guard lock(mutex_);
    why_given_up_ = std::move(why);
    patience_ = patience;
  }
  ::eventfd_write(given_up_.get(), 1);
}

void NodeKeeper::signal(int signal_number) {
  std::lock_guard lock(mutex_);
  if (process_) {
    process_->signal(signal_number);
  } else {
    pending_signal_ = signal_number;
  }
  if (signal_number == SIGKILL) ::eventfd_write(given_up_.get(), 1);
}

void NodeKeeper::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace troupe
