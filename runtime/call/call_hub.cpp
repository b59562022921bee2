#include "runtime/call/call_hub.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/base/deadline.hpp"
#include "runtime/call/call_frame.hpp"
#include "runtime/call/callback.hpp"
#include "runtime/call/called_actors.hpp"

namespace troupe {
namespace {

struct Pending {
  ActorId actor = 0;
  std::uint32_t incarnation = 0;  ///< that it was sent to
  std::size_t bytes = 0;          ///< of its arguments
  std::string actor_name;
  CallCompletion completion;
};

using PendingCalls = std::unordered_map<CallId, Pending>;

/// A link that this process opened, with its unanswered calls.
struct Peer {
  std::string endpoint;
  std::shared_ptr<Link> link;
  PendingCalls pending;
  std::uint64_t answers = 0;  ///< count of all answers so far
};

/// A call that waits for an actor to be started again.
struct WaitingCall {
  ActorAddress address;
  std::uint16_t method = 0;
  Bytes arguments;
  CallCompletion completion;
};

/// Where a restartable actor is.
struct Route {
  std::string endpoint;           ///< empty: not known, or the actor is not there
  std::uint32_t incarnation = 0;  ///< that is there or is awaited
  std::string last_cause;         ///< of the end of the incarnation before
  std::deque<WaitingCall> waiting;
};

/// The unanswered calls to one actor.
struct InFlight {
  std::size_t calls = 0, bytes = 0;
  std::shared_ptr<Peer> peer;  ///< the link that they went through; none for a local actor
};

class HubImpl final : public CallHub {
 public:
  HubImpl(std::unique_ptr<Transport> transport, Options options)
      : options_(std::move(options)),
        transport_(std::move(transport)),
        called_(options_.remembered_ends) {}
  ~HubImpl() override { stop(); }

  Result<void> start() {
    TROUPE_TRY(callbacks_, CallbackThread::start([weak = weak_from_this()] {
                 const auto hub = std::static_pointer_cast<HubImpl>(weak.lock());
                 if (!hub) return;
                 std::lock_guard lock(hub->mutex_);
                 if (hub->waiting_for_credit_ > 0) hub->credit_given_.notify_all();
               }));
    return transport_->start(
        {[this](const std::shared_ptr<Link>& link, Bytes& frame) { on_frame(link, frame); },
         [this](const std::shared_ptr<Link>& link, const Error& why) { on_closed(link, why); }});
  }

  const std::string& endpoint() const override { return transport_->endpoint(); }

  void add_target(ActorId id, std::shared_ptr<CallTarget> target) override {
    std::lock_guard lock(mutex_);
    targets_[id] = std::move(target);
  }

  void remove_target(ActorId id) override {
    std::shared_ptr<CallTarget> removed;  // destroyed without the lock
    std::lock_guard lock(mutex_);
    if (auto found = targets_.find(id); found != targets_.end()) {
      removed = std::move(found->second);
      targets_.erase(found);
    }
  }

  void call(const ActorAddress& address, std::uint16_t method, Bytes arguments,
            CallCompletion completion) override;
  const std::shared_ptr<CallbackThread>& callbacks() const override { return callbacks_; }
  void mark_down(ActorId id, std::string why) override;
  void mark_restarting(ActorId id, std::uint32_t incarnation, std::string why) override;
  void mark_moved(const ActorAddress& address) override;
  Result<void> flush(std::chrono::milliseconds timeout) override {
    return transport_->flush(timeout);
  }
  void stop() override;

 private:
  Result<void> take_credit(const ActorAddress& address, std::size_t bytes,
                           std::unique_lock<std::mutex>& lock);
  void give_credit(ActorId actor, std::size_t bytes);
  InFlight in_flight_of(ActorId actor) const {
    const auto found = in_flight_.find(actor);
    return found == in_flight_.end() ? InFlight{} : found->second;
  }
  bool has_credit(ActorId actor, std::size_t bytes) const {
    const InFlight calls = in_flight_of(actor);
    const auto due = callbacks_->backlog(actor);
    const std::size_t count = calls.calls + due.callbacks;
    return count == 0 ||
           (count < options_.credits && calls.bytes + due.bytes + bytes <= options_.credit_bytes);
  }
  void call_local(const ActorAddress& address, const std::shared_ptr<CallTarget>& target,
                  IncomingCall call);
  /// Sends a call that has its credit to another process; mutex_ is held by `lock`, and released.
  void call_remote(const ActorAddress& address, std::uint16_t method, Bytes arguments,
                   CallCompletion completion, std::unique_lock<std::mutex> lock);
  /// Sends the calls that have waited for the actor, as long as it is there.
  void send_waiting(ActorId actor);
  /// Moves the calls that wait for the actor to `calls`; mutex_ is held.
  void take_waiting(ActorId actor, Route& route, PendingCalls& calls);
  /// Why the actor that the call was sent to is gone, or null; mutex_ is held.
  const std::string* cause_of_end(const Pending& call) const;
  void on_frame(const std::shared_ptr<Link>& link, Bytes& frame);
  void on_call(const std::shared_ptr<Link>& link, const Trailer& trailer, Bytes& body);
  void on_answer(const std::shared_ptr<Link>& link, const Trailer& trailer, Bytes& body);
  void on_closed(const std::shared_ptr<Link>& link, const Error& why);
  void fail_all(const PendingCalls& calls, ErrorCode code, const std::string& why);
  struct Orphan {
    ActorId actor = 0;
    CallId call = 0;
  };
  /// Fails those of the orphans that are still there after `cause_grace`.
  void wait_for_cause(std::vector<Orphan> calls, std::string message);
  /// Sees to the unanswered calls of an actor that is marked down, or of an incarnation of it;
  /// mutex_ is held by `lock`, and released.
  void end_calls(ActorId actor, std::unique_lock<std::mutex> lock);
  /// Fails the calls to an actor that is marked down once their peer has been silent for a whole
  /// `last_answer_timeout`; `answers` is the peer's count at the beginning of that time.
  void wait_for_last_answers(ActorId actor, std::weak_ptr<Peer> peer, std::uint64_t answers);

