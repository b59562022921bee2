#pragma once

#include <string_view>
#include <utility>

#include "runtime/base/result.hpp"

namespace troupe {

/// Returns the id of the first thread of the process with that name (pthread_setname_np). Errors:
/// not_found.
Result<int> thread_named(int pid, std::string_view name);

/// A thread of another process that stands still while the others of its process go on (ptrace),
/// until the destructor or the end of the thread that has stopped it. Everything on that one.
class StoppedThread {
 public:
  /// Errors: permission_denied where this process may not trace the other one; not_found.
  static Result<StoppedThread> stop(int thread);
  StoppedThread(StoppedThread&& other) noexcept : thread_(std::exchange(other.thread_, 0)) {}
  StoppedThread& operator=(StoppedThread&&) = delete;
  ~StoppedThread();

  /// True once it is gone, as its process was killed. The process does not end before this has been
  /// asked.
  bool is_gone();

 private:
  explicit StoppedThread(int thread) : thread_(thread) {}

  int thread_;  ///< 0: gone
};

}  // namespace troupe
