#include "runtime/object/store_impl.hpp"

#include <algorithm>
#include <cstring>

namespace troupe {

StoreImpl::StoreImpl(std::shared_ptr<CallHub> hub, ObjectStoreOptions options)
    : hub_(std::move(hub)),
      options_(std::move(options)),
      endpoint_(hub_->endpoint()),
      self_(store_at(endpoint_)),
      metrics_(make_metrics(hub_->observer()->metrics())),
      pool_(
          [shared = shared_ledger_](std::int64_t bytes) {
            NodeLedger* const ledger = shared->node;
            return ledger == nullptr || ledger->charge(bytes);
          },
          options_.max_mappings > 0 ? options_.max_mappings : max_object_mappings()) {}

Result<std::shared_ptr<ObjectStore>> ObjectStore::start(std::shared_ptr<CallHub> hub,
                                                        ObjectStoreOptions options) {
  auto store = std::make_shared<StoreImpl>(hub, std::move(options));
  hub->add_target(store_at(store->endpoint()), store);
  hub->set_objects(store);
  return std::shared_ptr<ObjectStore>(std::move(store));
}

void StoreImpl::stop() {
  {
    Lock lock(mutex_);
    if (is_stopping_.exchange(true)) return;
  }
  stopping_.request_stop();
  hub_->remove_target(self_);
  restoring_.stop();
  making_room_.stop();
  Later later;
  {
    Lock lock(mutex_);
    pulls_ended_.wait(lock, [this] { return pulls_ == 0; });
    for (auto& [number, owned] : owned_) wake_waits(owned, later);
    for (auto& waiter : held_.take_waiters()) {
      later.run.emplace_back([waiter = std::move(waiter)] {
        waiter(fail(ErrorCode::cancelled, "this process is shutting down"));
      });
    }
    for (auto& [number, share] : holds_) later.garbage.push_back(std::move(share));
    holds_.clear();
    for (auto& [number, wait] : registering_waits_) later.run.push_back(std::move(wait.then));
    registering_waits_.clear();
  }
  finish(std::move(later));
  const std::lock_guard lock(servers_mutex_);
  segment_server_.reset();
  data_server_.reset();
}

void StoreImpl::finish(Later later) {
  std::ranges::sort(later.outboxes);
  const auto repeated = std::ranges::unique(later.outboxes);
  later.outboxes.erase(repeated.begin(), repeated.end());
  for (const StoreId peer : later.outboxes) send_notes(peer);
  for (auto& freed : later.freed) {
    if (freed.segment && !freed.may_be_mapped) pool_.give_back(std::move(freed.segment));
    const Error gone = fail(ErrorCode::not_found, "the object is not held here any more");
    for (const auto& waiter : freed.waiters) waiter(gone);
  }
  for (const auto& task : later.run) task();
}

ObjectAddress StoreImpl::own_address(Number number, bool is_in_segment) const {
  return {{self_, number}, endpoint_, options_.process_name, is_in_segment};
}

StoreImpl::Owned& StoreImpl::add_owned(Number number) {
  references_.add(number);
  Owned& owned = owned_[number];
  owned.created_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
  metrics_.objects.set(static_cast<double>(owned_.size()));
  return owned;
}

std::shared_ptr<ObjectShare> StoreImpl::share_of(const ObjectAddress& address) {
  auto share = std::make_shared<ObjectShare>(address, weak_from_this());
  shares_[address.id] = share;
  return share;
}

Result<ObjectSharePtr> StoreImpl::put_bytes(std::span<const std::byte> bytes, Kept kept) {
  if (is_stopping_) return fail(ErrorCode::cancelled, "this process is shutting down");
  std::shared_ptr<const Bytes> small;
  std::shared_ptr<Segment> segment;
  if (bytes.size() <= max_small_bytes) {
    small = std::make_shared<const Bytes>(bytes.begin(), bytes.end());
  } else {
    TROUPE_TRY(segment, filled_segment(bytes));
  }
  const bool is_in_segment = segment != nullptr;
  const Lock lock(mutex_);
  const Number number = next_number_++;
  Owned& owned = add_owned(number);
  owned.bytes = bytes.size();
  owned.small = std::move(small);
  owned.kept = std::move(kept);
  if (is_in_segment) {
    held_.add({self_, number}, HeldObjects::State::ready, bytes.size(), std::move(segment));
    copies_.add(number, {endpoint_, options_.locality, true});
    tell_ledger();
  }
  return ObjectSharePtr(share_of(own_address(number, is_in_segment)));
}

void StoreImpl::drop(ObjectShare& share) {
  Later later;
  {
    const Lock lock(mutex_);
    const ObjectId id = share.address().id;
    const auto found = shares_.find(id);
    const bool is_last = found != shares_.end() && found->second.expired();
    if (is_last) shares_.erase(found);
    if (id.owner == self_) {
      if (is_last && references_.drop_local(id.number)) free_owned(id.number, later);
    } else if (share.borrow_ && share.borrow_->on_dropped()) {
      note(share.address().owner_endpoint, {StoreNote::Kind::give_back, id}, later);
    }
  }
  finish(std::move(later));
}

void StoreImpl::free_owned(Number number, Later& later) {
  auto owned = owned_.extract(number);
  if (owned.empty()) return;
  wake_waits(owned.mapped(), later);
  later.garbage.push_back(std::move(owned.mapped().source));
  metrics_.objects.set(static_cast<double>(owned_.size()));
  for (auto& kept : owned.mapped().kept) later.garbage.push_back(std::move(kept));
  for (const std::string& holder : copies_.forget(number)) {
    const ObjectId id{self_, number};
    if (holder != endpoint_) {
      note(holder, {StoreNote::Kind::drop_copy, id}, later);
    } else if (auto freed = held_.drop(id)) {
      later.freed.push_back(*std::move(freed));
    }
  }
  tell_ledger();
}

void StoreImpl::look_for_copies(Number number, const std::string& cause, Later& later) {
  const auto found = owned_.find(number);
  if (found == owned_.end()) return;
  Owned& owned = found->second;
  const bool is_elsewhere = owned.state == Owned::State::ready && !owned.small && !owned.error;
  if (!is_elsewhere || !copies_.complete_copies(number).empty()) return;
  for (const std::string& puller : copies_.forget(number)) {  // it has nowhere to pull from
    if (puller != endpoint_) {
      note(puller, {StoreNote::Kind::drop_copy, {self_, number}}, later);
    }
  }
  Error why = lost(own_address(number), "the last process that held it " + cause);
  if (owned.source) {
    owned.state = Owned::State::pending;
    later.run.emplace_back([this, weak = weak_from_this(), source = owned.source, why] {
      if (!weak.lock()) return;
      hub_->run_after(std::chrono::milliseconds(0), [source, why] { source->recompute(why); });
    });
    return;
  }
  owned.state = Owned::State::lost;
  owned.error = std::move(why);
  wake_waits(owned, later);
}

namespace {

/// Different ones for all stores of a process: a scope does not know whose it notes.
std::uint64_t next_registration() {
  static std::atomic<std::uint64_t> next = 1;
  return next++;
}

}  // namespace

ObjectSharePtr StoreImpl::adopt(const ObjectOnTheWire& wire) {
  const ObjectId id = wire.object.id;
  if (id.owner == 0) return nullptr;
  Later later;
  std::shared_ptr<ObjectShare> share;
  {
    const Lock lock(mutex_);
    const auto found = shares_.find(id);
    if (found != shares_.end()) share = found->second.lock();
    if (!share) {
      share = share_of(wire.object);
      if (id.owner == self_) {
        (void)references_.take_local(id.number);  // else it is gone, as get will say
      } else if (!is_stopping_) {
        share->borrow_ = std::make_shared<Borrow>();
        share->registration_ = next_registration();
        registrations_.emplace(share->registration_, std::vector<std::uint64_t>());
        registering_ = registrations_.size();
        note(wire.object.owner_endpoint, {StoreNote::Kind::borrow, id}, later, share->borrow_,
             share->registration_);
      }
    }
    // What has a hold is kept by who answered until it is received.
    RegistrationScope* const scope = wire.hold == 0 ? RegistrationScope::current() : nullptr;
    if (scope != nullptr && share->borrow_ && !share->borrow_->is_acknowledged()) {
      scope->add(share->registration_);
    }
    if (wire.hold != 0) {
      if (!share->borrow_ || share->borrow_->is_acknowledged()) {
        note(wire.holder, {StoreNote::Kind::received, {}, wire.hold}, later);
      } else {
        to_receive_[id].push_back({wire.holder, wire.hold});
      }
    }
  }
  finish(std::move(later));
  return share;
}

std::uint64_t StoreImpl::hold(ObjectSharePtr share) {
  std::uint64_t number = 0;
  {
    const Lock lock(mutex_);
    if (is_stopping_) return 0;
    number = next_hold_++;
    holds_.emplace(number, std::move(share));
    hold_ends_.emplace_back(Clock::now() + options_.hold_limit, number);
    if (std::exchange(is_hold_timer_armed_, true)) return number;
  }
  arm_hold_timer(options_.hold_limit);
  return number;
}

ObjectShare::~ObjectShare() {
  if (const auto store = store_.lock()) store->drop(*this);
}

namespace object_detail {

ObjectOnTheWire to_wire(const ObjectSharePtr& share, Encoder& encoder) {
  ObjectOnTheWire wire;
  if (!share) return wire;
  wire.object = share->address();
  const auto hub = encoder.answering().lock();
  const auto store = hub ? hub->objects() : nullptr;
  if (store) {
    wire.hold = store->hold(share);
    wire.holder = store->endpoint();
  } else {
    encoder.keep(share);
  }
  return wire;
}

ObjectSharePtr from_wire(const ObjectOnTheWire& wire, const std::weak_ptr<CallHub>& hub) {
  const auto calls = hub.lock();
  const auto store = calls ? calls->objects() : nullptr;
  if (store) return store->adopt(wire);
  if (wire.object.id.owner == 0) return nullptr;
  return std::make_shared<ObjectShare>(wire.object, std::weak_ptr<ObjectStore>());
}

}  // namespace object_detail
}  // namespace troupe
