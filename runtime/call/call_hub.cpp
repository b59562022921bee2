#include "runtime/call/call_hub.hpp"

#include <algorithm>
#include <iterator>

#include "runtime/call/callback.hpp"
#include "runtime/call/hub_impl.hpp"
#include "runtime/call/remaining_time.hpp"

namespace troupe {

Result<HubImpl::Callee*> HubImpl::take_credit(const ActorAddress& address, std::size_t bytes,
                                              bool has_limit, Patience& patience,
                                              std::unique_lock<std::mutex>& lock) {
  const auto has_ended = [&] { return stopped_ || called_.cause_of_end(address.id) != nullptr; };
  Callee* callee = has_ended() ? nullptr : &callees_[address.id];
  const bool waits = callee != nullptr && has_limit && !has_credit(address.id, callee->open, bytes);
  const auto settled = [&] { return has_ended() || has_credit(address.id, bytes); };
  if (waits && !wait_for_credit(address.id, patience, lock, settled)) {
    wake_for_credit(address.id);  // this one may have been woken in place of the next
    const OpenCalls& open = callees_[address.id].open;
    const auto due = callbacks_->backlog(address.id);
    return fail(
        ErrorCode::resource_exhausted,
        "actor '{}' has {} unanswered calls of {} bytes from this process{}; the limit is "
        "{} calls and {} bytes{}",
        address.name, open.calls(), open.bytes(),
        due.callbacks == 0 ? ""
                           : fmt::format(", and callbacks of {} answers of {} bytes are due",
                                         due.callbacks, due.bytes),
        options_.credits, options_.credit_bytes,
        runs_callback()
            ? ""
            : fmt::format(", and answered none for {} ms", options_.credit_timeout.count()));
  }
  // It may have been forgotten meanwhile.
  if (waits) callee = has_ended() ? nullptr : &callees_[address.id];
  if (callee == nullptr) {
    if (stopped_) return fail(ErrorCode::cancelled, "this process is shutting down");
    return fail(ErrorCode::actor_died, "{}", *called_.cause_of_end(address.id));
  }
  callee->open.add(bytes);
  observer_->on_credit_taken(waits);
  if (waits) wake_for_credit(address.id);  // more may have come back than this call takes
  return callee;
}

bool HubImpl::wait_for_credit(ActorId actor, Patience& patience, std::unique_lock<std::mutex>& lock,
                              const std::function<bool()>& is_settled) {
  auto& queue = waiting_for_credit_[actor];
  const auto own = queue.emplace(queue.end());
  callees_[actor].open.ask_to_be_told();  // before the look that decides to wait
  const auto look = [&] {
    if (is_settled()) return true;
    // There may be room for the next call where there is not for the bytes of this one.
    const auto next = std::next(own);
    if (next != queue.end() && has_credit(actor, 0)) next->notify_one();
    return false;
  };
  const bool settled = wait_until(*own, lock, patience.begin_wait(), look);
  queue.erase(own);
  if (!queue.empty()) return settled;
  waiting_for_credit_.erase(actor);
  const auto callee = callees_.find(actor);
  if (callee == callees_.end()) return settled;
  // The last answer of an actor that has left is to be told in any case.
  if (callee->second.target) callee->second.open.ask_no_more();
  forget_if_over(callee);
  return settled;
}

void HubImpl::wake_for_credit(ActorId actor) {
  if (waiting_for_credit_.empty()) return;
  const auto found = waiting_for_credit_.find(actor);
  if (found != waiting_for_credit_.end() && has_credit(actor, 0))
    found->second.front().notify_one();
}

void HubImpl::give_credit(ActorId actor, std::size_t bytes) {
  const auto found = callees_.find(actor);
  if (found == callees_.end()) return;
  observer_->on_credit_given();
  (void)found->second.open.remove(bytes);
  wake_for_credit(actor);
  forget_if_over(found);
}

void HubImpl::on_credit_back(ActorId actor) {
  const std::lock_guard lock(mutex_);
  wake_for_credit(actor);
  if (const auto found = callees_.find(actor); found != callees_.end()) forget_if_over(found);
}

CallTicket HubImpl::call(const ActorAddress& address, std::uint16_t method, Bytes arguments,
                         CallCompletion completion, const CallTerms& terms) {
  OutgoingCall call{.id = next_call_++,
                    .method = method,
                    .arguments = std::move(arguments),
                    .completion = std::move(completion),
                    .deadline = terms.deadline};
  call.bytes = call.arguments.size();
  std::chrono::nanoseconds patience_limit = options_.credit_timeout;
  if (terms.deadline != no_deadline) {
    const auto left = terms.deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) {
      run_callback(
          call.completion,
          Result<Bytes>(fail(ErrorCode::timed_out,
                             "the deadline of the call to actor '{}' has passed", address.name)));
      return {};
    }
    patience_limit = std::min<std::chrono::nanoseconds>(patience_limit, left);
    call.completion =
        deadlines_->guard(terms.deadline, address.name, std::move(call.completion),
                          [weak = weak_from_this(), actor = address.id, id = call.id] {
                            const auto hub = weak.lock();
                            if (hub) hub->cancel({actor, id});
                          });
  }
  Patience patience(runs_callback() ? std::chrono::nanoseconds(0) : patience_limit);
  std::unique_lock lock(mutex_);
  const bool has_limit = method < first_reserved_method;
  auto credit = take_credit(address, call.bytes, has_limit, patience, lock);
  if (!credit.ok()) {
    lock.unlock();
    Error error = std::move(credit).error();
    if (std::chrono::steady_clock::now() >= terms.deadline) error.code = ErrorCode::timed_out;
    run_callback(call.completion, Result<Bytes>(std::move(error)));
    return {};
  }
  Callee& callee = **credit;
  observer_->on_call(call.id, address, method);
  if (terms.max_retries != 0) {
    call.resend = std::make_unique<Resend>(
        Resend{.method = method,
               .arguments = std::make_shared<const Bytes>(std::exchange(call.arguments, {})),
               .deadline = terms.deadline,
               .left = terms.max_retries});
    open_resendable_.insert(call.id);
  }
  const bool waits = overtakes(address.id, callee);
  if (const auto target = callee.target; target && !waits) {
    lock.unlock();
    return call_local(address, std::move(call), callee.open, target);
  }
  const CallTicket ticket{address.id, call.id};
  if (Route* route = route_of(address)) {
    if (waits || route->endpoint.empty()) {
      route->waiting.push_back({address, std::move(call)});
      const bool is_first = callee.follow(address);
      lock.unlock();
      if (is_first && options_.on_first_call) options_.on_first_call(address);
      return ticket;
    }
    const std::string there = route->endpoint;
    call_remote(address, callee, there, route->incarnation, std::move(call), patience,
                std::move(lock));
    return ticket;
  }
  call_remote(address, callee, address.endpoint, address.incarnation, std::move(call), patience,
              std::move(lock));
  return ticket;
}

