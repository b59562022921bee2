#include "runtime/actor/restart_timer.hpp"

#include <utility>

namespace troupe {

RestartTimer::RestartTimer(std::function<void(const DueRestart&)> restart)
    : restart_(std::move(restart)), thread_([this] { run(); }) {}

RestartTimer::~RestartTimer() { stop(); }

void RestartTimer::add(const DueRestart& restart) {
  std::lock_guard lock(mutex_);
  due_.emplace(restart.due, restart);
  changed_.notify_all();
}

void RestartTimer::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void RestartTimer::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (due_.empty()) {
      changed_.wait(lock);
    } else if (const auto first = due_.begin(); first->first > Clock::now()) {
      changed_.wait_until(lock, first->first);
    } else {
      const DueRestart restart = first->second;
      due_.erase(first);
      lock.unlock();
      restart_(restart);
      lock.lock();
    }
  }
}

}  // namespace troupe
