#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/call/call_frame.hpp"
#include "runtime/call/call_hub.hpp"
#include "runtime/call/callback.hpp"
#include "runtime/call/called_actors.hpp"

namespace troupe {

/// The one implementation of CallHub: calls and answers are in call_hub.cpp, the ends and restarts
/// of actors and connections in call_hub_ends.cpp.
class HubImpl final : public CallHub {
 public:
  HubImpl(std::unique_ptr<Transport> transport, Options options)
      : options_(std::move(options)),
        transport_(std::move(transport)),
        called_(options_.remembered_ends) {}
  ~HubImpl() override { stop(); }

  Result<void> start() {
    TROUPE_TRY(callbacks_, CallbackThread::start([weak = weak_from_this()](ActorId source) {
                 const auto hub = std::static_pointer_cast<HubImpl>(weak.lock());
                 if (!hub) return;
                 std::lock_guard lock(hub->mutex_);
                 hub->wake_for_credit(source);
               }));
    return transport_->start(
        {[this](const std::shared_ptr<Link>& link, Bytes& frame) { on_frame(link, frame); },
         [this](const std::shared_ptr<Link>& link, const Error& why) { on_closed(link, why); }});
  }

  const std::string& endpoint() const override { return transport_->endpoint(); }

  void add_target(ActorId id, std::shared_ptr<CallTarget> target) override {
    std::lock_guard lock(mutex_);
    targets_[id] = std::move(target);
  }

  void remove_target(ActorId id) override {
    std::shared_ptr<CallTarget> removed;  // destroyed without the lock
    std::lock_guard lock(mutex_);
    if (auto found = targets_.find(id); found != targets_.end()) {
      removed = std::move(found->second);
      targets_.erase(found);
    }
  }

  void call(const ActorAddress& address, std::uint16_t method, Bytes arguments,
            CallCompletion completion) override;
  const std::shared_ptr<CallbackThread>& callbacks() const override { return callbacks_; }
  void run_after(std::chrono::milliseconds delay, std::function<void()> task) override {
    transport_->run_after(delay, [task = std::move(task)] { run_callback(task); });
  }
  void mark_down(ActorId id, std::string why) override;
  void mark_restarting(ActorId id, std::uint32_t incarnation, std::string why) override;
  void mark_moved(const ActorAddress& address) override;
  Result<void> flush(std::chrono::milliseconds timeout) override {
    return transport_->flush(timeout);
  }
  void stop() override;

 private:
  struct Pending {
    ActorId actor = 0;
    std::uint32_t incarnation = 0;  ///< that it was sent to
    std::size_t bytes = 0;          ///< of its arguments
    std::string actor_name;
    CallCompletion completion;
  };

  using PendingCalls = std::unordered_map<CallId, Pending>;

  /// A link that this process opened, with its unanswered calls.
  struct Peer {
    std::string endpoint;
    std::shared_ptr<Link> link;
    PendingCalls pending;
    std::uint64_t answers = 0;  ///< count of all answers so far
  };

  /// A call that waits for an actor to be started again.
  struct WaitingCall {
    ActorAddress address;
    std::uint16_t method = 0;
    Bytes arguments;
    CallCompletion completion;
  };

  /// Where a restartable actor is.
  struct Route {
    std::string endpoint;           ///< empty: not known, or the actor is not there
    std::uint32_t incarnation = 0;  ///< that is there or is awaited
    std::string last_cause;         ///< of the end of the incarnation before
    std::deque<WaitingCall> waiting;
  };

  /// How long a call may wait in all, for its credit and then for room on the link. Looks at the
  /// clock from the first wait on.
  class Patience {
   public:
    explicit Patience(std::chrono::nanoseconds limit) : limit_(limit) {}
    Deadline& begin_wait() { return deadline_ ? *deadline_ : deadline_.emplace(limit_); }
    std::chrono::nanoseconds left() { return deadline_ ? deadline_->left() : limit_; }

   private:
    const std::chrono::nanoseconds limit_;
    std::optional<Deadline> deadline_;
  };

  /// The unanswered calls to one actor.
  struct InFlight {
    std::size_t calls = 0, bytes = 0;
    std::shared_ptr<Peer> peer;  ///< the link that they went through; none for a local actor
  };

