#include "runtime/base/log.hpp"
#include "runtime/object/store_impl.hpp"

namespace troupe {

// What is told to other stores, and their ends.

void StoreImpl::note(const std::string& endpoint, StoreNote::Kind kind, const ObjectId& object,
                     Later& later, std::shared_ptr<Borrow> borrow, std::uint64_t registration) {
  const StoreId peer = store_at(endpoint);
  Outbox& outbox = outboxes_[peer];
  outbox.endpoint = endpoint;
  outbox.notes.push_back({{kind, object}, std::move(borrow), registration});
  watch_peer(endpoint, later);
  if (!outbox.is_sending) later.outboxes.push_back(peer);
}

void StoreImpl::send_notes(StoreId peer) {
  std::vector<OutNote> notes;
  std::string endpoint;
  {
    const Lock lock(mutex_);
    const auto found = outboxes_.find(peer);
    if (found == outboxes_.end() || found->second.is_sending) return;
    if (found->second.notes.empty()) {
      outboxes_.erase(found);
      return;
    }
    found->second.is_sending = true;
    notes.swap(found->second.notes);
    endpoint = found->second.endpoint;
  }
  StoreNotes message{endpoint_, {}};
  for (const OutNote& one : notes) message.notes.push_back(one.note);
  hub_->call(address_of_store(endpoint), static_cast<std::uint16_t>(StoreMethod::notes),
             encode(message),
             [weak = weak_from_this(), peer, sent = std::move(notes)](const Result<Bytes>& answer) {
               if (const auto self = weak.lock()) self->on_notes_answered(peer, sent, answer);
             });
}

void StoreImpl::on_notes_answered(StoreId peer, std::vector<OutNote> sent,
                                  const Result<Bytes>& answer) {
  const bool was_not_taken =
      !answer.ok() && (answer.error().code == ErrorCode::resource_exhausted ||
                       answer.error().code == ErrorCode::actor_unavailable);
  if (was_not_taken && is_watched(peer)) {  // as long as the peer lives
    {
      const Lock lock(mutex_);
      auto& due = outboxes_[peer].notes;
      due.insert(due.begin(), std::make_move_iterator(sent.begin()),
                 std::make_move_iterator(sent.end()));
    }
    hub_->run_after(std::chrono::milliseconds(100), [weak = weak_from_this(), peer] {
      const auto self = weak.lock();
      if (!self) return;
      {
        const Lock lock(self->mutex_);
        self->outboxes_[peer].is_sending = false;
      }
      self->send_notes(peer);
    });
    return;
  }
  std::set<ObjectId> unknown;
  if (answer.ok()) {
    const auto decoded = decode<StoreNotesAnswer>(*answer);
    if (decoded.ok()) unknown.insert(decoded->unknown.begin(), decoded->unknown.end());
  }
  Later later;
  {
    const Lock lock(mutex_);
    for (const OutNote& one : sent) {
      if (!one.borrow) continue;
      const ObjectId& id = one.note.object;
      if (one.borrow->on_acknowledged(answer.ok() && !unknown.contains(id))) {
        note(outboxes_[peer].endpoint, StoreNote::Kind::give_back, id, later);
      }
      if (auto holds = to_receive_.extract(id)) {
        for (const Hold& hold : holds.mapped()) {
          note(hold.endpoint, StoreNote::Kind::received, {0, hold.number}, later);
        }
      }
      end_registration(one.registration, later);
    }
    outboxes_[peer].is_sending = false;
    later.outboxes.push_back(peer);
  }
  finish(std::move(later));
}

void StoreImpl::end_registration(std::uint64_t registration, Later& later) {
  registrations_.erase(registration);
  registering_ = registrations_.size();
  const auto oldest = registrations_.empty() ? last_registration_ + 1 : *registrations_.begin();
  const auto end = when_registered_.lower_bound(oldest);
  for (auto one = when_registered_.begin(); one != end; ++one) {
    later.run.push_back(std::move(one->second));
  }
  when_registered_.erase(when_registered_.begin(), end);
}

void StoreImpl::when_registered(std::function<void()> then) {
  {
    const Lock lock(mutex_);
    if (!registrations_.empty() && !is_stopping_) {
      when_registered_.emplace(last_registration_, std::move(then));
      return;
    }
  }
  then();
}

void wait_until_registered(ObjectStore& store, std::chrono::nanoseconds timeout) {
  if (!store.is_registering()) return;
  const Promise<void> registered;
  store.when_registered([registered] { registered.complete({}); });
  (void)registered.future().wait(timeout);
}

StoreNotesAnswer StoreImpl::on_notes(const StoreNotes& notes) {
  using Kind = StoreNote::Kind;
  StoreNotesAnswer answer;
  Later later;
  const StoreId peer = store_at(notes.from);
  {
    const Lock lock(mutex_);
    watch_peer(notes.from, later);
    for (const StoreNote& one : notes.notes) {
      const ObjectId& id = one.object;
      switch (one.kind) {
        case Kind::borrow:
          if (id.owner != self_ || !references_.borrow(id.number, peer)) {
            answer.unknown.push_back(id);
          }
          break;
        case Kind::give_back:
          if (references_.give_back(id.number, peer)) free_owned(id.number, later);
          break;
        case Kind::received:
          if (auto held = holds_.extract(id.number)) {
            later.garbage.push_back(std::move(held.mapped()));
          }
          break;
        case Kind::unpin:
          if (auto freed = held_.unpin(id, peer)) later.freed.push_back(*std::move(freed));
          break;
        case Kind::drop_copy:
          if (id.owner == self_) break;
          if (auto freed = held_.drop(id)) later.freed.push_back(*std::move(freed));
          break;
        case Kind::copied:
          if (!copies_.complete(id.number, peer)) {
            note(notes.from, Kind::drop_copy, id, later);
          }
          break;
        case Kind::pull_failed:
          copies_.remove(id.number, peer);
          look_for_copies(id.number, "does not give it", later);
          break;
      }
    }
    tell_ledger();
  }
  finish(std::move(later));
  return answer;
}

bool StoreImpl::is_watched(StoreId peer) {
  const Lock lock(mutex_);
  return peers_.contains(peer);
}

void StoreImpl::watch_peer(const std::string& endpoint, Later& later) {
  const StoreId peer = store_at(endpoint);
  if (peer == self_ || is_stopping_ || !peers_.emplace(peer, endpoint).second) return;
  later.run.emplace_back([this, weak = weak_from_this(), endpoint, peer] {
    const auto self = weak.lock();
    if (!self) return;
    hub_->call(address_of_store(endpoint), static_cast<std::uint16_t>(StoreMethod::live), {},
               [weak, endpoint, peer](const Result<Bytes>& answer) {
                 const auto store = weak.lock();
                 if (!store || answer.ok() || answer.error().code == ErrorCode::cancelled) return;
                 if (answer.error().code == ErrorCode::resource_exhausted) {  // it was not sent
                   return store->watch_again(endpoint);
                 }
                 store->on_peer_gone(peer, answer.error().message);
               });
  });
}

void StoreImpl::watch_again(const std::string& endpoint) {
  hub_->run_after(std::chrono::milliseconds(100), [weak = weak_from_this(), endpoint] {
    const auto self = weak.lock();
    if (!self) return;
    Later later;
    {
      const Lock lock(self->mutex_);
      self->peers_.erase(store_at(endpoint));
      self->watch_peer(endpoint, later);
    }
    self->finish(std::move(later));
  });
}

void StoreImpl::on_peer_gone(StoreId peer, const std::string& cause) {
  Later later;
  {
    const Lock lock(mutex_);
    if (is_stopping_) return;
    peers_.erase(peer);
    for (const Number number : references_.remove_peer(peer)) free_owned(number, later);
    for (const Number number : copies_.remove_peer(peer)) {
      look_for_copies(number, fmt::format("is gone: {}", cause), later);
    }
    for (auto& freed : held_.remove_reader(peer)) later.freed.push_back(std::move(freed));
    for (auto& freed : held_.remove_owner(peer)) later.freed.push_back(std::move(freed));
    tell_ledger();
  }
  finish(std::move(later));
}

}  // namespace troupe
