#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/runtime/call/call_hubs.hpp"

namespace troupe {

/// A UnixTransport whose own links can be cut.
class CuttableTransport final : public Transport {
 public:
  explicit CuttableTransport(UnixTransport::Options options) : unix_(std::move(options)) {}

  Result<void> start(TransportEvents events) override { return unix_.start(std::move(events)); }
  const std::string& endpoint() const override { return unix_.endpoint(); }
  std::shared_ptr<Link> connect(const std::string& endpoint) override {
    auto link = unix_.connect(endpoint);
    const std::lock_guard lock(mutex_);
    if (link) links_.push_back(link);
    ++connects_;
    return link;
  }
  void run_after(std::chrono::milliseconds delay, std::function<void()> task) override {
    unix_.run_after(delay, std::move(task));
  }
  bool on_own_thread() const override { return unix_.on_own_thread(); }
  Result<void> flush(std::chrono::milliseconds timeout) override { return unix_.flush(timeout); }
  void stop() override { unix_.stop(); }

  /// Cuts the latest link.
  void cut() {
    std::shared_ptr<Link> link;
    {
      const std::lock_guard lock(mutex_);
      if (!links_.empty()) link = links_.back().lock();
    }
    if (link) link->close();
  }
  /// Cuts all links that this transport has opened.
  void cut_all() {
    std::vector<std::weak_ptr<Link>> links;
    {
      const std::lock_guard lock(mutex_);
      links.swap(links_);
    }
    for (const auto& weak : links) {
      if (const auto link = weak.lock()) link->close();
    }
  }
  int connects() const {
    const std::lock_guard lock(mutex_);
    return connects_;
  }

 private:
  UnixTransport unix_;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Link>> links_;
  int connects_ = 0;
};

struct CuttableHub {
  std::shared_ptr<CallHub> hub;
  CuttableTransport* transport = nullptr;  ///< the hub's
};

inline CuttableHub make_cuttable_hub(const std::string& name, const CallHub::Options& calls = {}) {
  UnixTransport::Options options;
  options.keys =
      call_keys(*JobKeys::from_secret(Key{}), fmt::format("troupe-test-{}-{}", ::getpid(), name));
  auto transport = std::make_unique<CuttableTransport>(std::move(options));
  CuttableTransport* kept = transport.get();
  return {*CallHub::create(std::move(transport), calls), kept};
}

/// A call of a numbered thread of the client.
struct NumberedCall {
  int thread = 0, number = 0;
  template <class Archive>
  void fields(Archive& archive) {
    archive(thread, number);
  }
};

/// Runs calls one at a time on a thread of its own, and keeps which in what order.
class Ledger final : public CallTarget {
 public:
  /// Each call takes up to so many microseconds, by chance.
  explicit Ledger(unsigned seed, int most_us = 0)
      : random_(seed), most_us_(most_us), thread_([this] { run(); }) {}
  ~Ledger() override {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void deliver(IncomingCall call) override {
    const std::lock_guard lock(mutex_);
    if (is_over_) {
      return call.answer(CallAnswer::of_ended_actor(fail(ErrorCode::actor_died, "it is over")));
    }
    queue_.push_back(std::move(call));
    longest_ = std::max(longest_, queue_.size() + (is_running_ ? 1 : 0));
    changed_.notify_all();
  }
  void drop(const CancelToken& cancelled) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(
        queue_, [&](const IncomingCall& call) { return call.cancel.state() == cancelled.state(); });
  }

  /// Whether calls are run.
  void pause(bool pauses) {
    const std::lock_guard lock(mutex_);
    is_paused_ = pauses;
    changed_.notify_all();
  }
  std::vector<NumberedCall> ran() const {
    const std::lock_guard lock(mutex_);
    return ran_;
  }
  std::size_t queued() const {
    const std::lock_guard lock(mutex_);
    return queue_.size();
  }
  /// The most calls that were here at a time.
  std::size_t longest() const {
    const std::lock_guard lock(mutex_);
    return longest_;
  }
  bool wait_until_queued(std::size_t count) {
    std::unique_lock lock(mutex_);
    return wait_for(changed_, lock, 10s, [&] { return queue_.size() >= count; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_over_ || (!is_paused_ && !queue_.empty()); });
      if (is_over_) break;
      IncomingCall call = std::move(queue_.front());
      queue_.pop_front();
      if (!call.answer.begin()) continue;
      is_running_ = true;
      ran_.push_back(*decode<NumberedCall>(call.arguments));
      const auto takes = std::chrono::microseconds(
          most_us_ == 0 ? 0 : std::uniform_int_distribution(0, most_us_)(random_));
      lock.unlock();
      if (takes.count() > 0) std::this_thread::sleep_for(takes);
      lock.lock();
      is_running_ = false;  // the answer gives the credit back
      lock.unlock();
      call.answer(std::move(call.arguments));
      call = {};
      lock.lock();
    }
    for (auto& call : queue_) {
      call.answer(CallAnswer::of_ended_actor(fail(ErrorCode::actor_died, "it is over")));
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<IncomingCall> queue_;
  std::vector<NumberedCall> ran_;
  std::size_t longest_ = 0;
  bool is_over_ = false, is_paused_ = false, is_running_ = false;
  std::minstd_rand random_;
  const int most_us_;
  std::thread thread_;
};

/// A call and its answer.
struct OpenCall {
  Future<Bytes> answer;
  CallTicket ticket;
};
inline OpenCall begin_numbered(CallHub& hub, const ActorAddress& address, NumberedCall call,
                               const CallTerms& terms) {
  Promise<Bytes> promise;
  CallTicket ticket = hub.call(
      address, 0, encode(call),
      [promise](Result<Bytes> answer) { promise.complete(std::move(answer)); }, terms);
  return {promise.future(), std::move(ticket)};
}

}  // namespace troupe