  /// `has_limit`: waits until there is credit.
  Result<void> take_credit(const ActorAddress& address, std::size_t bytes, bool has_limit,
                           Patience& patience, std::unique_lock<std::mutex>& lock);
  /// Waits until `is_settled()`, which is looked at whenever credit of the actor comes back; false
  /// after the patience. mutex_ is held by `lock`.
  bool wait_for_credit(ActorId actor, Patience& patience, std::unique_lock<std::mutex>& lock,
                       const std::function<bool()>& is_settled);
  /// Lets the first that waits for the actor's credit look again, if there is some.
  void wake_for_credit(ActorId actor);
  void give_credit(ActorId actor, std::size_t bytes);
  InFlight in_flight_of(ActorId actor) const {
    const auto found = in_flight_.find(actor);
    return found == in_flight_.end() ? InFlight{} : found->second;
  }
  bool has_credit(ActorId actor, std::size_t bytes) const {
    const InFlight calls = in_flight_of(actor);
    const auto due = callbacks_->backlog(actor);
    const std::size_t count = calls.calls + due.callbacks;
    return count == 0 ||
           (count < options_.credits && calls.bytes + due.bytes + bytes <= options_.credit_bytes);
  }
  void call_local(const ActorAddress& address, const std::shared_ptr<CallTarget>& target,
                  IncomingCall call);
  /// Sends a call that has its credit to another process, after a wait for room on the link; mutex_
  /// is held by `lock`, and released.
  void call_remote(const ActorAddress& address, std::uint16_t method, Bytes arguments,
                   CallCompletion completion, Patience& patience,
                   std::unique_lock<std::mutex> lock);
  /// Sends the calls that have waited for the actor, as long as it is there.
  void send_waiting(ActorId actor);
  /// Moves the calls that wait for the actor to `calls`; mutex_ is held.
  void take_waiting(ActorId actor, Route& route, PendingCalls& calls);
  /// Why the actor that the call was sent to is gone, or null; mutex_ is held.
  const std::string* cause_of_end(const Pending& call) const;
  void on_frame(const std::shared_ptr<Link>& link, Bytes& frame);
  void on_call(const std::shared_ptr<Link>& link, const Trailer& trailer, Bytes& body);
  void on_answer(const std::shared_ptr<Link>& link, const Trailer& trailer, Bytes& body);
  void on_closed(const std::shared_ptr<Link>& link, const Error& why);
  void fail_all(const PendingCalls& calls, ErrorCode code, const std::string& why);
  struct Orphan {
    ActorId actor = 0;
    CallId call = 0;
  };
  /// Fails those of the orphans that are still there after `cause_grace`.
  void wait_for_cause(std::vector<Orphan> calls, std::string message);
  /// Sees to the unanswered calls of an actor that is marked down, or of an incarnation of it;
  /// mutex_ is held by `lock`, and released.
  void end_calls(ActorId actor, std::unique_lock<std::mutex> lock);
  /// Fails the calls to an actor that is marked down once their peer has been silent for a whole
  /// `last_answer_timeout`; `answers` is the peer's count at the beginning of that time.
  void wait_for_last_answers(ActorId actor, std::weak_ptr<Peer> peer, std::uint64_t answers);

  const Options options_;
  std::shared_ptr<CallbackThread> callbacks_;
  const std::unique_ptr<Transport> transport_;

  std::mutex mutex_;
  /// One for each thread that waits for an actor's credit, in the order in which they came.
  std::unordered_map<ActorId, std::list<std::condition_variable>> waiting_for_credit_;
  bool stopped_ = false;
  CallId next_call_ = 1;
  std::unordered_map<ActorId, std::shared_ptr<CallTarget>> targets_;
  std::unordered_map<std::string, std::shared_ptr<Peer>> peers_;  ///< by endpoint
  std::unordered_map<Link*, std::shared_ptr<Peer>> peer_of_link_;
  /// The calls to each actor whose link has closed, or that has left its process, for a cause that
  /// is not known yet.
  std::unordered_map<ActorId, PendingCalls> orphans_;
  std::unordered_map<ActorId, InFlight> in_flight_;
  CalledActors called_;
  std::unordered_map<ActorId, Route> routes_;  ///< of restartable actors that live
};

}  // namespace troupe
