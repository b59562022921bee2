#include "runtime/base/log.hpp"
#include "runtime/object/store_impl.hpp"

namespace troupe {

// The processes that this one keeps something for, and their ends.

namespace {

/// A peer whose link is over is asked so often, and answers at once if it lives.
constexpr int looks_for_peer = 3;
constexpr std::chrono::milliseconds look_limit{5000};
/// One that is not there because its node is lost has so long to say that it is: a node that has
/// come in its place has the same locality.
constexpr std::chrono::milliseconds lost_node_limit{2000};

}  // namespace

bool StoreImpl::is_watched(StoreId peer) {
  const Lock lock(mutex_);
  return peers_.contains(peer);
}

void StoreImpl::watch_peer(const std::string& endpoint, Later& later) {
  const StoreId peer = store_at(endpoint);
  if (peer == self_ || is_stopping_ || peers_.contains(peer)) return;
  peers_.emplace(peer, Peer{endpoint});
  later.run.emplace_back([weak = weak_from_this(), endpoint] {
    if (const auto self = weak.lock()) self->watch(endpoint);
  });
}

void StoreImpl::watch(const std::string& endpoint) {
  call_store(endpoint, StoreMethod::live, {},
             [weak = weak_from_this(), endpoint](const Result<Bytes>& answer) {
               const auto self = weak.lock();
               if (!self || self->is_stopping_ || answer.ok()) return;
               if (answer.error().code == ErrorCode::resource_exhausted) {  // it was not sent
                 return self->hub_->run_after(std::chrono::milliseconds(100), [weak, endpoint] {
                   if (const auto again = weak.lock()) again->watch(endpoint);
                 });
               }
               self->look_for_peer(endpoint, looks_for_peer, answer.error().message);
             });
}

void StoreImpl::look_for_peer(const std::string& endpoint, int tries, std::string cause) {
  if (tries == 0) return on_peer_gone(store_at(endpoint), cause);
  call_store(
      endpoint, StoreMethod::are_you_there, {},
      [weak = weak_from_this(), endpoint, tries, cause](const Result<Bytes>& answer) {
        const auto self = weak.lock();
        if (!self || self->is_stopping_) return;
        if (answer.ok()) return self->watch(endpoint);
        const bool may_pass = answer.error().code == ErrorCode::actor_unavailable ||
                              answer.error().code == ErrorCode::resource_exhausted;
        self->look_for_peer(endpoint, may_pass ? tries - 1 : 0, cause);
      },
      CallTerms{.deadline = Clock::now() + look_limit});
}

void StoreImpl::on_node_lost(const std::string& locality, const std::string& how) {
  std::vector<std::string> endpoints;
  {
    const Lock lock(mutex_);
    for (const auto& [id, peer] : peers_) {
      if (locality_of(peer.endpoint) == locality) endpoints.push_back(peer.endpoint);
    }
  }
  for (const std::string& endpoint : endpoints) {
    hub_->call(
        address_of_store(endpoint), static_cast<std::uint16_t>(StoreMethod::are_you_there), {},
        [weak = weak_from_this(), endpoint, locality, how](const Result<Bytes>& answer) {
          const auto self = weak.lock();
          if (!self || self->is_stopping_ || answer.ok()) return;
          // What is asked of it fails, also `live`, and so its end is seen.
          self->hub_->mark_down(store_at(endpoint), fmt::format("node '{}' {}", locality, how));
        },
        CallTerms{.deadline = Clock::now() + lost_node_limit});
  }
}

void StoreImpl::on_peer_gone(StoreId peer, const std::string& cause) {
  Later later;
  std::vector<Wait> waits;  // destroyed without the lock
  std::string server;
  {
    const Lock lock(mutex_);
    if (is_stopping_) return;
    if (const auto known = peers_.extract(peer)) server = known.mapped().server;
    for (const Number number : references_.remove_peer(peer)) free_owned(number, later);
    for (const Number number : copies_.remove_peer(peer)) {
      look_for_copies(number, fmt::format("is gone: {}", cause), later);
    }
    for (auto& freed : held_.remove_reader(peer)) later.freed.push_back(std::move(freed));
    for (auto& freed : held_.remove_owner(peer)) later.freed.push_back(std::move(freed));
    std::vector<WaitNumber> over;
    for (const auto& [number, wait] : waits_) {
      if (wait.asker.store == peer) over.push_back(number);
    }
    for (const WaitNumber number : over) waits.push_back(*take_wait(number));
    tell_ledger();
  }
  if (!server.empty()) segments_.forget(server);
  finish(std::move(later));
}

}  // namespace troupe
