#include <algorithm>
#include <functional>
#include <set>

#include "runtime/call/callback.hpp"
#include "runtime/call/hub_impl.hpp"

namespace troupe {

// The ends of connections, actors and their incarnations, and what follows for calls.

namespace {

/// Whether a link that ended for this reason may be replaced by another one.
bool is_loss(ErrorCode code) {
  return code == ErrorCode::peer_died || code == ErrorCode::io || code == ErrorCode::timed_out;
}

}  // namespace

void HubImpl::on_closed(const std::shared_ptr<Link>& link, const Error& why) {
  forget_incoming(link);
  PendingCalls known;
  std::vector<Orphan> unknown;
  std::set<ActorId> again;
  {
    std::lock_guard lock(mutex_);
    const auto found = peer_of_link_.find(link.get());
    if (found == peer_of_link_.end()) return;  // a link that the other side opened
    const std::shared_ptr<Peer> peer = found->second;
    peer_of_link_.erase(found);
    peers_.erase(peer->endpoint);
    peer->is_closed = true;
    acknowledge_later(peer->endpoint, peer->acknowledged);
    std::vector<CallId> latest_first;
    for (const Pending* one = peer->calls.first(); one != nullptr;) {
      latest_first.push_back(one->id);
      one = CallsOfPeer::after(*one);
    }
    std::ranges::sort(latest_first, std::greater());
    for (const CallId id : latest_first) {
      auto node = take_pending(pending_.find(id));
      Pending& pending = node.mapped();
      if (is_loss(why.code) && resend(id, pending, peer->answers > 0, false)) {
        again.insert(pending.actor);
      } else if (cause_of_end(pending) || !is_loss(why.code)) {
        known.insert(std::move(node));
      } else {
        unknown.push_back({pending.actor, id});
        orphans_[pending.actor].insert(std::move(node));
      }
    }
  }
  for (const ActorId actor : again) resend_later(actor);
  fail_all(known, why.code, why.message);
  if (!unknown.empty())
    wait_for_cause(std::move(unknown), ErrorCode::actor_unavailable, why.message);
}

void HubImpl::wait_for_cause(std::vector<Orphan> calls, ErrorCode code, std::string message) {
  transport_->run_after(options_.cause_grace,
                        [this, calls = std::move(calls), code, message = std::move(message)] {
                          PendingCalls late;
                          {
                            std::lock_guard lock(mutex_);
                            for (const auto& [actor, id] : calls) {
                              const auto found = orphans_.find(actor);
                              if (found == orphans_.end()) continue;
                              late.insert(found->second.extract(id));
                              if (found->second.empty()) orphans_.erase(found);
                            }
                          }
                          fail_all(late, code, message);
                        });
}

void HubImpl::fail_all(const PendingCalls& calls, ErrorCode code, const std::string& why) {
  for (const auto& [id, pending] : calls) {
    Error error;
    {
      std::lock_guard lock(mutex_);
      error = error_of_end(pending, code, why);
      give_up(id, pending);
    }
    run_callback(pending.completion, Result<Bytes>(std::move(error)));
  }
}

Error HubImpl::error_of_end(const Pending& call, ErrorCode code, const std::string& why) const {
  if (const std::string* cause = called_.cause_of_end(call.actor)) {
    return {ErrorCode::actor_died, *cause};
  }
  if (const std::string* cause = cause_of_end(call)) return {ErrorCode::actor_unavailable, *cause};
  if (call.resend && call.resend->is_cancelled) code = ErrorCode::cancelled;
  const auto route = routes_.find(call.actor);
  const bool is_restartable = route != routes_.end() && route->second.is_restartable;
  if (is_loss(code) || (code == ErrorCode::actor_died && is_restartable)) {
    code = ErrorCode::actor_unavailable;
  }
  const auto callee = callees_.find(call.actor);
  if (call.is_local || callee == callees_.end() || !callee->second.remote) return {code, why};
  return {code, fmt::format("the call to actor '{}' failed: {}", callee->second.remote->name, why)};
}

const std::string* HubImpl::cause_of_end(const Pending& call) const {
  if (const std::string* cause = called_.cause_of_end(call.actor)) return cause;
  const auto route = routes_.find(call.actor);
  const bool is_of_earlier = route != routes_.end() && call.incarnation < route->second.incarnation;
  return is_of_earlier ? &route->second.last_cause : nullptr;
}

void HubImpl::mark_down(ActorId id, std::string why) {
  std::unique_lock lock(mutex_);
  if (stopped_ || !called_.note_end(id, std::move(why))) return;
  if (const auto waiting = waiting_for_credit_.find(id); waiting != waiting_for_credit_.end()) {
    for (auto& one : waiting->second) one.notify_one();
  }
  auto route = routes_.extract(id);
  if (!route.empty() && !route.mapped().waiting.empty()) {
    take_waiting(route.mapped(), orphans_[id]);
  }
  if (const auto callee = callees_.find(id); callee != callees_.end()) {
    callee->second.open.ask_to_be_told();
    if (callee->second.remote) callee->second.remote->is_followed = false;
    forget_if_over(callee);
  }
  end_calls(id, std::move(lock));
}

void HubImpl::mark_restarting(ActorId id, std::uint32_t incarnation, std::string why) {
  std::unique_lock lock(mutex_);
  if (stopped_ || called_.cause_of_end(id)) return;
  Route& route = routes_[id];
  route.is_restartable = true;
  if (incarnation < route.incarnation) return;
  route.incarnation = incarnation + 1;
  route.endpoint.clear();
  route.last_cause = std::move(why);
  route.last_end = std::chrono::steady_clock::now();
  end_calls(id, std::move(lock));
}

void HubImpl::mark_moved(const ActorAddress& address) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_ || called_.cause_of_end(address.id)) return;
    Route& route = routes_[address.id];
    route.is_restartable = true;
    const bool is_later = address.incarnation > route.incarnation;
    if (!is_later && (address.incarnation < route.incarnation || !route.endpoint.empty())) return;
    route.incarnation = address.incarnation;
    route.endpoint = address.endpoint;
    const auto callee = callees_.find(address.id);
    if (callee != callees_.end() && callee->second.is_held(address.incarnation)) {
      const auto left = route.last_end + options_.handover_limit - std::chrono::steady_clock::now();
      transport_->run_after(std::max(std::chrono::ceil<std::chrono::milliseconds>(left),
                                     std::chrono::milliseconds(0)),
                            [this, id = address.id, incarnation = address.incarnation] {
                              take_back(id, incarnation);
                            });
    }
    if (route.waiting.empty()) return;
  }
  // Sending may have to wait, but not on the transport's thread.
  transport_->run_after(std::chrono::milliseconds(0),
                        [this, id = address.id] { send_waiting(id); });
}

