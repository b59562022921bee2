#include <map>

#include "runtime/call/callback.hpp"
#include "runtime/call/hub_impl.hpp"

namespace troupe {

// Calls to actors of this process.

class HubImpl::LocalCall final : public IncomingCallState {
 public:
  LocalCall(std::shared_ptr<HubImpl> hub, const ActorAddress& actor, OutgoingCall call)
      : hub_(std::move(hub)),
        actor_(actor.id),
        restartable_(actor.is_restartable ? std::make_unique<ActorAddress>(actor) : nullptr),
        call_(std::move(call)) {}

 private:
  void take_answer(CallAnswer answer) override {
    // The future may keep this state: nothing of what it holds may outlive the answer.
    const auto hub = std::move(hub_);
    hub->on_local_answer(std::move(call_), actor_, std::move(restartable_), std::move(answer));
  }
  std::shared_ptr<HubImpl> hub_;
  const ActorId actor_;
  std::unique_ptr<const ActorAddress> restartable_;  ///< null if the actor is not
  OutgoingCall call_;
};

CallTicket HubImpl::call_local(const ActorAddress& address, OutgoingCall call,
                               const std::shared_ptr<CallTarget>& target) {
  IncomingCall incoming{.method = call.method, .deadline = call.deadline, .id = call.id};
  const CallId id = call.id;
  const bool may_come_again = call.resend != nullptr;
  if (may_come_again) {
    call.resend->address = address;
    incoming.arguments = *call.resend->arguments;
  } else {
    incoming.arguments = std::move(call.arguments);
  }
  const auto state = std::make_shared<LocalCall>(
      std::static_pointer_cast<HubImpl>(shared_from_this()), address, std::move(call));
  if (may_come_again) {
    const std::lock_guard lock(mutex_);
    local_calls_[address.id].emplace(id, state);
  }
  incoming.answer = CallReply(state);
  incoming.cancel = CancelToken(state);
  target->deliver(std::move(incoming));
  return {address.id, 0, CancelToken(state)};
}

void HubImpl::on_local_answer(OutgoingCall call, ActorId actor,
                              std::unique_ptr<const ActorAddress> restartable, CallAnswer answer) {
  if (call.resend) {
    const std::lock_guard lock(mutex_);
    const auto calls = local_calls_.find(actor);
    if (calls != local_calls_.end() && calls->second.erase(call.id) > 0 && calls->second.empty()) {
      local_calls_.erase(calls);
    }
  }
  if (!answer.actor_has_ended()) {
    {
      const std::lock_guard lock(mutex_);
      give_credit(actor, call.bytes);
      if (call.resend) open_resendable_.erase(call.id);
    }
    return run_callback(call.completion, Result<Bytes>(std::move(answer)));
  }
  const CallId id = call.id;
  const ActorAddress address = restartable ? *restartable : ActorAddress{.id = actor};
  Pending pending = pending_of(address, address.incarnation, std::move(call));
  std::unique_lock lock(mutex_);
  if (resend(id, pending, true, true)) {
    const bool is_first = called_.note_call(actor);
    lock.unlock();
    if (is_first && options_.on_first_call) options_.on_first_call(address);
    return resend_later(actor);
  }
  const std::string* cause = called_.cause_of_end(actor);
  if (address.is_restartable && cause == nullptr && !stopped_) {
    (void)route_of(address);  // which says that it may come back
    orphans_[actor].emplace(id, std::move(pending));
    lock.unlock();
    return wait_for_cause({{actor, id}}, ErrorCode::actor_died, answer.error().message);
  }
  settle(id, pending);
  const Error error{ErrorCode::actor_died, cause ? *cause : answer.error().message};
  lock.unlock();
  run_callback(pending.completion, Result<Bytes>(error));
}

void HubImpl::abandon_target(ActorId id) {
  remove_target(id);
  std::map<CallId, std::weak_ptr<LocalCall>> calls;
  {
    const std::lock_guard lock(mutex_);
    if (auto node = local_calls_.extract(id); !node.empty()) calls = std::move(node.mapped());
  }
  for (const auto& [number, weak] : calls) {
    const auto call = weak.lock();
    if (!call) continue;
    call->answer(
        CallAnswer::of_ended_actor(fail(ErrorCode::actor_died, "actor {} was killed", id)));
  }
}

}  // namespace troupe
