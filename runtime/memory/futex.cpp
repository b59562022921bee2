#include "runtime/memory/futex.hpp"

#include <climits>

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr std::chrono::nanoseconds spin_limit{2000};

timespec to_timespec(std::chrono::steady_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds);
  if (seconds.count() < 0) return {0, 0};
  return {static_cast<time_t>(seconds.count()), static_cast<long>(rest.count())};
}

}  // namespace

bool futex_wait_until(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                      std::chrono::steady_clock::time_point until) {
  // FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC, which is what steady_clock reads.
  const timespec end = to_timespec(until);
  const long rc = ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, &end, nullptr,
                            FUTEX_BITSET_MATCH_ANY);
  return rc == 0 || errno != ETIMEDOUT;
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

SpinBudget SpinBudget::for_waiters(int waiters) {
  return {waiters <= ::sysconf(_SC_NPROCESSORS_ONLN) ? spin_limit : std::chrono::nanoseconds(0)};
}

void SharedEvent::notify() {
  if (sleepers_.fetch_add(0, std::memory_order_seq_cst) == 0) return;
  rings_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(rings_);
}

}  // namespace troupe
