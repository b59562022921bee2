#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace troupe {

/// A fixed team of threads for short parallel sections: the caller is member 0, `threads - 1` own
/// threads are the others. Between sections the own threads spin for a while and then sleep on a
/// futex; so does the caller at the end of a section. If other teams share the cores they spin
/// briefly, and not at all if the team alone is larger than the machine: spinning takes time from
/// the threads it waits for. run() is called by one thread at a time.
class ThreadPool {
 public:
  /// Longer than the gap between two sections of a pass (waking a sleeper takes tens of
  /// microseconds: a model of 8 layers decoded one sequence at half the speed with 2 us).
  static constexpr std::int64_t spin_ns = 60'000;
  static constexpr std::int64_t spin_on_shared_cores_ns = 2'000;

  explicit ThreadPool(int threads, bool cores_are_shared = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  /// Runs body(member) for every member 0..size()-1, each on its own thread; returns when all are
  /// done. With one thread it is a plain call. `body` must not throw.
  template <class Body>
  void run(Body&& body) {
    if (threads_.empty()) {
      body(0);
      return;
    }
    run_section([](void* context,
                   int member) { (*static_cast<std::remove_reference_t<Body>*>(context))(member); },
                const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Section = void (*)(void* context, int member);

  void run_section(Section section, void* context);
  void work(int member);
  void wait_while_equal(std::atomic<std::uint32_t>& word, std::uint32_t value,
                        std::atomic<std::uint32_t>& sleepers) const;

  std::int64_t spin_ns_ = 0;
  Section section_ = nullptr;  // written before epoch_ advances, read after
  void* context_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  alignas(64) std::atomic<std::uint32_t> pending_{0};
  alignas(64) std::atomic<std::uint32_t> sleeping_members_{0};
  alignas(64) std::atomic<std::uint32_t> sleeping_caller_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

/// The part of [0, total) for `member` of `members`: contiguous, sizes differ by at most one.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
constexpr Range split_evenly(std::int64_t total, int member, int members) {
  return {total * member / members, total * (member + 1) / members};
}

}  // namespace troupe
