#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include <sys/eventfd.h>

#include "runtime/control/messages.hpp"
#include "runtime/process/unique_fd.hpp"

namespace troupe {

/// Messages from the control client's thread to the agent's, with an eventfd to poll. An agent that
/// leaves `max_messages` unread counts as one that has lost its driver.
class Inbox {
 public:
  static constexpr std::size_t max_messages = 100'000;
  Inbox() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  int fd() const { return wake_.get(); }
  void push(ControlMessage message) {
    std::lock_guard lock(mutex_);
    if (messages_.size() < max_messages) {
      messages_.push_back(std::move(message));
    } else {
      driver_lost_ = "this agent has not read its messages";
    }
    ::eventfd_write(wake_.get(), 1);
  }
  void lose_driver(const std::string& why) {
    std::lock_guard lock(mutex_);
    driver_lost_ = why;
    ::eventfd_write(wake_.get(), 1);
  }
  /// The reason, if the driver is lost.
  std::optional<std::string> driver_lost() const {
    std::lock_guard lock(mutex_);
    return driver_lost_;
  }
  std::optional<ControlMessage> take() {
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
    std::lock_guard lock(mutex_);
    if (messages_.empty()) return std::nullopt;
    ControlMessage message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }

 private:
  UniqueFd wake_;
  mutable std::mutex mutex_;
  std::deque<ControlMessage> messages_;
  std::optional<std::string> driver_lost_;
};

}  // namespace troupe
