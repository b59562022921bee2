#include <algorithm>

#include "runtime/call/callback.hpp"
#include "runtime/call/hub_impl.hpp"

namespace troupe {

// Calls that wait for their actor, because it is started again or because its link has ended.

namespace {

constexpr std::chrono::milliseconds first_resend_pause{20}, longest_resend_pause{500};
/// So many answers are acknowledged together, or those of so long a time.
constexpr std::size_t acknowledged_at_once = 64;
constexpr std::chrono::milliseconds acknowledge_pause{100};

}  // namespace

HubImpl::Pending HubImpl::pending_of(const ActorAddress& address, std::uint32_t incarnation,
                                     OutgoingCall call) {
  return {.id = call.id,
          .actor = address.id,
          .bytes = call.bytes,
          .incarnation = incarnation,
          .completion = std::move(call.completion),
          .resend = std::move(call.resend)};
}

HubImpl::Route* HubImpl::route_of(const ActorAddress& address) {
  if (address.is_restartable) {
    Route& route = routes_[address.id];
    route.is_restartable = true;
    return &route;
  }
  if (routes_.empty()) return nullptr;
  const auto found = routes_.find(address.id);
  return found == routes_.end() ? nullptr : &found->second;
}

void HubImpl::add_pending(Callee::Remote& remote, Peer& peer, Pending pending) {
  if (pending.resend) {
    if (pending.incarnation > remote.incarnation) {
      remote.incarnation = pending.incarnation;
      remote.to_earlier += std::exchange(remote.to_latest, 0);
    }
    ++(pending.incarnation == remote.incarnation ? remote.to_latest : remote.to_earlier);
  }
  const CallId id = pending.id;
  Pending& added = pending_.emplace(id, std::move(pending)).first->second;
  added.peer = &peer;
  peer.calls.push_front(added);
  remote.calls.push_front(added);
}

HubImpl::PendingCalls::node_type HubImpl::take_pending(PendingCalls::const_iterator at) {
  auto node = pending_.extract(at);
  Pending& pending = node.mapped();
  CallsOfPeer::remove(pending);
  CallsOfActor::remove(pending);
  pending.peer = nullptr;
  if (!pending.resend) return node;
  Callee& callee = callees_[pending.actor];  // it counts the call
  Callee::Remote& remote = *callee.remote;
  --(pending.incarnation == remote.incarnation ? remote.to_latest : remote.to_earlier);
  const auto route = routes_.find(pending.actor);
  if (route == routes_.end() || route->second.incarnation <= pending.incarnation) return node;
  if (!route->second.waiting.empty() && !callee.is_held(route->second.incarnation)) {
    transport_->run_after(std::chrono::milliseconds(0),
                          [this, actor = pending.actor] { send_waiting(actor); });
  }
  return node;
}

void HubImpl::take_back(ActorId actor, std::uint32_t incarnation) {
  PendingCalls over;
  {
    const std::lock_guard lock(mutex_);
    const auto callee = callees_.find(actor);
    if (stopped_ || callee == callees_.end() || !callee->second.remote) return;
    Pending* next = callee->second.remote->calls.first();
    while (next != nullptr) {
      const Pending& pending = *next;
      next = CallsOfActor::after(pending);
      if (!pending.resend || pending.incarnation >= incarnation) continue;
      auto node = take_pending(pending_.find(pending.id));
      if (!resend(node.key(), node.mapped(), true, false)) over.insert(std::move(node));
    }
  }
  resend_later(actor);
  fail_all(over, ErrorCode::actor_unavailable, "it has been started again");
}

bool HubImpl::resend(CallId id, Pending& pending, bool had_answers, bool actor_left) {
  Resend* resend = pending.resend.get();
  if (resend == nullptr || stopped_ || called_.cause_of_end(pending.actor)) return false;
  if (resend->is_cancelled || std::chrono::steady_clock::now() >= resend->deadline) return false;
  if (actor_left && !resend->address.is_restartable) return false;
  if (had_answers || !resend->reconnect) {
    if (resend->left == 0) return false;
    if (resend->left > 0) --resend->left;
    resend->reconnect.emplace(options_.reconnect_limit);
  } else if (resend->reconnect->is_over()) {
    return false;
  }
  const auto [found, is_new] = routes_.try_emplace(pending.actor);
  Route& route = found->second;
  if (is_new) {
    route.endpoint = resend->address.endpoint;
    route.incarnation = resend->address.incarnation;
    route.is_restartable = resend->address.is_restartable;
  }
  // Supervision tells where the next incarnation is.
  if (actor_left && route.incarnation == pending.incarnation) route.endpoint.clear();
  route.failures = had_answers ? 0 : route.failures + 1;
  WaitingCall waiting{resend->address,
                      {.id = id,
                       .method = resend->method,
                       .bytes = pending.bytes,
                       .completion = std::move(pending.completion),
                       .deadline = resend->deadline,
                       .resend = std::move(pending.resend)}};
  // All that was sent goes before what was not; ids order the calls of each thread.
  waiting.was_sent = true;
  const auto place = std::ranges::find_if(
      route.waiting, [id](const WaitingCall& one) { return !one.was_sent || one.call.id > id; });
  route.waiting.insert(place, std::move(waiting));
  return true;
}

void HubImpl::resend_later(ActorId actor) {
  std::chrono::milliseconds pause = first_resend_pause;
  {
    const std::lock_guard lock(mutex_);
    const auto route = routes_.find(actor);
    if (route == routes_.end()) return;
    pause = std::min(longest_resend_pause, pause * (1 << std::min(route->second.failures, 5)));
  }
  transport_->run_after(pause, [this, actor] { send_waiting(actor); });
}

void HubImpl::take_waiting(Route& route, PendingCalls& calls) {
  for (auto& waiting : route.waiting) {
    if (!waiting.call.completion) continue;  // it is being sent
    const CallId id = waiting.call.id;
    calls.emplace(id, pending_of(std::move(waiting)));
  }
  route.waiting.clear();
}

std::optional<HubImpl::WaitingCall> HubImpl::take_waiting(ActorId actor, CallId call) {
  const auto route = routes_.find(actor);
  if (route == routes_.end()) return std::nullopt;
  auto& waiting = route->second.waiting;
  const auto found = std::ranges::find_if(waiting, [call](const WaitingCall& one) {
    return one.call.id == call && one.call.completion;
  });
  if (found == waiting.end()) return std::nullopt;
  WaitingCall taken = std::move(*found);
  waiting.erase(found);
  return taken;
}

void HubImpl::send_waiting(ActorId actor) {
  Patience none(std::chrono::nanoseconds(0));  // the transport's thread does not wait
  while (true) {
    std::unique_lock lock(mutex_);
    const auto route = routes_.find(actor);
    if (route == routes_.end()) return;
    const auto known = callees_.find(actor);
    const auto target = known == callees_.end() ? nullptr : known->second.target;
    if (route->second.endpoint.empty() && !target) return;
    if (known != callees_.end() && known->second.is_held(route->second.incarnation)) return;
    if (route->second.waiting.empty()) {
      if (!route->second.is_restartable) routes_.erase(route);
      return;
    }
    // An entry without completion stays while the call is sent, so that no later one overtakes it.
    WaitingCall& front = route->second.waiting.front();
    WaitingCall waiting = std::exchange(front, {});
    front.call.id = waiting.call.id;
    front.was_sent = waiting.was_sent;
    Callee& callee = known->second;  // it counts the call
    if (target) {
      lock.unlock();
      call_local(waiting.address, std::move(waiting.call), callee.open, target);
    } else {
      const std::string endpoint = route->second.endpoint;
      call_remote(waiting.address, callee, endpoint, route->second.incarnation,
                  std::move(waiting.call), none, std::move(lock));
    }
    lock = std::unique_lock(mutex_);
    const auto again = routes_.find(actor);
    if (again == routes_.end()) return;
    auto& rest = again->second.waiting;
    const auto sent =
        std::ranges::find_if(rest, [](const WaitingCall& one) { return !one.call.completion; });
    if (sent != rest.end()) rest.erase(sent);
  }
}

void HubImpl::settle(CallId id, const Pending& pending) {
  give_credit(pending.actor, pending.bytes);
  if (!pending.resend) return;
  open_resendable_.erase(id);
  if (pending.resend->first_generation == 0) return;  // nobody knows it
  const auto peer = peers_.find(pending.resend->address.endpoint);
  if (peer == peers_.end()) {
    return acknowledge_later(pending.resend->address.endpoint, std::span(&id, 1));
  }
  auto& acknowledged = peer->second->acknowledged;
  acknowledged.push_back(id);
  if (acknowledged.size() != 1 && acknowledged.size() != acknowledged_at_once) return;
  const auto pause = acknowledged.size() == 1 ? acknowledge_pause : std::chrono::milliseconds(0);
  transport_->run_after(pause,
                        [this, to = std::weak_ptr(peer->second)] { send_acknowledgements(to); });
}

void HubImpl::give_up(CallId id, const Pending& pending) {
  settle(id, pending);
  if (!pending.resend) return;
  const auto peer = peers_.find(pending.resend->address.endpoint);
  if (peer == peers_.end() || peer->second->acknowledged.empty()) return;
  auto& over = peer->second->acknowledged;
  const auto sent = send_frame(*peer->second->link, std::as_bytes(std::span(over)),
                               {.kind = FrameKind::acknowledge}, std::chrono::nanoseconds(0));
  if (sent.ok()) over.clear();
}

void HubImpl::acknowledge_later(const std::string& endpoint, std::span<const CallId> calls) {
  if (calls.empty() || stopped_) return;
  const auto [over, is_new] = unacknowledged_.try_emplace(endpoint);
  over->second.insert(over->second.end(), calls.begin(), calls.end());
  if (!is_new) return;
  // The other side has forgotten them by then.
  transport_->run_after(options_.kept_answer_limit, [this, endpoint] {
    const std::lock_guard lock(mutex_);
    unacknowledged_.erase(endpoint);
  });
}

void HubImpl::send_acknowledgements(const std::weak_ptr<Peer>& to) {
  std::shared_ptr<Link> link;
  std::vector<CallId> calls;
  {
    const std::lock_guard lock(mutex_);
    const auto peer = to.lock();
    if (!peer || peer->is_closed) return;  // acknowledge_later has them
    link = peer->link;
    calls = std::exchange(peer->acknowledged, {});
  }
  if (calls.empty()) return;
  (void)send_frame(*link, std::as_bytes(std::span(calls)), {.kind = FrameKind::acknowledge},
                   std::chrono::nanoseconds(0));
}

void HubImpl::wake_at(CallDeadline when) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(when - std::chrono::steady_clock::now());
  transport_->run_after(std::max(left, std::chrono::milliseconds(0)),
                        [deadlines = deadlines_] { deadlines->complete_due(); });
}

}  // namespace troupe
