#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <thread>

#include "runtime/control/messages.hpp"

namespace troupe {

/// Reads the stacks of an agent's processes for the driver, on threads of its own. Not
/// synchronised; the destructor waits for what is being read.
class StackReader {
 public:
  /// `send` gives a report to the driver; on any thread.
  explicit StackReader(std::function<void(NodeReport)> send) : send_(std::move(send)) {}
  ~StackReader();
  StackReader(const StackReader&) = delete;
  StackReader& operator=(const StackReader&) = delete;

  /// Reads the stacks of process `of.pid` and sends the report, or says why there is none. More
  /// than `max_running` at once are refused. The process stands still for at most `limit`.
  void begin(std::uint64_t request, ProcessReport of);

  static constexpr std::size_t max_running = 4;
  static constexpr std::chrono::milliseconds limit{4000};

 private:
  struct Work {
    std::atomic<bool> is_done = false;
    std::thread thread;
  };
  const std::function<void(NodeReport)> send_;
  std::list<Work> work_;
};

}  // namespace troupe
