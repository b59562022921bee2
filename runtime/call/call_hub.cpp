#include "runtime/call/call_hub.hpp"

#include <iterator>

#include "runtime/call/callback.hpp"
#include "runtime/call/hub_impl.hpp"

namespace troupe {

Result<void> HubImpl::take_credit(const ActorAddress& address, std::size_t bytes,
                                  Patience& patience, std::unique_lock<std::mutex>& lock) {
  const auto settled = [&] {
    return stopped_ || called_.cause_of_end(address.id) || has_credit(address.id, bytes);
  };
  const bool waits = !settled();
  if (waits && !wait_for_credit(address.id, patience, lock, settled)) {
    wake_for_credit(address.id);  // this one may have been woken in place of the next
    const InFlight calls = in_flight_of(address.id);
    const auto due = callbacks_->backlog(address.id);
    return fail(
        ErrorCode::resource_exhausted,
        "actor '{}' has {} unanswered calls of {} bytes from this process{}; the limit is "
        "{} calls and {} bytes{}",
        address.name, calls.calls, calls.bytes,
        due.callbacks == 0 ? ""
                           : fmt::format(", and callbacks of {} answers of {} bytes are due",
                                         due.callbacks, due.bytes),
        options_.credits, options_.credit_bytes,
        runs_callback()
            ? ""
            : fmt::format(", and answered none for {} ms", options_.credit_timeout.count()));
  }
  if (stopped_) return fail(ErrorCode::cancelled, "this process is shutting down");
  if (const std::string* cause = called_.cause_of_end(address.id)) {
    return fail(ErrorCode::peer_died, "{}", *cause);
  }
  InFlight& in_flight = in_flight_[address.id];
  ++in_flight.calls;
  in_flight.bytes += bytes;
  observer_->on_credit_taken(waits);
  if (waits) wake_for_credit(address.id);  // more may have come back than this call takes
  return {};
}

bool HubImpl::wait_for_credit(ActorId actor, Patience& patience, std::unique_lock<std::mutex>& lock,
                              const std::function<bool()>& is_settled) {
  auto& queue = waiting_for_credit_[actor];
  const auto own = queue.emplace(queue.end());
  const auto look = [&] {
    if (is_settled()) return true;
    // There may be room for the next call where there is not for the bytes of this one.
    const auto next = std::next(own);
    if (next != queue.end() && has_credit(actor, 0)) next->notify_one();
    return false;
  };
  const bool settled = wait_until(*own, lock, patience.begin_wait(), look);
  queue.erase(own);
  if (queue.empty()) waiting_for_credit_.erase(actor);
  return settled;
}

void HubImpl::wake_for_credit(ActorId actor) {
  const auto found = waiting_for_credit_.find(actor);
  if (found != waiting_for_credit_.end() && has_credit(actor, 0))
    found->second.front().notify_one();
}

void HubImpl::give_credit(ActorId actor, std::size_t bytes) {
  const auto found = in_flight_.find(actor);
  if (found == in_flight_.end()) return;
  found->second.bytes -= bytes;
  observer_->on_credit_given();
  if (--found->second.calls == 0) in_flight_.erase(found);
  wake_for_credit(actor);
}

void HubImpl::call(const ActorAddress& address, std::uint16_t method, Bytes arguments,
                   CallCompletion completion) {
  Patience patience(runs_callback() ? std::chrono::milliseconds(0) : options_.credit_timeout);
  std::unique_lock lock(mutex_);
  if (auto credit = take_credit(address, arguments.size(), patience, lock); !credit.ok()) {
    lock.unlock();
    return run_callback(completion, credit.error());
  }
  if (const auto target = targets_.find(address.id); target != targets_.end()) {
    const auto held = target->second;
    const CallId id = next_call_++;
    observer_->on_call(id, address, method);
    lock.unlock();
    return call_local(address, held, {method, std::move(arguments), std::move(completion), id});
  }
  if (address.is_restartable) {
    Route& route = routes_[address.id];
    if (route.endpoint.empty() || !route.waiting.empty()) {
      route.waiting.push_back({address, method, std::move(arguments), std::move(completion)});
      const bool is_first = called_.note_call(address.id);
      lock.unlock();
      if (is_first && options_.on_first_call) options_.on_first_call(address);
      return;
    }
    ActorAddress latest = address;
    latest.endpoint = route.endpoint;
    latest.incarnation = route.incarnation;
    return call_remote(latest, method, std::move(arguments), std::move(completion), patience,
                       std::move(lock));
  }
  if (address.endpoint == endpoint()) {
    give_credit(address.id, arguments.size());
    lock.unlock();
    return run_callback(completion, fail(ErrorCode::peer_died, "actor '{}' is gone", address.name));
  }
  call_remote(address, method, std::move(arguments), std::move(completion), patience,
              std::move(lock));
}

void HubImpl::call_remote(const ActorAddress& address, std::uint16_t method, Bytes arguments,
                          CallCompletion completion, Patience& patience,
                          std::unique_lock<std::mutex> lock) {
  auto& peer = peers_[address.endpoint];
  if (!peer) {
    peer = std::make_shared<Peer>();
    peer->endpoint = address.endpoint;
    peer->link = transport_->connect(address.endpoint);
    if (peer->link) peer_of_link_[peer->link.get()] = peer;
  }
  if (!peer->link) {
    peers_.erase(address.endpoint);
    give_credit(address.id, arguments.size());
    lock.unlock();
    return run_callback(completion, fail(ErrorCode::io, "cannot connect to {}", address.endpoint));
  }
  const auto held = peer;
  const CallId id = next_call_++;
  observer_->on_call(id, address, method);
  observer_->on_call_sent(arguments.size() + sizeof(Trailer));
  held->pending.emplace(id, Pending{address.id, address.incarnation, arguments.size(), address.name,
                                    std::move(completion)});
  if (auto& latest = in_flight_[address.id].peer; latest != held) latest = held;
  const bool is_first = called_.note_call(address.id);
  lock.unlock();
  if (is_first && options_.on_first_call) options_.on_first_call(address);

  const Trailer trailer{id, address.id, method, 0, FrameKind::call, 0};
  auto sent = send_frame(*held->link, arguments, trailer, patience.left());
  if (sent.ok() || sent.error().code == ErrorCode::peer_died) return;  // on_closed fails the call
  lock.lock();
  auto node = held->pending.extract(id);
  if (node.empty()) return;
  give_credit(address.id, arguments.size());
  lock.unlock();
  run_callback(node.mapped().completion,
               fail(sent.error().code, "the call to actor '{}' was not sent: {}", address.name,
                    sent.error().message));
}

void HubImpl::call_local(const ActorAddress& address, const std::shared_ptr<CallTarget>& target,
                         IncomingCall call) {
  call.answer = [self = shared_from_this(), this, actor = address.id, bytes = call.arguments.size(),
                 completion = std::move(call.answer)](Result<Bytes> answer) {
    {
      std::lock_guard lock(mutex_);
      give_credit(actor, bytes);
    }
    run_callback(completion, std::move(answer));
  };
  target->deliver(std::move(call));
}

void HubImpl::on_frame(const std::shared_ptr<Link>& link, Bytes& frame) {
  observer_->on_received(frame.size());
  const auto trailer = take_trailer(frame);
  if (!trailer) return link->close();
  switch (trailer->kind) {
    case FrameKind::call:
      return on_call(link, *trailer, frame);
    case FrameKind::answer:
      return on_answer(link, *trailer, frame);
  }
  link->close();
}

void HubImpl::on_call(const std::shared_ptr<Link>& link, const Trailer& trailer, Bytes& body) {
  auto answer = [link, call = trailer.call, observer = observer_](const Result<Bytes>& result) {
    const auto sent = send_answer(*link, call, result);
    if (sent.ok()) observer->on_answer_sent(sizeof(Trailer) + (result.ok() ? result->size() : 0));
    if (sent.ok() || sent.error().code == ErrorCode::peer_died) return;
    if (sent.error().code == ErrorCode::invalid_argument) {  // only this caller is affected
      const Error refusal =
          fail(ErrorCode::invalid_argument, "the answer was not sent: {}", sent.error().message);
      if (send_answer(*link, call, refusal).ok()) return;
    }
    // Give up a peer that reads no answers for so long: it would wait for ever.
    link->close();
  };
  std::shared_ptr<CallTarget> target;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = targets_.find(trailer.actor); found != targets_.end())
      target = found->second;
  }
  if (!target) {
    const Error gone =
        fail(ErrorCode::peer_died, "actor {} is not in its process any more", trailer.actor);
    if (!send_answer(*link, trailer.call, gone, actor_has_left).ok()) link->close();
    return;
  }
  target->deliver({trailer.method, std::move(body), std::move(answer), trailer.call});
}

