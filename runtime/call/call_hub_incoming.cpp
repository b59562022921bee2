#include <cstring>
#include <vector>

#include "runtime/call/callback.hpp"
#include "runtime/call/hub_impl.hpp"
#include "runtime/call/remaining_time.hpp"

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
  const auto over = answers_->begin_link(trailer.actor, trailer.generation, trailer.call);
  if (!over) {
    from->is_stale = true;  // more of it may have been read already
    return link->close();
  }
  from->caller = trailer.actor;
  from->generation = trailer.generation;
  withdraw(*over);
  auto& links = links_of_caller_[from->caller];
  for (const auto& weak : links) {
    const auto earlier = weak.lock();
    if (!earlier) continue;
    earlier->is_stale = true;
    // For the caller they have failed: it has their credit back.
    withdraw(earlier->unanswered_once());
  }
  std::erase_if(links, [](const auto& weak) { return weak.expired(); });
  links.push_back(from);
}

template <class Call>
void HubImpl::withdraw(const std::vector<std::shared_ptr<Call>>& calls) {
  for (const auto& call : calls) {
    if (!call->withdraw()) continue;
    if (const auto target = target_of(call->origin().actor)) target->drop(CancelToken(call));
  }
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
  if (!target || target->incarnation().value_or(trailer.incarnation) != trailer.incarnation) {
    return from->answer(
        trailer.call, trailer.incarnation,
        CallAnswer::of_ended_actor(
            fail(ErrorCode::actor_died, "actor {} is not in its process any more", trailer.actor)));
  }
  const RemoteCall::Origin origin{from->caller, trailer.call, trailer.actor, trailer.incarnation};
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
        return begun.call->redirect(from, trailer.incarnation);
      case AnswerTable::Verdict::stale:
        return link->close();
      case AnswerTable::Verdict::too_late:
        return from->answer(trailer.call, trailer.incarnation,
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
  const auto target = target_of(actor);
  if (!call->cancel()) {
    if (target) target->on_cancelled(CancelToken(call));
    return;
  }
  if (target) target->drop(CancelToken(call));
  call->answer_cancelled();  // which gives the credit back
}

void HubImpl::on_acknowledge(const std::shared_ptr<Link>& link, std::span<const std::byte> body) {
  const auto& from = incoming(link);
  if (from->caller == 0 || body.size() % sizeof(CallId) != 0) return link->close();
  std::vector<CallId> calls(body.size() / sizeof(CallId));
  std::memcpy(calls.data(), body.data(), body.size());
  withdraw(answers_->acknowledge(from->caller, calls));
}

void HubImpl::forget_incoming(const std::shared_ptr<Link>& link) {
  const auto node = incoming_.extract(link.get());
  if (node.empty()) return;
  node.mapped()->end();
  if (node.mapped()->caller == 0) return;
  answers_->end_link(node.mapped()->caller, node.mapped()->generation);
  forget_caller_later(node.mapped()->caller, node.mapped()->generation);
}

void HubImpl::forget_caller_later(CallerId caller, std::uint32_t generation) {
  transport_->run_after(options_.kept_answer_limit, [this, caller, generation] {
    answers_->give_up(caller, generation);
    const auto found = links_of_caller_.find(caller);
    if (found == links_of_caller_.end()) return;
    auto& links = found->second;
    // A link without unanswered calls is gone.
    std::erase_if(links, [](const auto& weak) { return weak.expired(); });
    if (links.empty()) {
      links_of_caller_.erase(found);
    } else if (const auto latest = links.back().lock();
               !latest || latest->generation <= generation) {
      forget_caller_later(caller, generation);
    }
  });
}

}  // namespace troupe