std::shared_ptr<HubImpl::Peer> HubImpl::peer_at(const std::string& endpoint) {
  auto& peer = peers_[endpoint];
  if (peer) return peer;
  auto made = std::make_shared<Peer>();
  made->endpoint = endpoint;
  made->generation = ++generation_;
  made->link = transport_->connect(endpoint);
  if (!made->link) {
    peers_.erase(endpoint);
    return nullptr;
  }
  peer_of_link_[made->link.get()] = made;
  peer = made;
  // Nothing is queued yet, so this does not wait.
  const Trailer hello{
      .call = open_resendable_.empty() ? next_call_.load() : *open_resendable_.begin(),
      .actor = caller_,
      .kind = FrameKind::hello,
      .generation = made->generation};
  (void)send_frame(*made->link, {}, hello, std::chrono::nanoseconds(0));
  if (const auto over = unacknowledged_.extract(endpoint); !over.empty()) {
    (void)send_frame(*made->link, std::as_bytes(std::span(over.mapped())),
                     {.kind = FrameKind::acknowledge}, std::chrono::nanoseconds(0));
  }
  return made;
}

void HubImpl::call_remote(const ActorAddress& address, Callee& callee, const std::string& endpoint,
                          std::uint32_t incarnation, OutgoingCall call, Patience& patience,
                          std::unique_lock<std::mutex> lock) {
  const CallId id = call.id;
  Callee::Remote& remote = callee.elsewhere(address);
  auto peer = remote.peer.lock();
  if (!peer || peer->is_closed || peer->endpoint != endpoint) {
    // One of this process has ended, which is not known here yet.
    peer = endpoint == this->endpoint() ? nullptr : peer_at(endpoint);
    remote.peer = peer;
  }
  if (!peer) {
    const bool has_ended = endpoint == this->endpoint();
    if (has_ended && call.resend) {
      call.resend->address = address;
      call.resend->address.incarnation = incarnation;
      // It was not sent, so this is no retry.
      if (!call.resend->reconnect) call.resend->reconnect.emplace(options_.reconnect_limit);
    }
    Pending unsent = pending_of(address, incarnation, std::move(call));
    if (has_ended && resend(id, unsent, false, true)) {
      const bool is_first = callee.follow(address);
      lock.unlock();
      if (is_first && options_.on_first_call) options_.on_first_call(address);
      return resend_later(address.id);
    }
    const Error why = has_ended ? error_of_end(unsent, ErrorCode::actor_died, "it is gone")
                                : fail(ErrorCode::io, "cannot connect to {}", endpoint);
    settle(id, unsent);
    lock.unlock();
    return run_callback(unsent.completion, Result<Bytes>(why));
  }
  Trailer trailer{.call = id,
                  .actor = address.id,
                  .method = call.method,
                  .kind = FrameKind::call,
                  .remaining_ms = remaining_ms(call.deadline),
                  .incarnation = incarnation};
  const Bytes once = std::move(call.arguments);
  std::shared_ptr<const Bytes> kept;
  if (Resend* resend = call.resend.get()) {
    kept = resend->arguments;
    if (resend->first_generation == 0 || resend->address.incarnation != incarnation) {
      resend->first_generation = peer->generation;
      resend->reconnect.reset();
    }
    resend->address = address;
    resend->address.endpoint = endpoint;
    resend->address.incarnation = incarnation;
    trailer.kind = FrameKind::resendable_call;
    trailer.generation = resend->first_generation;
  }
  const Bytes& body = kept ? *kept : once;
  observer_->on_call_sent(body.size() + sizeof trailer);
  add_pending(remote, *peer, pending_of(address, incarnation, std::move(call)));
  const bool is_first = callee.follow(address);
  lock.unlock();
  if (is_first && options_.on_first_call) options_.on_first_call(address);

  auto sent = send_frame(*peer->link, body, trailer, patience.left());
  if (sent.ok() || sent.error().code == ErrorCode::peer_died) return;  // on_closed sees to the call
  lock.lock();
  const auto unsent = pending_.find(id);
  if (unsent == pending_.end() || unsent->second.peer != peer.get()) return;
  auto node = take_pending(unsent);
  settle(id, node.mapped());
  lock.unlock();
  run_callback(node.mapped().completion,
               Result<Bytes>(fail(sent.error().code, "the call to actor '{}' was not sent: {}",
                                  address.name, sent.error().message)));
}

