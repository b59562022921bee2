#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// The unanswered calls of this process to one actor, which its credits are counted by. Whoever
/// owns it keeps it until there are none. Callable from any thread, but for what changes it under
/// the owner's lock.
class OpenCalls {
 public:
  // With the owner's lock held.

  void add(std::size_t bytes) {
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    state_.fetch_add(one_call, std::memory_order_relaxed);
  }
  /// From now on remove() returns true.
  void ask_to_be_told() { state_.fetch_or(is_told); }
  void ask_no_more() { state_.fetch_and(~is_told); }

  // Without it.

  /// A call is answered. True if the owner is to look at it; after the last call this may be gone
  /// then, and if not, it may be gone as soon as the owner unlocks.
  [[nodiscard]] bool remove(std::size_t bytes) {
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return (state_.fetch_sub(one_call) & is_told) != 0;
  }
  std::size_t calls() const { return state_.load() / one_call; }
  std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t is_told = 1, one_call = 2;

  std::atomic<std::uint64_t> state_ = 0;
  std::atomic<std::size_t> bytes_ = 0;
};

}  // namespace troupe