void HubImpl::end_calls(ActorId actor, std::unique_lock<std::mutex> lock) {
  const auto callee = callees_.find(actor);
  if (callee == callees_.end()) return;
  PendingCalls unanswered;  // calls of a connection that has ended
  if (auto node = orphans_.extract(actor); !node.empty()) unanswered = std::move(node.mapped());
  std::shared_ptr<Peer> peer;
  if (Callee::Remote* const remote = callee->second.remote.get()) {
    for (Pending* one = remote->calls.first(); one != nullptr; one = CallsOfActor::after(*one)) {
      one->is_lost = cause_of_end(*one) != nullptr;
    }
    if (!remote->calls.empty()) peer = remote->peer.lock();
  }
  const std::uint64_t answers = peer ? peer->answers : 0;
  lock.unlock();
  if (peer) wait_for_last_answers(actor, peer, answers);
  if (unanswered.empty()) return;
  transport_->run_after(std::chrono::milliseconds(0),
                        [this, calls = std::make_shared<PendingCalls>(std::move(unanswered))] {
                          fail_all(*calls, ErrorCode::actor_died, "it is gone");
                        });
}

void HubImpl::wait_for_last_answers(ActorId actor, std::weak_ptr<Peer> weak,
                                    std::uint64_t answers) {
  transport_->run_after(
      options_.last_answer_timeout, [this, actor, weak = std::move(weak), answers] {
        PendingCalls unanswered;
        bool again = false;
        {
          std::lock_guard lock(mutex_);
          const auto peer = weak.lock();
          const auto callee = callees_.find(actor);
          if (!peer || callee == callees_.end() || !callee->second.remote) return;
          std::vector<CallId> lost;
          for (const Pending* one = callee->second.remote->calls.first(); one != nullptr;) {
            if (one->is_lost && one->peer == peer.get()) lost.push_back(one->id);
            one = CallsOfActor::after(*one);
          }
          if (lost.empty()) return;
          if (peer->answers != answers) return wait_for_last_answers(actor, peer, peer->answers);
          for (const CallId id : lost) {
            auto node = take_pending(pending_.find(id));
            const bool is_again = resend(id, node.mapped(), true, false);
            if (!is_again) unanswered.insert(std::move(node));
            again = again || is_again;
          }
        }
        if (again) resend_later(actor);
        fail_all(unanswered, ErrorCode::actor_died, "it is gone");
      });
}

}  // namespace troupe
