#include "runtime/object/store_impl.hpp"

namespace troupe {

// Objects that are computed elsewhere: tasks' results.

namespace {

/// So long an owner may take to say whether it wants what was computed for it.
constexpr std::chrono::seconds offer_limit{10};

}  // namespace

ObjectSharePtr StoreImpl::make_pending(std::shared_ptr<ObjectSource> source) {
  const Lock lock(mutex_);
  const Number number = next_number_++;
  Owned& owned = add_owned(number);
  owned.state = Owned::State::pending;
  owned.source = std::move(source);
  return share_of(own_address(number));
}

bool StoreImpl::is_pending(const ObjectId& object) const {
  const Lock lock(mutex_);
  const auto found = owned_.find(object.number);
  return object.owner == self_ && found != owned_.end() &&
         found->second.state == Owned::State::pending;
}

void StoreImpl::fulfil(const ObjectId& object, Result<Bytes> value, Kept kept) {
  std::shared_ptr<Segment> segment;
  if (value.ok() && value->size() > max_small_bytes) {
    auto filled = filled_segment(*value);
    if (filled.ok()) {
      segment = *std::move(filled);
    } else {
      value = std::move(filled).error();
    }
  }
  Later later;
  {
    const Lock lock(mutex_);
    const auto found = owned_.find(object.number);
    if (object.owner != self_ || found == owned_.end() ||
        found->second.state != Owned::State::pending) {
      later.garbage = std::move(kept);
      if (segment) later.freed.push_back({std::move(segment), false, nullptr, {}});
    } else {
      Owned& owned = found->second;
      owned.state = Owned::State::ready;
      owned.kept = std::move(kept);
      if (!value.ok()) {
        owned.error = std::move(value).error();
      } else if (segment) {
        owned.bytes = value->size();
        held_.add(object, HeldObjects::State::ready, owned.bytes, std::move(segment));
        copies_.add(object.number, {endpoint_, options_.locality, true});
        tell_ledger();
      } else {
        owned.bytes = value->size();
        owned.small = std::make_shared<const Bytes>(*std::move(value));
      }
      wake_waits(owned, later);
    }
  }
  finish(std::move(later));
}

Result<void> StoreImpl::hold_result(const ObjectAddress& object, std::span<const std::byte> bytes) {
  TROUPE_TRY(auto segment, filled_segment(bytes));
  Later later;
  bool is_here = false;
  {
    const Lock lock(mutex_);
    is_here = held_.find(object.id) != nullptr;
    if (is_here) {
      later.freed.push_back({std::move(segment), false, nullptr, {}});
    } else {
      held_.add(object.id, HeldObjects::State::ready, bytes.size(), std::move(segment));
      watch_peer(object.owner_endpoint, later);
    }
    tell_ledger();
  }
  finish(std::move(later));
  if (is_here) return fail(ErrorCode::already_exists, "the object is held here already");
  const Promise<bool> wanted;
  (void)ask<bool>(object.owner_endpoint, StoreMethod::offer,
                  StoreOffer{object.id, endpoint_, options_.locality, bytes.size()},
                  [wanted](Result<bool> answer) { wanted.complete(std::move(answer)); });
  const auto is_wanted = wanted.future().get(offer_limit);
  if (is_wanted.ok() && *is_wanted) return {};
  drop_held(object.id);
  if (!is_wanted.ok()) return is_wanted.error();
  return {};
}

void StoreImpl::drop_held(const ObjectId& object) {
  Later later;
  {
    const Lock lock(mutex_);
    if (auto freed = held_.drop(object)) later.freed.push_back(*std::move(freed));
    tell_ledger();
  }
  finish(std::move(later));
}

bool StoreImpl::take_offer(const StoreOffer& offer) {
  Later later;
  bool is_wanted = false;
  {
    const Lock lock(mutex_);
    const auto found = owned_.find(offer.object.number);
    is_wanted = offer.object.owner == self_ && found != owned_.end() &&
                found->second.state == Owned::State::pending;
    if (is_wanted) {
      Owned& owned = found->second;
      owned.state = Owned::State::ready;
      owned.bytes = offer.bytes;
      copies_.add(offer.object.number, {offer.holder, offer.locality, true});
      watch_peer(offer.holder, later);
      wake_waits(owned, later);
    }
  }
  finish(std::move(later));
  return is_wanted;
}

void StoreImpl::cancel(const ObjectSharePtr& share) {
  if (!share) return;
  const ObjectAddress& object = share->address();
  if (object.id.owner == self_) return cancel_own(object.id);
  call_store(object.owner_endpoint, StoreMethod::cancel, encode(object.id),
             [](const Result<Bytes>&) {});
}

void StoreImpl::cancel_own(const ObjectId& object) {
  std::shared_ptr<ObjectSource> source;
  {
    const Lock lock(mutex_);
    const auto found = owned_.find(object.number);
    if (object.owner != self_ || found == owned_.end()) return;
    if (found->second.state == Owned::State::pending) source = found->second.source;
  }
  if (source) source->cancel();
}

}  // namespace troupe
