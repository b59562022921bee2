#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/call/future.hpp"

namespace troupe {

/// Waits for some of several futures, which it does not take. One thread waits.
class ReadyQueue {
 public:
  /// Watches a future, which has this index from now on.
  template <class T>
  void add(const Future<T>& future, std::size_t index) {
    if (!future.add_observer(ready_, index)) return ready_->on_ready(index);
    watched_.push_back([future, ready = ready_.get()] { future.remove_observer(ready); });
  }
  ReadyQueue() = default;
  ReadyQueue(const ReadyQueue&) = delete;
  ReadyQueue& operator=(const ReadyQueue&) = delete;
  ~ReadyQueue() {
    for (const auto& forget : watched_) forget();
  }

  /// Waits for the next future that is ready, in the order in which they became so, and returns its
  /// index; each is returned once. Nothing after the deadline.
  std::optional<std::size_t> next(Deadline& deadline) { return ready_->next(deadline); }

 private:
  class Ready final : public ReadyObserver {
   public:
    void on_ready(std::size_t index) noexcept override {
      const std::lock_guard lock(mutex_);
      indices_.push_back(index);
      changed_.notify_one();
    }
    std::optional<std::size_t> next(Deadline& deadline) {
      std::unique_lock lock(mutex_);
      const auto is_there = [this] { return taken_ < indices_.size(); };
      if (!wait_until(changed_, lock, deadline, is_there)) return std::nullopt;
      return indices_[taken_++];
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::size_t> indices_;
    std::size_t taken_ = 0;
  };

  const std::shared_ptr<Ready> ready_ = std::make_shared<Ready>();
  std::vector<std::function<void()>> watched_;
};

namespace wait_detail {

inline Error too_late(std::size_t ready, std::size_t count, std::chrono::nanoseconds timeout) {
  return fail(ErrorCode::timed_out, "{} of {} answers came within {} ms", ready, count,
              std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
}

inline Result<void> wait_for(ReadyQueue& queue, std::size_t count,
                             std::chrono::nanoseconds timeout) {
  Deadline deadline(timeout);
  for (std::size_t ready = 0; ready < count; ++ready) {
    if (!queue.next(deadline)) return too_late(ready, count, timeout);
  }
  return {};
}

inline Result<std::size_t> first_of(ReadyQueue& queue, std::size_t count,
                                    std::chrono::nanoseconds timeout) {
  if (count == 0) return fail(ErrorCode::invalid_argument, "there is no future to wait for");
  Deadline deadline(timeout);
  if (const auto first = queue.next(deadline)) return *first;
  return too_late(0, count, timeout);
}

}  // namespace wait_detail

/// Waits at most `timeout` until one of the futures is ready, and returns the index of the first
/// that was: of those that are ready already the first in order. Does not take its answer. Errors:
/// timed_out; invalid_argument for no futures. Costs a look at each future.
template <class T>
Result<std::size_t> wait_any(std::span<const Future<T>> futures, std::chrono::nanoseconds timeout) {
  for (std::size_t i = 0; i < futures.size(); ++i) {
    if (futures[i].ready()) return i;
  }
  ReadyQueue queue;
  for (std::size_t i = 0; i < futures.size(); ++i) queue.add(futures[i], i);
  return wait_detail::first_of(queue, futures.size(), timeout);
}
template <class T>
Result<std::size_t> wait_any(const std::vector<Future<T>>& futures,
                             std::chrono::nanoseconds timeout) {
  return wait_any(std::span(futures), timeout);
}
/// The same for futures of different types: `wait_any(timeout, a, b)`.
template <class... Ts>
Result<std::size_t> wait_any(std::chrono::nanoseconds timeout, const Future<Ts>&... futures) {
  ReadyQueue queue;
  std::size_t index = 0;
  (queue.add(futures, index++), ...);
  return wait_detail::first_of(queue, sizeof...(Ts), timeout);
}
/// The same for a tuple of futures.
template <class... Ts>
Result<std::size_t> wait_any(const std::tuple<Future<Ts>...>& futures,
                             std::chrono::nanoseconds timeout) {
  return std::apply([&](const auto&... all) { return wait_any(timeout, all...); }, futures);
}

/// Waits at most `timeout` until all futures are ready, whatever their answers are, which it does
/// not take. timed_out says how many were.
template <class T>
Result<void> wait_all(std::span<const Future<T>> futures, std::chrono::nanoseconds timeout) {
  ReadyQueue queue;
  for (std::size_t i = 0; i < futures.size(); ++i) queue.add(futures[i], i);
  return wait_detail::wait_for(queue, futures.size(), timeout);
}
template <class T>
Result<void> wait_all(const std::vector<Future<T>>& futures, std::chrono::nanoseconds timeout) {
  return wait_all(std::span(futures), timeout);
}
template <class... Ts>
Result<void> wait_all(std::chrono::nanoseconds timeout, const Future<Ts>&... futures) {
  ReadyQueue queue;
  std::size_t index = 0;
  (queue.add(futures, index++), ...);
  return wait_detail::wait_for(queue, sizeof...(Ts), timeout);
}
template <class... Ts>
Result<void> wait_all(const std::tuple<Future<Ts>...>& futures, std::chrono::nanoseconds timeout) {
  return std::apply([&](const auto&... all) { return wait_all(timeout, all...); }, futures);
}

}  // namespace troupe
