#include "models/ops/cpu/thread_pool.hpp"

#include <chrono>
#include <climits>

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/process/cpu_affinity.hpp"

namespace troupe {
namespace {

void futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr,
          nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

}  // namespace

ThreadPool::ThreadPool(int threads, bool cores_are_shared) {
  if (threads <= usable_cpu_count()) {
    spin_ns_ = cores_are_shared ? spin_on_shared_cores_ns : spin_ns;
  }
  for (int member = 1; member < threads; ++member) {
    threads_.emplace_back([this, member] { work(member); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  futex_wake_all(epoch_);
  for (std::thread& thread : threads_) thread.join();
}

// The sleeper announces itself before its last check of the word (inside the futex call), the waker
// changes the word before it checks for sleepers: with sequentially consistent operations one of
// the two sees the other.
void ThreadPool::wait_while_equal(std::atomic<std::uint32_t>& word, std::uint32_t value,
                                  std::atomic<std::uint32_t>& sleepers) const {
  using Clock = std::chrono::steady_clock;
  if (spin_ns_ > 0) {
    const auto end = Clock::now() + std::chrono::nanoseconds(spin_ns_);
    do {
      for (int i = 0; i < 8; ++i) {
        if (word.load(std::memory_order_acquire) != value) return;
        _mm_pause();
      }
    } while (Clock::now() < end);
  }
  sleepers.fetch_add(1);
  while (word.load() == value) futex_sleep(word, value);
  sleepers.fetch_sub(1);
}

void ThreadPool::run_section(Section section, void* context) {
  section_ = section;
  context_ = context;
  pending_.store(static_cast<std::uint32_t>(threads_.size()));
  epoch_.fetch_add(1);
  if (sleeping_members_.load() != 0) futex_wake_all(epoch_);
  section(context, 0);
  for (std::uint32_t left = pending_.load(); left != 0; left = pending_.load()) {
    wait_while_equal(pending_, left, sleeping_caller_);
  }
}

void ThreadPool::work(int member) {
  std::uint32_t seen = 0;
  while (true) {
    wait_while_equal(epoch_, seen, sleeping_members_);
    ++seen;  // sections are never skipped: the caller waits for every member
    if (stopping_.load()) return;
    section_(context_, member);
    if (pending_.fetch_sub(1) == 1 && sleeping_caller_.load() != 0) futex_wake_all(pending_);
  }
}

}  // namespace troupe
