#include "runtime/object/task_thread.hpp"

#include <system_error>
#include <utility>

namespace troupe {

bool TaskThread::post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (is_stopping_) return false;
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      return false;
    }
  }
  tasks_.push_back(std::move(task));
  changed_.notify_one();
  return true;
}

void TaskThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_stopping_ || !tasks_.empty(); });
    if (is_stopping_) return;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

void TaskThread::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    dropped.swap(tasks_);
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace troupe
