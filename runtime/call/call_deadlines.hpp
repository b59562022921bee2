#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/call/call_hub.hpp"
#include "runtime/call/call_terms.hpp"

namespace troupe {

/// The calls of this process that have a deadline. A call whose deadline passes is completed with
/// timed_out, and whatever it is answered later counts no more. Callable from any thread.
class CallDeadlines : public std::enable_shared_from_this<CallDeadlines> {
 public:
  /// `wake_at(time)`: calls complete_due() then, or soon after.
  explicit CallDeadlines(std::function<void(CallDeadline)> wake_at)
      : wake_at_(std::move(wake_at)) {}

  /// Returns a completion that passes the first answer on, if it comes before the deadline.
  /// `on_late`: what else is to be done when it does not; may be null. Both run as callbacks.
  CallCompletion guard(CallDeadline deadline, std::string actor_name, CallCompletion completion,
                       std::function<void()> on_late);
  /// Completes those that are due.
  void complete_due();

 private:
  struct Guarded;
  using Key = std::pair<CallDeadline, std::uint64_t>;

  const std::function<void(CallDeadline)> wake_at_;
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<Guarded>> guarded_;
  CallDeadline armed_ = no_deadline;  ///< when it is woken
  std::uint64_t next_ = 1;
};

}  // namespace troupe
