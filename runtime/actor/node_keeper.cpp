#include "runtime/actor/node_keeper.hpp"

#include <csignal>

namespace troupe {

NodeKeeper::NodeKeeper(std::shared_ptr<NodeStarter> starter, NodeTicket ticket,
                       std::string log_path, std::function<void(const std::string& how)> on_ended)
    : on_ended_(std::move(on_ended)) {
  thread_ = std::thread([this, starter = std::move(starter), ticket = std::move(ticket),
                         log_path = std::move(log_path)] { run(*starter, ticket, log_path); });
}

NodeKeeper::~NodeKeeper() {
  signal(SIGKILL);
  join();
}

void NodeKeeper::run(NodeStarter& starter, const NodeTicket& ticket, const std::string& log_path) {
  auto started = starter.start(ticket, log_path);
  if (!started.ok()) return on_ended_("could not be started: " + started.error().message);
  {
    std::lock_guard lock(mutex_);
    process_ = *std::move(started);
    if (pending_signal_ != 0) process_->signal(pending_signal_);
  }
  on_ended_(wait_for_end());
}

std::string NodeKeeper::wait_for_end() {
  constexpr std::chrono::milliseconds turn{100};
  bool warned = false;
  while (true) {
    if (const auto status = process_->wait(turn)) {
      return describe(warned ? "fell silent and was killed" : status->describe());
    }
    if (!given_up_ || warned) continue;
    if (const auto status = process_->wait(turn)) return describe(status->describe());
    warned = true;
    process_->signal(SIGKILL);
  }
}

std::string NodeKeeper::describe(const std::string& end) const {
  return fmt::format("(pid {}) {}", process_->pid(), end);
}

void NodeKeeper::give_up() { given_up_ = true; }

void NodeKeeper::signal(int signal_number) {
  std::lock_guard lock(mutex_);
  if (process_) {
    process_->signal(signal_number);
  } else {
    pending_signal_ = signal_number;
  }
}

void NodeKeeper::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace troupe
