#include <vector>

#include "runtime/call/callback.hpp"
#include "runtime/call/hub_impl.hpp"

namespace troupe {

// Calls to actors of this process.

class HubImpl::LocalCall final : public IncomingCallState {
 public:
  LocalCall(std::shared_ptr<HubImpl> hub, OpenCalls& open, LocalActor actor, OutgoingCall call)
      : hub_(std::move(hub)), open_(open), actor_(actor), call_(std::move(call)) {}

 private:
  void take_answer(CallAnswer answer) override {
    // The future may keep this state: nothing of what it holds may outlive the answer.
    const auto hub = std::move(hub_);
    hub->on_local_answer(std::move(call_), open_, actor_, std::move(answer));
  }
  std::shared_ptr<HubImpl> hub_;
  OpenCalls& open_;  ///< counts this call, until it is settled
  const LocalActor actor_;
  OutgoingCall call_;
};

CallTicket HubImpl::call_local(const ActorAddress& address, OutgoingCall call, OpenCalls& open,
                               const std::shared_ptr<CallTarget>& target) {
  LocalActor actor{address.id, address.incarnation, address.is_restartable};
  // A handle may know of an earlier one alone.
  if (actor.is_restartable) actor.incarnation = target->incarnation().value_or(actor.incarnation);
  IncomingCall incoming{
      .method = call.method, .arguments = {}, .deadline = call.deadline, .id = call.id};
  const CallId id = call.id;
  const bool may_come_again = call.resend != nullptr;
  if (may_come_again) {
    call.resend->address = address;
    call.resend->address.incarnation = actor.incarnation;
    incoming.arguments = *call.resend->arguments;
  } else {
    incoming.arguments = std::move(call.arguments);
  }
  const auto state = std::make_shared<LocalCall>(
      std::static_pointer_cast<HubImpl>(shared_from_this()), open, actor, std::move(call));
  if (may_come_again) {
    const std::lock_guard lock(mutex_);
    local_calls_[actor.id].emplace(id, LocalResend{state, target.get()});
  }
  incoming.answer = CallReply(state);
  incoming.cancel = CancelToken(state);
  target->deliver(std::move(incoming));
  return {actor.id, 0, CancelToken(state)};
}

void HubImpl::on_local_answer(OutgoingCall call, OpenCalls& open, LocalActor actor,
                              CallAnswer answer) {
  if (!answer.actor_has_ended()) {
    if (call.resend) {
      const std::lock_guard lock(mutex_);
      forget_local_call(actor.id, call.id);
      open_resendable_.erase(call.id);
    }
    observer_->on_credit_given();
    if (open.remove(call.bytes)) on_credit_back(actor.id);
    return run_callback(call.completion, Result<Bytes>(std::move(answer)));
  }
  const CallId id = call.id;
  ActorAddress address;
  if (call.resend) {
    address = call.resend->address;
  } else {
    address.id = actor.id;
    address.incarnation = actor.incarnation;
    address.is_restartable = actor.is_restartable;
  }
  Pending pending = pending_of(address, actor.incarnation, std::move(call));
  std::unique_lock lock(mutex_);
  forget_local_call(actor.id, id);
  if (resend(id, pending, true, true)) {
    const bool is_first = callees_[actor.id].follow(address);
    lock.unlock();
    if (is_first && options_.on_first_call) options_.on_first_call(address);
    return resend_later(actor.id);
  }
  pending.is_local = true;
  if (actor.is_restartable && cause_of_end(pending) == nullptr && !stopped_) {
    (void)route_of(address);  // which says that it may come back
    orphans_[actor.id].emplace(id, std::move(pending));
    lock.unlock();
    return wait_for_cause({{actor.id, id}}, ErrorCode::actor_died, answer.error().message);
  }
  const Error error = error_of_end(pending, ErrorCode::actor_died, answer.error().message);
  settle(id, pending);
  lock.unlock();
  run_callback(pending.completion, Result<Bytes>(error));
}

void HubImpl::forget_local_call(ActorId actor, CallId id) {
  const auto calls = local_calls_.find(actor);
  if (calls == local_calls_.end()) return;
  calls->second.erase(id);
  if (calls->second.empty()) local_calls_.erase(calls);
}

void HubImpl::abandon_target(ActorId id, const CallTarget& target) {
  std::shared_ptr<CallTarget> removed;  // destroyed without the lock, as the calls
  std::vector<std::shared_ptr<LocalCall>> calls;
  {
    const std::lock_guard lock(mutex_);
    const auto callee = callees_.find(id);
    if (callee != callees_.end() && callee->second.target.get() == &target) {
      removed = std::move(callee->second.target);
      callee->second.open.ask_to_be_told();  // for the last answer
      forget_if_over(callee);
    }
    const auto open = local_calls_.find(id);
    if (open == local_calls_.end()) return;
    for (const auto& [number, one] : open->second) {
      if (one.target != &target) continue;
      if (auto call = one.call.lock()) calls.push_back(std::move(call));
    }
  }
  for (const auto& call : calls) {
    call->answer(
        CallAnswer::of_ended_actor(fail(ErrorCode::actor_died, "actor {} was killed", id)));
  }
}

}  // namespace troupe
