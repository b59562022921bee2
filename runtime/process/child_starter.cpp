#include "runtime/process/child_starter.hpp"

#include <system_error>
#include <utility>

#include <sys/eventfd.h>

namespace troupe {

ChildStarter::ChildStarter() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Result<void> ChildStarter::begin() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::resource_exhausted, "no thread to start processes: {}", error.what());
  }
  return {};
}

void ChildStarter::start(std::uint64_t tag, ChildOptions options, UniqueFd inherited) {
  std::lock_guard lock(mutex_);
  if (is_stopping_) return;
  orders_.push_back({tag, std::move(options), std::move(inherited)});
  changed_.notify_one();
}

std::vector<ChildStarter::Started> ChildStarter::take() {
  std::lock_guard lock(mutex_);
  eventfd_t ignored = 0;
  ::eventfd_read(wake_.get(), &ignored);
  return std::exchange(done_, {});
}

void ChildStarter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_stopping_ || !orders_.empty(); });
    if (is_stopping_) return;
    Order order = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    if (order.inherited) order.options.inherited_fd = order.inherited.get();
    auto process = ChildProcess::start(order.options);
    order.inherited.reset();  // so that the other end sees the child's end
    lock.lock();
    done_.push_back({order.tag, std::move(process)});
    ::eventfd_write(wake_.get(), 1);
  }
}

void ChildStarter::stop() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
    orders_.clear();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace troupe