void HubImpl::on_answer(const std::shared_ptr<Link>& link, const Trailer& trailer, Bytes& body) {
  Pending pending;
  bool is_orphan = false;
  {
    std::lock_guard lock(mutex_);
    const auto peer = peer_of_link_.find(link.get());
    if (peer == peer_of_link_.end()) return;
    ++peer->second->answers;
    const auto found = peer->second->pending.find(trailer.call);
    if (found == peer->second->pending.end()) return;
    auto node = peer->second->pending.extract(found);
    const std::string* cause = cause_of_end(node.mapped());
    if (trailer.status == actor_has_left && cause == nullptr) {
      pending.actor = node.mapped().actor;
      orphans_[pending.actor].insert(std::move(node));
      is_orphan = true;
    } else {
      pending = std::move(node.mapped());
      give_credit(pending.actor, pending.bytes);
      // Its process answers for an actor that has just ended; the reported cause says more.
      const bool has_died =
          trailer.status == actor_has_left || trailer.status == status_of(ErrorCode::peer_died);
      if (has_died && cause != nullptr) {
        const auto text = std::as_bytes(std::span(*cause));
        body.assign(text.begin(), text.end());
      }
    }
  }
  if (is_orphan) {
    return wait_for_cause({{pending.actor, trailer.call}},
                          {reinterpret_cast<const char*>(body.data()), body.size()});
  }
  if (trailer.status == 0) return run_callback(pending.completion, std::move(body));
  run_callback(pending.completion,
               Error{trailer.error_code(),
                     std::string(reinterpret_cast<const char*>(body.data()), body.size())});
}

void HubImpl::stop() {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    for (auto& [actor, queue] : waiting_for_credit_) {
      for (auto& waiting : queue) waiting.notify_one();
    }
  }
  transport_->stop();
  PendingCalls calls;
  std::unordered_map<ActorId, std::shared_ptr<CallTarget>> targets;
  {
    std::lock_guard lock(mutex_);
    for (auto& [endpoint, peer] : peers_) calls.merge(peer->pending);
    for (auto& [actor, orphans] : orphans_) calls.merge(orphans);
    orphans_.clear();
    for (auto& [actor, route] : routes_) take_waiting(actor, route, calls);
    routes_.clear();
    peers_.clear();
    peer_of_link_.clear();
    targets = std::exchange(targets_, {});
  }
  fail_all(calls, ErrorCode::cancelled, "this process is shutting down");
  if (callbacks_) callbacks_->stop();
}

Result<std::shared_ptr<CallHub>> CallHub::create(std::unique_ptr<Transport> transport,
                                                 Options options) {
  auto hub = std::make_shared<HubImpl>(std::move(transport), std::move(options));
  TROUPE_CHECK(hub->start());
  return std::shared_ptr<CallHub>(std::move(hub));
}

}  // namespace troupe
