#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace troupe {

/// A thread, started with the first task, that runs tasks one after the other. Callable from any
/// thread.
class TaskThread {
 public:
  ~TaskThread() { stop(); }
  /// False, and the task is not run, after stop or if there can be no thread.
  bool post(std::function<void()> task);
  /// Drops what waits, and waits for the task that runs. Not from a task.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace troupe
