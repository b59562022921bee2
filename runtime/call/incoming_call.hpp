#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/result.hpp"
#include "runtime/call/call_terms.hpp"
#include "runtime/call/codec.hpp"

namespace troupe {

/// The answer of an actor to a call: the encoded value, or an error.
class CallAnswer : public Result<Bytes> {
 public:
  CallAnswer(Result<Bytes> answer) : Result(std::move(answer)) {}  // NOLINT: implicit
  CallAnswer(Bytes value) : Result(std::move(value)) {}            // NOLINT: implicit
  CallAnswer(Error error) : Result(std::move(error)) {}            // NOLINT: implicit

  /// The actor has ended, and has not run the method.
  static CallAnswer of_ended_actor(Error why) {
    CallAnswer answer(std::move(why));
    answer.actor_has_ended_ = true;
    return answer;
  }
  bool actor_has_ended() const { return actor_has_ended_; }

 private:
  bool actor_has_ended_ = false;
};

/// A call between its arrival at the process of its actor and its answer. Callable from any thread.
class IncomingCallState {
 public:
  virtual ~IncomingCallState() = default;

  /// The method is about to run. False if the call was cancelled or withdrawn while it was
  /// queued: drop it then.
  bool begin();
  /// Answers it; the first answer counts.
  void answer(CallAnswer answer);
  /// Marks it as cancelled. True if the method had not begun: it is not run any more then, and
  /// answer_cancelled() is due once it has left its mailbox.
  bool cancel();
  void answer_cancelled();
  /// Nobody waits for its answer any more: it is not run, unless it has begun. False if it has.
  bool withdraw();
  bool is_cancelled() const { return is_cancelled_.load(); }

  /// A number by which its target finds it when it is cancelled; 0: none yet. Whoever sets it looks
  /// at is_cancelled() after that, unless the target's lock is held for both, as for the drop().
  std::uint64_t target_id() const { return target_id_.load(); }
  void set_target_id(std::uint64_t id) { target_id_.store(id); }
  void set_target_id_locked(std::uint64_t id) { target_id_.store(id, std::memory_order_relaxed); }

 protected:
  /// Takes the one answer.
  virtual void take_answer(CallAnswer answer) = 0;

 private:
  enum class Phase : std::uint8_t { queued, running, answered };
  std::atomic<Phase> phase_ = Phase::queued;
  std::atomic<bool> is_cancelled_ = false;
  std::atomic<std::uint64_t> target_id_ = 0;
};

/// Says whether a call was cancelled by its caller; copies concern the same call. Callable from any
/// thread.
class CancelToken {
 public:
  CancelToken() = default;  ///< never cancelled
  explicit CancelToken(std::shared_ptr<IncomingCallState> state) : state_(std::move(state)) {}
  bool is_cancelled() const { return state_ && state_->is_cancelled(); }
  const std::shared_ptr<IncomingCallState>& state() const { return state_; }
  /// Whether they concern the same call.
  friend bool operator==(const CancelToken&, const CancelToken&) = default;

 private:
  std::shared_ptr<IncomingCallState> state_;
};

/// Answers a call: `answer(encode(value))` or `answer(error)`, once, on any thread.
class CallReply {
 public:
  CallReply() = default;  ///< of no call
  explicit CallReply(std::shared_ptr<IncomingCallState> state) : state_(std::move(state)) {}
  /// Calls `take(CallAnswer)`.
  template <std::invocable<CallAnswer> Take>
    requires(!std::same_as<std::decay_t<Take>, CallReply>)
  CallReply(Take take) : state_(std::make_shared<Taker<Take>>(std::move(take))) {}  // NOLINT

  void operator()(CallAnswer answer) const {
    if (state_) state_->answer(std::move(answer));
  }
  /// See IncomingCallState::begin.
  bool begin() const { return !state_ || state_->begin(); }
  explicit operator bool() const { return state_ != nullptr; }

 private:
  template <class Take>
  class Taker final : public IncomingCallState {
   public:
    explicit Taker(Take take) : take_(std::move(take)) {}

   private:
    void take_answer(CallAnswer answer) override { take_(std::move(answer)); }
    Take take_;
  };

  std::shared_ptr<IncomingCallState> state_;
};

/// A call on its way to a local actor. `arguments` are the encoded arguments.
struct IncomingCall {
  std::uint16_t method = 0;
  Bytes arguments;
  CallReply answer{};
  /// From then on the caller wants no answer: a call that is still queued need not run.
  CallDeadline deadline = no_deadline;
  CancelToken cancel{};
  /// Expires with the link that it came over; never held anything for a caller in this process.
  std::weak_ptr<const void> caller{};
  std::uint64_t id = 0;        ///< no other call of the cluster has it
  std::int64_t queued_ns = 0;  ///< of the target: ActorLoad::on_delivered
};

/// A local actor as the call plane sees it.
class CallTarget {
 public:
  virtual ~CallTarget() = default;
  /// Queues the call. Must not block; a target that drops the call must answer it.
  virtual void deliver(IncomingCall call) = 0;
  /// Which incarnation of its actor it is: calls of other processes to another one are refused, as
  /// they would overtake those that come from that one. Nothing: it takes all.
  virtual std::optional<std::uint32_t> incarnation() const { return std::nullopt; }
  /// The call of this token was cancelled or withdrawn before it ran: it need not be kept any more.
  /// Must not block, nor look through all calls (CallQueue).
  virtual void drop(const CancelToken& cancelled) { (void)cancelled; }
  /// The call of this token was cancelled after it had begun. Must not block.
  virtual void on_cancelled(const CancelToken& cancelled) { (void)cancelled; }
};

}  // namespace troupe
