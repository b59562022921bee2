#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/process/child_process.hpp"

namespace troupe {

/// Starts children on a thread of its own, one after the other, for a loop that must not be held:
/// vfork lets its thread wait until the child has executed its program, which takes 0.5 ms on an
/// idle machine and 2 to 16 ms on a busy one. The thread lasts as long as this object, and so may
/// the children (see ChildProcess); it begins with the first start.
class ChildStarter {
 public:
  ChildStarter();
  ~ChildStarter() { stop(); }
  ChildStarter(const ChildStarter&) = delete;
  ChildStarter& operator=(const ChildStarter&) = delete;

  /// Readable (poll) when take() has something.
  int fd() const { return wake_.get(); }
  /// Starts the thread, which has the scheduling of the calling one, and so have the children.
  /// Once. Errors: resource_exhausted.
  Result<void> begin();
  /// Queues a start and returns at once; after begin(). `inherited` becomes `options.inherited_fd`,
  /// and is closed here once the child has it. Nothing is started after stop().
  void start(std::uint64_t tag, ChildOptions options, UniqueFd inherited);

  struct Started {
    std::uint64_t tag = 0;
    Result<ChildProcess> process;
  };
  /// The starts that are done since the last call, in their order.
  std::vector<Started> take();
  /// Ends the thread after the start that it is at; its children get SIGKILL. The starts that wait
  /// are dropped. Idempotent.
  void stop();

 private:
  struct Order {
    std::uint64_t tag = 0;
    ChildOptions options;
    UniqueFd inherited;
  };

  void run();

  UniqueFd wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  std::deque<Order> orders_;
  std::vector<Started> done_;
  std::thread thread_;
};

}  // namespace troupe
