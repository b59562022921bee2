#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

#include "runtime/base/blocking.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/eager_lock.hpp"

namespace troupe {

/// Sleeps while `word` equals `expected`, until woken or until `until`. False only when that time
/// has passed; true may be spurious, so callers check `word` again. Works between processes that
/// map the word at different addresses. Linux futex(2), FUTEX_WAIT_BITSET.
bool futex_wait_until(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                      std::chrono::steady_clock::time_point until);

/// Wakes all sleepers on `word`, in any process. A system call even when nobody sleeps.
void futex_wake_all(std::atomic<std::uint32_t>& word);

/// How long a waiter may spin before it sleeps.
struct SpinBudget {
  std::chrono::nanoseconds spin{0};

  /// About 2 us when the node has a core for each of `waiters`, else none: on a crowded machine a
  /// spinning waiter only takes time from the process it waits for.
  static SpinBudget for_waiters(int waiters);
};

/// A doorbell in shared memory: waiters sleep until a condition over other shared words holds, and
/// any process that changes such a word calls notify(). All zeroes is a valid fresh event, so a new
/// SharedMemory needs no set-up. notify() costs one atomic operation while nobody sleeps.
///
/// Any thread of any process may call both functions at any time. A waiter that is killed leaves
/// the event usable (its later notifies cost a system call each).
class alignas(64) SharedEvent {
 public:
  /// Call after having changed what a condition reads.
  void notify();

  /// Waits until `ready()` is true (returns true) or `deadline` has passed (returns the last
  /// `ready()`). `ready` must read shared words with acquire or stronger, must not block, and is
  /// called often.
  template <class Ready>
  bool wait(Ready ready, Deadline& deadline, SpinBudget budget);
  template <class Ready>
  bool wait(Ready ready, Deadline&& deadline, SpinBudget budget) {
    return wait(std::move(ready), deadline, budget);
  }

 private:
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};
static_assert(sizeof(SharedEvent) == 64);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

template <class Ready>
bool SharedEvent::wait(Ready ready, Deadline& deadline, SpinBudget budget) {
  if (ready()) return true;
  if (budget.spin.count() > 0) {
    const auto spin_end = std::chrono::steady_clock::now() + budget.spin;
    do {
      relax_cpu();
      if (ready()) return true;
    } while (std::chrono::steady_clock::now() < spin_end);
  }
  const BlockingScope waits;
  while (true) {
    // Announced before the last look at the condition: a notifier either sees the sleeper and
    // rings, or changed the condition early enough for this look. Both sides use a
    // read-modify-write on sleepers_, which orders them.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t rings = rings_.load(std::memory_order_acquire);
    bool satisfied = ready();
    bool in_time = true;
    if (!satisfied) {
      in_time = futex_wait_until(rings_, rings, deadline.next_look()) || !deadline.is_over();
      satisfied = ready();
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    if (satisfied || !in_time) return satisfied;
  }
}

}  // namespace troupe
