#include <algorithm>

#include "runtime/call/callback.hpp"
#include "runtime/call/hub_impl.hpp"

namespace troupe {

// The ends of connections, actors and their incarnations, and what follows for calls.

void HubImpl::on_closed(const std::shared_ptr<Link>& link, const Error& why) {
  PendingCalls known;
  std::vector<Orphan> unknown;
  {
    std::lock_guard lock(mutex_);
    const auto found = peer_of_link_.find(link.get());
    if (found == peer_of_link_.end()) return;  // a link that the other side opened
    const std::shared_ptr<Peer> peer = found->second;
    peer_of_link_.erase(found);
    peers_.erase(peer->endpoint);
    for (auto& [id, pending] : peer->pending) {
      if (cause_of_end(pending) || why.code != ErrorCode::peer_died) {
        known.emplace(id, std::move(pending));
      } else {
        unknown.push_back({pending.actor, id});
        orphans_[pending.actor].emplace(id, std::move(pending));
      }
    }
    peer->pending.clear();
  }
  fail_all(known, why.code, why.message);
  if (!unknown.empty()) wait_for_cause(std::move(unknown), why.message);
}

void HubImpl::wait_for_cause(std::vector<Orphan> calls, std::string message) {
  transport_->run_after(options_.cause_grace,
                        [this, calls = std::move(calls), message = std::move(message)] {
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
                          fail_all(late, ErrorCode::peer_died, message);
                        });
}

void HubImpl::fail_all(const PendingCalls& calls, ErrorCode code, const std::string& why) {
  for (const auto& [id, pending] : calls) {
    Error error{code, fmt::format("the call to actor '{}' failed: {}", pending.actor_name, why)};
    {
      std::lock_guard lock(mutex_);
      give_credit(pending.actor, pending.bytes);
      if (const std::string* cause = cause_of_end(pending)) {
        error = {ErrorCode::peer_died, *cause};
      }
    }
    run_callback(pending.completion, std::move(error));
  }
}

const std::string* HubImpl::cause_of_end(const Pending& call) const {
  if (const std::string* cause = called_.cause_of_end(call.actor)) return cause;
  const auto route = routes_.find(call.actor);
  const bool is_of_earlier = route != routes_.end() && call.incarnation < route->second.incarnation;
  return is_of_earlier ? &route->second.last_cause : nullptr;
}

void HubImpl::take_waiting(ActorId actor, Route& route, PendingCalls& calls) {
  for (auto& waiting : route.waiting) {
    if (!waiting.completion) continue;  // it is being sent
    calls.emplace(next_call_++,
                  Pending{actor, 0, waiting.arguments.size(), std::move(waiting.address.name),
                          std::move(waiting.completion)});
  }
}

void HubImpl::mark_down(ActorId id, std::string why) {
  std::unique_lock lock(mutex_);
  if (stopped_ || !called_.note_end(id, std::move(why))) return;
  if (const auto waiting = waiting_for_credit_.find(id); waiting != waiting_for_credit_.end()) {
    for (auto& one : waiting->second) one.notify_one();
  }
  auto route = routes_.extract(id);
  if (!route.empty() && !route.mapped().waiting.empty()) {
    take_waiting(id, route.mapped(), orphans_[id]);
  }
  end_calls(id, std::move(lock));
}

void HubImpl::mark_restarting(ActorId id, std::uint32_t incarnation, std::string why) {
  std::unique_lock lock(mutex_);
  if (stopped_) return;
  Route& route = routes_[id];
  if (incarnation < route.incarnation) return;
  route.incarnation = incarnation + 1;
  route.endpoint.clear();
  route.last_cause = std::move(why);
  end_calls(id, std::move(lock));
}

void HubImpl::mark_moved(const ActorAddress& address) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_ || called_.cause_of_end(address.id)) return;
    Route& route = routes_[address.id];
    if (address.incarnation < route.incarnation || !route.endpoint.empty()) return;
    route.incarnation = address.incarnation;
    route.endpoint = address.endpoint;
    if (route.waiting.empty()) return;
  }
  // Sending may have to wait, but not on the transport's thread.
  transport_->run_after(std::chrono::milliseconds(0),
                        [this, id = address.id] { send_waiting(id); });
}

void HubImpl::send_waiting(ActorId actor) {
  Patience none(std::chrono::nanoseconds(0));  // the transport's thread does not wait
  while (true) {
    std::unique_lock lock(mutex_);
    const auto route = routes_.find(actor);
    if (route == routes_.end() || route->second.endpoint.empty()) return;
    if (route->second.waiting.empty()) return;
    // An entry without completion stays while the call is sent, so that no later one overtakes it.
    WaitingCall call = std::exchange(route->second.waiting.front(), {});
    call.address.endpoint = route->second.endpoint;
    call.address.incarnation = route->second.incarnation;
    if (const auto target = targets_.find(actor); target != targets_.end()) {
      const auto held = target->second;
      lock.unlock();
      call_local(call.address, held,
                 {call.method, std::move(call.arguments), std::move(call.completion)});
    } else {
      call_remote(call.address, call.method, std::move(call.arguments), std::move(call.completion),
                  none, std::move(lock));
    }
    lock = std::unique_lock(mutex_);
    const auto again = routes_.find(actor);
    if (again == routes_.end() || again->second.waiting.front().completion) return;
    again->second.waiting.pop_front();
  }
}

void HubImpl::end_calls(ActorId actor, std::unique_lock<std::mutex> lock) {
  const auto in_flight = in_flight_.find(actor);
  if (in_flight == in_flight_.end()) return;
  PendingCalls unanswered;  // calls of a connection that has ended
  if (auto node = orphans_.extract(actor); !node.empty()) unanswered = std::move(node.mapped());
  const auto peer = in_flight->second.peer;
  const std::uint64_t answers = peer ? peer->answers : 0;
  const bool waits = peer && std::ranges::any_of(peer->pending, [actor](const auto& entry) {
                       return entry.second.actor == actor;
                     });
  lock.unlock();
  if (waits) wait_for_last_answers(actor, peer, answers);
  if (unanswered.empty()) return;
  transport_->run_after(std::chrono::milliseconds(0), [this, calls = std::move(unanswered)] {
    fail_all(calls, ErrorCode::peer_died, "it is gone");
  });
}

void HubImpl::wait_for_last_answers(ActorId actor, std::weak_ptr<Peer> weak,
                                    std::uint64_t answers) {
  transport_->run_after(
      options_.last_answer_timeout, [this, actor, weak = std::move(weak), answers] {
        PendingCalls unanswered;
        {
          std::lock_guard lock(mutex_);
          const auto peer = weak.lock();
          if (!peer) return;
          const auto is_lost = [&](const auto& entry) {
            return entry.second.actor == actor && cause_of_end(entry.second) != nullptr;
          };
          if (std::ranges::none_of(peer->pending, is_lost)) return;
          if (peer->answers != answers) return wait_for_last_answers(actor, peer, peer->answers);
          for (auto it = peer->pending.begin(); it != peer->pending.end();) {
            const auto next = std::next(it);
            if (is_lost(*it)) unanswered.insert(peer->pending.extract(it));
            it = next;
          }
        }
        fail_all(unanswered, ErrorCode::peer_died, "it is gone");
      });
}

}  // namespace troupe
