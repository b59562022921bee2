#include <cstring>
#include <vector>

#include "runtime/call/callback.hpp"
#include "runtime/call/hub_impl.hpp"

namespace troupe {

// What comes from other processes: their calls, and the answers to this one's.

void HubImpl::on_frame(const std::shared_ptr<Link>& link, Bytes& frame) {
  observer_->on_received(frame.size());
  const auto trailer = take_trailer(frame);
  if (!trailer) return link->close();
  switch (trailer->kind) {
    case FrameKind::call:
    case FrameKind::resendable_call:
      return on_call(link, *trailer, frame);
    case FrameKind::answer:
      return on_answer(link, *trailer, frame);
    case FrameKind::hello:
      return on_hello(link, *trailer);
    case FrameKind::cancel:
      return on_cancel(link, *trailer);
    case FrameKind::acknowledge:
      return on_acknowledge(link, frame);
  }
  link->close();
}

const std::shared_ptr<IncomingLink>& HubImpl::incoming(const std::shared_ptr<Link>& link) {
  auto& found = incoming_[link.get()];
  if (!found) found = std::make_shared<IncomingLink>(link, observer_);
  return found;
}

void HubImpl::on_hello(const std::shared_ptr<Link>& link, const Trailer& trailer) {
  const auto& from = incoming(link);
  if (from->caller != 0 || trailer.actor == 0 || trailer.generation == 0) return link->close();
  // The caller has given up a link that is not its latest.
  if (!answers_->begin_link(trailer.actor, trailer.generation, trailer.call)) {
    from->is_stale = true;  // more of it may have been read already
    return link->close();
  }
  from->caller = trailer.actor;
  from->generation = trailer.generation;
  auto& latest = latest_of_caller_[from->caller];
  if (latest) latest->is_stale = true;
  latest = from;
}

std::shared_ptr<CallTarget> HubImpl::target_of(ActorId actor) {
  const std::lock_guard lock(mutex_);
  const auto found = callees_.find(actor);
  return found == callees_.end() ? nullptr : found->second.target;
}

void HubImpl::on_call(const std::shared_ptr<Link>& link, const Trailer& trailer, Bytes& body) {
  const auto& from = incoming(link);
  if (from->is_stale) return link->close();  // it would overtake what has come on the next link
  const auto target = target_of(trailer.actor);
  if (!target) {
    return from->answer(
        trailer.call,
        CallAnswer::of_ended_actor(
            fail(ErrorCode::actor_died, "actor {} is not in its process any more", trailer.actor)));
  }
  const RemoteCall::Origin origin{from->caller, trailer.call, trailer.actor};
  std::shared_ptr<RemoteCall> call;
  if (trailer.kind == FrameKind::call) {
    call = std::make_shared<RemoteCall>(from, origin);
  } else {
    if (from->caller == 0) return link->close();
    auto begun = answers_->begin_call(
        from->caller, from->generation, trailer.generation, trailer.call, target,
        [&] { return std::make_shared<ResendableCall>(from, origin, answers_, target); });
    switch (begun.verdict) {
      case AnswerTable::Verdict::fresh:
        break;
      case AnswerTable::Verdict::known:
        return begun.call->redirect(from);
      case AnswerTable::Verdict::stale:
        return link->close();
      case AnswerTable::Verdict::too_late:
        return from->answer(trailer.call,
                            fail(ErrorCode::actor_unavailable,
                                 "the call came again too late: nobody knows whether it has run"));
    }
    call = std::move(begun.call);
  }
  CallReply reply(call);
  target->deliver({trailer.method, std::move(body), std::move(reply),
                   deadline_of(trailer.remaining_ms), CancelToken(std::move(call)),
                   from->lifetime(), trailer.call});
}

void HubImpl::on_cancel(const std::shared_ptr<Link>& link, const Trailer& trailer) {
  if (const auto call = incoming(link)->find(trailer.call)) {
    cancel_incoming(call->origin().actor, call);
  }
}

void HubImpl::cancel_incoming(ActorId actor, const std::shared_ptr<IncomingCallState>& call) {
  const bool was_queued = call->cancel();
  const auto target = target_of(actor);
  if (!target) return;
  was_queued ? target->drop(CancelToken(call)) : target->on_cancelled(CancelToken(call));
}

void HubImpl::on_acknowledge(const std::shared_ptr<Link>& link, std::span<const std::byte> body) {
  const auto& from = incoming(link);
  if (from->caller == 0 || body.size() % sizeof(CallId) != 0) return link->close();
  std::vector<CallId> calls(body.size() / sizeof(CallId));
  std::memcpy(calls.data(), body.data(), body.size());
  answers_->acknowledge(from->caller, calls);
}

void HubImpl::forget_incoming(const std::shared_ptr<Link>& link) {
  const auto node = incoming_.extract(link.get());
  if (node.empty()) return;
  node.mapped()->end();
  if (node.mapped()->caller == 0) return;
  const auto latest = latest_of_caller_.find(node.mapped()->caller);
  if (latest != latest_of_caller_.end() && latest->second == node.mapped()) {
    latest_of_caller_.erase(latest);
  }
  transport_->run_after(
      options_.kept_answer_limit,
      [answers = answers_, caller = node.mapped()->caller, generation = node.mapped()->generation] {
        answers->give_up(caller, generation);
      });
}

}  // namespace troupe
