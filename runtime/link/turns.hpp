#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace troupe {

/// Decides which thread runs a loop: the loop's own thread, or another one that takes a turn. One
/// thread runs it at a time. After a turn the own thread rests for `rest`, since a thread that has
/// taken one mostly takes the next one soon, and a hand-over costs two wake-ups. What is to be done
/// ends the rest.
///
/// Functions are callable from any thread.
class Turns {
 public:
  explicit Turns(std::chrono::milliseconds rest = std::chrono::milliseconds(10)) : rest_(rest) {}

  /// `wake_fd`: an eventfd that interrupts the loop's wait.
  void set_wake_fd(int wake_fd) { wake_fd_ = wake_fd; }

  /// Interrupts the own thread and waits until it gives way. May be nested.
  void begin();
  /// `unfinished`: the own thread is to go on at once.
  void end(bool unfinished);

  /// The own thread: waits until it may run the loop; false once stopped.
  bool begin_own();
  void end_own();
  /// True if the own thread is to call end_own().
  bool must_give_way();

  /// True if the calling thread runs the loop.
  bool is_mine() const { return holder_ == std::this_thread::get_id(); }
  /// There is something to do: interrupts whoever runs the loop, or ends the own thread's rest.
  void wake();
  void stop();

 private:
  const std::chrono::milliseconds rest_;
  int wake_fd_ = -1;
  std::atomic<std::thread::id> holder_{};  ///< written under the mutex
  int depth_ = 0;                          ///< of the holder's turns; the holder's

  std::mutex mutex_;
  std::condition_variable free_, resume_;
  int wanted_ = 0;  ///< turns that are taken or waited for
  bool unfinished_ = false;
  bool stopped_ = false;
  std::chrono::steady_clock::time_point rests_until_{};
};

}  // namespace troupe
