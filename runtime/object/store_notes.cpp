#include "runtime/base/log.hpp"
#include "runtime/object/store_impl.hpp"

namespace troupe {

// What is told to other stores.

void StoreImpl::note(const std::string& endpoint, StoreNote note, Later& later,
                     std::shared_ptr<Borrow> borrow, std::uint64_t registration) {
  const StoreId peer = store_at(endpoint);
  Outbox& outbox = outboxes_[peer];
  outbox.endpoint = endpoint;
  note.sequence = ++last_note_;
  outbox.notes.push_back({note, std::move(borrow), registration});
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
  call_store(endpoint, StoreMethod::notes, encode(message),
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
        note(outboxes_[peer].endpoint, {StoreNote::Kind::give_back, id}, later);
      }
      if (auto holds = to_receive_.extract(id)) {
        for (const Hold& hold : holds.mapped()) {
          note(hold.endpoint, {StoreNote::Kind::received, {}, hold.number}, later);
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
  const auto node = registrations_.extract(registration);
  if (node.empty()) return;
  registering_ = registrations_.size();
  for (const std::uint64_t number : node.mapped()) {
    const auto wait = registering_waits_.find(number);
    if (wait == registering_waits_.end() || --wait->second.open > 0) continue;
    later.run.push_back(std::move(wait->second.then));
    registering_waits_.erase(wait);
  }
}

void StoreImpl::when_registered(const Registrations& which, std::function<void()> then) {
  bool is_to_arm = false;
  {
    const Lock lock(mutex_);
    const std::uint64_t number = next_registering_wait_;
    std::size_t open = 0;
    for (const std::uint64_t one : which) {
      const auto found = registrations_.find(one);
      if (found == registrations_.end() || is_stopping_) continue;
      found->second.push_back(number);
      ++open;
    }
    if (open > 0) {
      ++next_registering_wait_;
      registering_waits_.emplace(number, Registering{std::exchange(then, nullptr), open});
      registering_ends_.emplace_back(Clock::now() + options_.registering_limit, number);
      is_to_arm = !std::exchange(is_registering_timer_armed_, true);
    }
  }
  if (then) return then();
  if (is_to_arm) arm_registering_timer(options_.registering_limit);
}

void StoreImpl::arm_registering_timer(std::chrono::nanoseconds delay) {
  hub_->run_after(std::chrono::ceil<std::chrono::milliseconds>(delay), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    Later later;
    std::optional<Clock::duration> next;
    {
      const Lock lock(self->mutex_);
      const auto now = Clock::now();
      auto& ends = self->registering_ends_;
      auto& waits = self->registering_waits_;
      while (!ends.empty() && (ends.front().first <= now || !waits.contains(ends.front().second))) {
        if (auto node = waits.extract(ends.front().second)) {
          later.run.push_back(std::move(node.mapped().then));
        }
        ends.pop_front();
      }
      if (!ends.empty()) next = ends.front().first - now;
      self->is_registering_timer_armed_ = next.has_value();
    }
    self->finish(std::move(later));
    if (next) self->arm_registering_timer(*next);
  });
}

void wait_until_registered(ObjectStore& store, const Registrations& which,
                           std::chrono::nanoseconds timeout) {
  if (which.empty()) return;
  const Promise<void> registered;
  store.when_registered(which, [registered] { registered.complete({}); });
  (void)registered.future().wait(timeout);
}

StoreNotesAnswer StoreImpl::on_notes(const StoreNotes& notes) {
  StoreNotesAnswer answer;
  Later later;
  const StoreId peer = store_at(notes.from);
  {
    const Lock lock(mutex_);
    watch_peer(notes.from, later);
    // It is not watched only if this store stops, and then nothing counts any more.
    std::uint64_t none = 0;
    const auto known = peers_.find(peer);
    std::uint64_t& last = known == peers_.end() ? none : known->second.last_note;
    for (const StoreNote& one : notes.notes) {
      if (one.sequence > last) {
        last = one.sequence;
        on_note(one, notes, later);
      }
      // The sender has not given it back, since this was not acknowledged: it is there or never
      // was.
      const bool is_borrowed = one.object.owner == self_ && references_.has(one.object.number);
      if (one.kind == StoreNote::Kind::borrow && !is_borrowed) answer.unknown.push_back(one.object);
    }
    tell_ledger();
  }
  finish(std::move(later));
  return answer;
}

void StoreImpl::on_note(const StoreNote& one, const StoreNotes& notes, Later& later) {
  using Kind = StoreNote::Kind;
  const StoreId peer = store_at(notes.from);
  const ObjectId& id = one.object;
  switch (one.kind) {
    case Kind::borrow:
      if (id.owner == self_) (void)references_.borrow(id.number, peer);
      break;
    case Kind::give_back:
      if (references_.give_back(id.number, peer)) free_owned(id.number, later);
      break;
    case Kind::received:
      if (auto held = holds_.extract(one.number)) {
        later.garbage.push_back(std::move(held.mapped()));
      }
      while (!hold_ends_.empty() && !holds_.contains(hold_ends_.front().second)) {
        hold_ends_.pop_front();
      }
      break;
    case Kind::unpin:
      if (auto freed = held_.unpin(peer, one.number)) later.freed.push_back(*std::move(freed));
      break;
    case Kind::drop_copy:
      if (id.owner == self_) break;
      if (auto freed = held_.drop(id)) later.freed.push_back(*std::move(freed));
      break;
    case Kind::copied:
      if (!copies_.complete(id.number, peer)) note(notes.from, {Kind::drop_copy, id}, later);
      break;
    case Kind::pull_failed:
      (void)copies_.remove(id.number, peer);
      look_for_copies(id.number, "does not give it", later);
      break;
  }
}

void StoreImpl::arm_hold_timer(std::chrono::nanoseconds delay) {
  hub_->run_after(std::chrono::ceil<std::chrono::milliseconds>(delay), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    std::vector<ObjectSharePtr> late;  // destroyed without the lock
    std::optional<Clock::duration> next;
    {
      const Lock lock(self->mutex_);
      const auto now = Clock::now();
      auto& ends = self->hold_ends_;
      while (!ends.empty() &&
             (ends.front().first <= now || !self->holds_.contains(ends.front().second))) {
        if (auto node = self->holds_.extract(ends.front().second)) {
          late.push_back(std::move(node.mapped()));
        }
        ends.pop_front();
      }
      if (!ends.empty()) next = ends.front().first - now;
      self->is_hold_timer_armed_ = next.has_value();
    }
    if (next) self->arm_hold_timer(*next);
  });
}

}  // namespace troupe
