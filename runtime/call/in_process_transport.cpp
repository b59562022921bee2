#include "runtime/call/in_process_transport.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

namespace troupe {
namespace {

class InProcessTransport final : public Transport {
 public:
  explicit InProcessTransport(std::string name) : name_(std::move(name)) {}
  ~InProcessTransport() override { stop(); }

  Result<void> start(TransportEvents) override {
    try {
      const std::lock_guard lock(mutex_);
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      return fail(ErrorCode::resource_exhausted, "cannot start the call plane's thread: {}",
                  error.what());
    }
    return {};
  }
  const std::string& endpoint() const override { return name_; }
  std::shared_ptr<Link> connect(const std::string&) override { return nullptr; }
  void run_after(std::chrono::milliseconds delay, std::function<void()> task) override {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return;
    timers_.emplace(Clock::now() + delay, std::move(task));
    changed_.notify_all();
  }
  bool on_own_thread() const override { return std::this_thread::get_id() == thread_.get_id(); }
  Result<void> flush(std::chrono::milliseconds) override { return {}; }
  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable() && !on_own_thread()) thread_.join();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void run() {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
      if (timers_.empty()) {
        changed_.wait(lock);
      } else if (const auto due = timers_.begin()->first; due > Clock::now()) {
        changed_.wait_until(lock, due);
      } else {
        const auto task = std::move(timers_.extract(timers_.begin()).mapped());
        lock.unlock();
        task();
        lock.lock();
      }
    }
    timers_.clear();
  }

  const std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, std::function<void()>> timers_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Transport> make_in_process_transport(std::string name) {
  return std::make_unique<InProcessTransport>(std::move(name));
}

}  // namespace troupe