void HubImpl::cancel(const CallTicket& ticket) {
  if (ticket.local.state()) return cancel_incoming(ticket.actor, ticket.local.state());
  if (ticket.call == 0) return;
  std::shared_ptr<Link> link;
  {
    std::unique_lock lock(mutex_);
    if (auto waiting = take_waiting(ticket.actor, ticket.call)) {
      const Pending cancelled = pending_of(*std::move(waiting));
      give_up(ticket.call, cancelled);
      lock.unlock();
      return run_callback(
          cancelled.completion,
          Result<Bytes>(fail(ErrorCode::cancelled, "the call was cancelled before it was sent")));
    }
    const auto found = pending_.find(ticket.call);
    if (found == pending_.end()) return;
    if (found->second.resend) found->second.resend->is_cancelled = true;
    link = found->second.peer->link;
  }
  const Trailer trailer{.call = ticket.call, .actor = ticket.actor, .kind = FrameKind::cancel};
  const auto patience =
      runs_callback() ? std::chrono::milliseconds(0) : std::chrono::milliseconds(1000);
  (void)send_frame(*link, {}, trailer, patience);
}

void HubImpl::on_answer(const std::shared_ptr<Link>& link, const Trailer& trailer, Bytes& body) {
  Pending pending;
  const auto message = [&] {
    return std::string(reinterpret_cast<const char*>(body.data()), body.size());
  };
  std::optional<Error> error;
  if (trailer.status != 0) error = Error{trailer.error_code(), message()};
  {
    std::unique_lock lock(mutex_);
    const auto peer = peer_of_link_.find(link.get());
    if (peer == peer_of_link_.end()) return;
    ++peer->second->answers;
    const auto found = pending_.find(trailer.call);
    if (found == pending_.end() || found->second.peer != peer->second.get()) return;
    // From an incarnation that the call was taken back from.
    if (trailer.incarnation != found->second.incarnation) return;
    auto node = take_pending(found);
    const ActorId actor = node.mapped().actor;
    if (trailer.status == actor_has_left) {
      if (resend(trailer.call, node.mapped(), true, true)) {
        lock.unlock();
        return resend_later(actor);
      }
      if (cause_of_end(node.mapped()) == nullptr) {
        orphans_[actor].insert(std::move(node));
        lock.unlock();
        return wait_for_cause({{actor, trailer.call}}, ErrorCode::actor_died, message());
      }
      error = error_of_end(node.mapped(), ErrorCode::actor_died, error->message);
    }
    pending = std::move(node.mapped());
    settle(trailer.call, pending);
  }
  if (error) return run_callback(pending.completion, Result<Bytes>(*std::move(error)));
  run_callback(pending.completion, Result<Bytes>(std::move(body)));
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
  std::vector<std::shared_ptr<CallTarget>> targets;  // destroyed without the lock
  {
    std::lock_guard lock(mutex_);
    for (auto& [actor, orphans] : orphans_) calls.merge(orphans);
    orphans_.clear();
    for (auto& [actor, route] : routes_) take_waiting(route, calls);
    routes_.clear();
    while (!pending_.empty()) calls.insert(take_pending(pending_.begin()));
    peers_.clear();
    peer_of_link_.clear();
    incoming_.clear();
    links_of_caller_.clear();
    open_resendable_.clear();
    unacknowledged_.clear();
    local_calls_.clear();
    for (auto& [actor, callee] : callees_) targets.push_back(std::move(callee.target));
  }
  answers_->clear();
  fail_all(calls, ErrorCode::cancelled, "this process is shutting down");
  if (callbacks_) callbacks_->stop();
}

Result<std::shared_ptr<CallHub>> CallHub::create(std::unique_ptr<Transport> transport,
                                                 Options options) {
  auto hub = std::make_shared<HubImpl>(std::move(transport), std::move(options));
  TROUPE_CHECK(hub->start());
  hub->weak_ = hub;
  return std::shared_ptr<CallHub>(std::move(hub));
}

}  // namespace troupe
