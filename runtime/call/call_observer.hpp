#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/call/actor_address.hpp"
#include "runtime/call/call_timeline.hpp"
#include "runtime/metrics/metrics_registry.hpp"

namespace troupe {

class CallObserver;

/// Adds to a number that others read, but nobody else changes at the moment: in a fifth of the time
/// that an atomic addition takes.
inline void add_alone(std::atomic<std::uint64_t>& number, std::uint64_t amount) {
  number.store(number.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

/// A hosted actor as it is observed: its calls are counted and, on request, recorded. O(1) without
/// locks. Callable from any thread.
class ActorLoad {
 public:
  /// A call that runs.
  struct Running {
    std::uint64_t call = 0;
    std::uint16_t method = 0;
    std::int64_t queued_ns = 0, begin_ns = 0;  ///< begin_ns is 0 if it is not recorded
  };

  ~ActorLoad();
  ActorLoad(const ActorLoad&) = delete;
  ActorLoad& operator=(const ActorLoad&) = delete;

  /// A call has come into the mailbox; with its lock held. Returns the time, for begin(), or 0 if
  /// it does not matter.
  std::int64_t on_delivered() noexcept;
  /// A call begins to run, on this thread.
  Running begin(std::uint16_t method, std::uint64_t call, std::int64_t queued_ns) noexcept;
  /// It has ended.
  void on_ended(const Running& running);
  /// A call of a coroutine is started or resumed, on this thread: the time, or 0 if it is not
  /// recorded.
  std::int64_t begin_part() noexcept;
  /// It waits or has ended, after a part that was begun then.
  void end_part(const Running& running, std::int64_t begin_ns, bool is_resumed);
  /// A call has left the mailbox and does not run: it was cancelled, or is the runtime's own.
  void on_dropped(std::uint16_t method) { on_ended({.method = method}); }
  /// The same, passing an answer on.
  template <class Answer>
  Answer end(const Running& running, Answer answer) {
    on_ended(running);
    return answer;
  }

 private:
  friend class CallObserver;
  std::string_view method_of(const Running& running) const {
    if (running.method >= type_.methods.size()) return "unknown";
    return type_.methods[running.method];
  }
  /// The actors of one class in this process.
  struct Type {
    std::vector<std::string> methods;
    std::unique_ptr<std::atomic<std::uint64_t>[]> served;  ///< by method; the last: unknown ones
  };
  struct Private {};  ///< keeps others from the constructor

 public:
  ActorLoad(Private, std::shared_ptr<CallObserver> observer, SharedAddress address,
            const Type& type)
      : observer_(std::move(observer)), address_(std::move(address)), type_(type) {}

 private:
  const std::shared_ptr<CallObserver> observer_;
  const SharedAddress address_;
  const Type& type_;
  std::atomic<std::uint64_t> delivered_ = 0, ended_ = 0;
  // The observer's list, under its mutex.
  ActorLoad* before_ = nullptr;
  ActorLoad* after_ = nullptr;
};

/// An actor's calls since it was made.
struct ActorLoadState {
  std::uint64_t actor = 0;
  std::uint64_t served = 0;
  std::uint64_t queued = 0;  ///< those that run included
  template <class Archive>
  void fields(Archive& archive) {
    archive(actor, served, queued);
  }
};

/// The metrics of a process. Calls that it has made have the methods' numbers for names ("#3") if
/// no actor of the class is here; `methods` tells the names of the classes that are.
struct ProcessMetrics {
  MetricsSnapshot metrics;
  std::map<std::string, std::vector<std::string>> methods;  ///< by actor_type
  template <class Archive>
  void fields(Archive& archive) {
    archive(metrics, methods);
  }
};

/// Sees the calls of one process: counts them for the runtime's metrics (troupe_*), holds the
/// metrics that its actors make, and records calls on request. It belongs to the process's CallHub.
/// Callable from any thread, except where said.
class CallObserver : public std::enable_shared_from_this<CallObserver> {
 public:
  MetricsRegistry& metrics() { return metrics_; }
  CallTimeline& timeline() { return timeline_; }

  /// A number for this process's first call: those from there on are no other process's.
  static std::uint64_t first_call();

  // Of the hub, with its lock held.

  /// A call is sent, or delivered here.
  void on_call(std::uint64_t call, const ActorAddress& actor, std::uint16_t method) {
    const std::size_t place = std::hash<std::string>()(actor.type) * 31 + method;
    Made& made = made_[place % made_.size()];
    if (made.key == nullptr || made.key->second != method || made.key->first != actor.type) {
      find_made(made, actor, method);
    }
    add_alone(*made.count, 1);
    if (timeline_.is_on()) timeline_.note_made(call, actor.type);
  }
  void on_credit_taken(bool has_waited) {
    add_alone(credits_taken_, 1);
    if (has_waited) add_alone(credit_waits_, 1);
  }
  void on_call_sent(std::size_t bytes) { add_alone(calls_sent_, bytes); }

  // Of the transport's thread.

  void on_received(std::size_t bytes) { add_alone(received_, bytes); }

  // Of any thread.

  void on_credit_given() { credits_given_.fetch_add(1, std::memory_order_relaxed); }
  void on_answer_sent(std::size_t bytes) {
    answers_sent_.fetch_add(bytes, std::memory_order_relaxed);
  }
  /// A call of this process has failed, for any reason.
  void on_failed(std::string_view type, std::string_view method, ErrorCode code);
  /// An actor of this process has been made; its methods by number.
  std::shared_ptr<ActorLoad> add_actor(const SharedAddress& actor,
                                       std::span<const std::string_view> methods);

  ProcessMetrics snapshot() const;
  /// Of all actors here, by id.
  std::vector<ActorLoadState> loads() const;

 private:
  friend class ActorLoad;
  using MethodKey = std::pair<std::string, std::uint16_t>;
  /// The count of the calls to a method of a class; of made_of_.
  struct Made {
    const MethodKey* key = nullptr;
    std::atomic<std::uint64_t>* count = nullptr;
  };

  void find_made(Made& made, const ActorAddress& actor, std::uint16_t method);
  void add_runtime_metrics(MetricsSnapshot& all) const;

  MetricsRegistry metrics_;
  CallTimeline timeline_;
  std::array<Made, 256> made_{};  ///< the latest
  std::atomic<std::uint64_t> credits_taken_ = 0, credit_waits_ = 0, calls_sent_ = 0;
  /// Those who answer, on other threads than those who call, do not share a cache line with them.
  alignas(64) std::atomic<std::uint64_t> credits_given_ = 0;
  std::atomic<std::uint64_t> answers_sent_ = 0, received_ = 0;
  alignas(64) mutable std::mutex mutex_;  ///< of the next three
  std::map<MethodKey, std::atomic<std::uint64_t>> made_of_;
  std::map<std::string, ActorLoad::Type> types_;
  ActorLoad* loads_ = nullptr;  ///< the latest
};

}  // namespace troupe
