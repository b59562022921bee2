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
  std::string padding{};
  template <class Archive>
  void fields(Archive& archive) {
    archive(thread, number, padding);
  }
};

/// Runs calls one at a time on a thread of its own, and keeps which in what order.
class Ledger final : public CallTarget {
 public:
  /// Each call takes up to so many microseconds, by chance.
  explicit Ledger(unsigned seed, int most_us = 0, std::optional<std::uint32_t> incarnation = {})
      : random_(seed), most_us_(most_us), incarnation_(incarnation), thread_([this] { run(); }) {}
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
    if (is_killed_ && !refuses_) return queue_.push_back(std::move(call));
    if (is_over_ || refuses_) {
      return call.answer(CallAnswer::of_ended_actor(fail(ErrorCode::actor_died, "it is over")));
    }
    queue_.push_back(std::move(call));
    longest_ = std::max(longest_, queue_.size() + (is_running_ ? 1 : 0));
    longest_queue_ = std::max(longest_queue_, queue_.size());
    std::size_t bytes = 0;
    for (const IncomingCall& one : queue_) bytes += one.arguments.size();
    if (queue_.size() > 1) most_queued_bytes_ = std::max(most_queued_bytes_, bytes);
    changed_.notify_all();
  }
  std::optional<std::uint32_t> incarnation() const override { return incarnation_; }
  void drop(const CancelToken& cancelled) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(queue_, [&](const IncomingCall& call) { return call.cancel == cancelled; });
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
  std::size_t runs() const {
    const std::lock_guard lock(mutex_);
    return ran_.size();
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
  /// The most calls, and bytes of several calls, that waited here at a time.
  std::size_t longest_queue() const {
    const std::lock_guard lock(mutex_);
    return longest_queue_;
  }
  std::size_t most_queued_bytes() const {
    const std::lock_guard lock(mutex_);
    return most_queued_bytes_;
  }
  /// Nothing begins any more, and nothing is answered, as in a process that was killed. `refuses`:
  /// but for what comes from now on.
  void kill(bool refuses) {
    const std::lock_guard lock(mutex_);
    is_killed_ = true;
    refuses_ = refuses;
    changed_.notify_all();
  }
  /// Refuses what is queued, and what comes later, as an actor does that has left its process.
  void leave() {
    const std::lock_guard lock(mutex_);
    is_killed_ = false;
    is_over_ = true;
    changed_.notify_all();
    refuse_queue();
  }
  bool wait_until_queued(std::size_t count) {
    std::unique_lock lock(mutex_);
    return wait_for(changed_, lock, 10s, [&] { return queue_.size() >= count; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock,
                    [this] { return is_over_ || (!is_paused_ && !is_killed_ && !queue_.empty()); });
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
      if (is_killed_) {
        queue_.push_front(std::move(call));
        continue;
      }
      lock.unlock();
      call.answer(std::move(call.arguments));
      call = {};
      lock.lock();
    }
    refuse_queue();
  }
  void refuse_queue() {
    for (auto& call : std::exchange(queue_, {})) {
      call.answer(CallAnswer::of_ended_actor(fail(ErrorCode::actor_died, "it is over")));
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<IncomingCall> queue_;
  std::vector<NumberedCall> ran_;
  std::size_t longest_ = 0, longest_queue_ = 0, most_queued_bytes_ = 0;
  bool is_over_ = false, is_paused_ = false, is_running_ = false, is_killed_ = false,
       refuses_ = false;
  std::minstd_rand random_;
  const int most_us_;
  const std::optional<std::uint32_t> incarnation_;
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
