#include "runtime/link/turns.hpp"

#include <sys/eventfd.h>

namespace troupe {

void Turns::begin() {
  if (is_mine()) {
    ++depth_;
    return;
  }
  std::unique_lock lock(mutex_);
  ++wanted_;
  if (holder_ != std::thread::id()) ::eventfd_write(wake_fd_, 1);
  free_.wait(lock, [this] { return holder_ == std::thread::id(); });
  holder_ = std::this_thread::get_id();
  depth_ = 1;
}

void Turns::end(bool unfinished) {
  if (--depth_ > 0) return;
  std::lock_guard lock(mutex_);
  holder_ = std::thread::id();
  if (--wanted_ > 0) free_.notify_one();
  rests_until_ = std::chrono::steady_clock::now() + rest_;
  unfinished_ = unfinished;
  if (unfinished_) resume_.notify_one();
}

bool Turns::begin_own() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const bool is_free = wanted_ == 0 && holder_ == std::thread::id();
    const auto now = std::chrono::steady_clock::now();
    if (is_free && (unfinished_ || now >= rests_until_)) break;
    resume_.wait_until(lock, is_free ? rests_until_ : now + rest_);
  }
  if (stopped_) return false;
  unfinished_ = false;
  holder_ = std::this_thread::get_id();
  depth_ = 1;
  return true;
}

void Turns::end_own() {
  std::lock_guard lock(mutex_);
  depth_ = 0;
  holder_ = std::thread::id();
  free_.notify_one();
}

bool Turns::must_give_way() {
  std::lock_guard lock(mutex_);
  return wanted_ > 0 || stopped_;
}

void Turns::wake() {
  if (is_mine()) return;
  {
    std::lock_guard lock(mutex_);
    if (holder_ == std::thread::id() && wanted_ == 0) {
      unfinished_ = true;
      resume_.notify_one();
      return;
    }
  }
  ::eventfd_write(wake_fd_, 1);
}

void Turns::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    resume_.notify_one();
  }
  ::eventfd_write(wake_fd_, 1);
}

}  // namespace troupe