  const Options options_;
  std::shared_ptr<CallbackThread> callbacks_;
  const std::unique_ptr<Transport> transport_;

  std::mutex mutex_;
  std::condition_variable credit_given_;
  bool stopped_ = false;
  CallId next_call_ = 1;
  std::unordered_map<ActorId, std::shared_ptr<CallTarget>> targets_;
  std::unordered_map<std::string, std::shared_ptr<Peer>> peers_;  ///< by endpoint
  std::unordered_map<Link*, std::shared_ptr<Peer>> peer_of_link_;
  /// The calls to each actor whose link has closed, or that has left its process, for a cause that
  /// is not known yet.
  std::unordered_map<ActorId, PendingCalls> orphans_;
  std::unordered_map<ActorId, InFlight> in_flight_;
  std::size_t waiting_for_credit_ = 0;  ///< threads
  CalledActors called_;
  std::unordered_map<ActorId, Route> routes_;  ///< of restartable actors that live
};

Result<void> HubImpl::take_credit(const ActorAddress& address, std::size_t bytes,
                                  std::unique_lock<std::mutex>& lock) {
  const auto settled = [&] {
    return stopped_ || called_.cause_of_end(address.id) || has_credit(address.id, bytes);
  };
  const auto wait_until_settled = [&] {
    ++waiting_for_credit_;
    const bool is_settled = wait_for(credit_given_, lock, options_.credit_timeout, settled);
    --waiting_for_credit_;
    return is_settled;
  };
  if (!settled() && (runs_callback() || !wait_until_settled())) {
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
  return {};
}

void HubImpl::give_credit(ActorId actor, std::size_t bytes) {
  const auto found = in_flight_.find(actor);
  if (found == in_flight_.end()) return;
  found->second.bytes -= bytes;
  if (--found->second.calls == 0) in_flight_.erase(found);
  if (waiting_for_credit_ > 0) credit_given_.notify_all();
}

void HubImpl::call(const ActorAddress& address, std::uint16_t method, Bytes arguments,
                   CallCompletion completion) {
  std::unique_lock lock(mutex_);
  if (auto credit = take_credit(address, arguments.size(), lock); !credit.ok()) {
    lock.unlock();
    return run_callback(completion, credit.error());
  }
  if (const auto target = targets_.find(address.id); target != targets_.end()) {
    const auto held = target->second;
    lock.unlock();
    return call_local(address, held, {method, std::move(arguments), std::move(completion)});
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
    return call_remote(latest, method, std::move(arguments), std::move(completion),
                       std::move(lock));
  }
  if (address.endpoint == endpoint()) {
    give_credit(address.id, arguments.size());
    lock.unlock();
    return run_callback(completion, fail(ErrorCode::peer_died, "actor '{}' is gone", address.name));
  }
  call_remote(address, method, std::move(arguments), std::move(completion), std::move(lock));
}

void HubImpl::call_remote(const ActorAddress& address, std::uint16_t method, Bytes arguments,
                          CallCompletion completion, std::unique_lock<std::mutex> lock) {
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
  held->pending.emplace(id, Pending{address.id, address.incarnation, arguments.size(), address.name,
                                    std::move(completion)});
  if (auto& latest = in_flight_[address.id].peer; latest != held) latest = held;
  const bool is_first = called_.note_call(address.id);
  lock.unlock();
  if (is_first && options_.on_first_call) options_.on_first_call(address);

  const Trailer trailer{id, address.id, method, 0, FrameKind::call, 0};
  auto sent = send_frame(*held->link, arguments, trailer);
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
  auto answer = [link, call = trailer.call](const Result<Bytes>& result) {
    const auto sent = send_answer(*link, call, result);
    if (sent.ok() || sent.error().code == ErrorCode::peer_died) return;
    if (sent.error().code == ErrorCode::invalid_argument) {  // only this caller is affected
      const Error refusal =
          fail(ErrorCode::invalid_argument, "the answer was not sent: {}", sent.error().message);
      if (send_answer(*link, call, refusal).ok()) return;
    }
    // Give up a peer that reads no answers for the send timeout: it would wait for ever.
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
  target->deliver({trailer.method, std::move(body), std::move(answer)});
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
  credit_given_.notify_all();
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
  while (true) {
    std::unique_lock lock(mutex_);
    const auto route = routes_.find(actor);
    if (route == routes_.end() || route->second.endpoint.empty()) return;
    if (route->second.waiting.empty()) return;
    // An entry without completion stays while the call is sent, so that no later one overtakes it.
    WaitingCall call = std::exchange(route->second.waiting.front(), {});
    call.address.endpoint = route->second.endpoint;
    call.address.incarnation = route->second.incarnation;
    call_remote(call.address, call.method, std::move(call.arguments), std::move(call.completion),
                std::move(lock));
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

void HubImpl::stop() {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    credit_given_.notify_all();
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

}  // namespace

Result<std::shared_ptr<CallHub>> CallHub::create(std::unique_ptr<Transport> transport,
                                                 Options options) {
  auto hub = std::make_shared<HubImpl>(std::move(transport), std::move(options));
  TROUPE_CHECK(hub->start());
  return std::shared_ptr<CallHub>(std::move(hub));
}

}  // namespace troupe
