#include "runtime/object/held_objects.hpp"

#include <utility>

namespace troupe {

void HeldObjects::add(const ObjectId& id, State state, std::uint64_t bytes,
                      std::shared_ptr<Segment> segment) {
  Held& held = held_[id];
  held.state = state;
  held.bytes = bytes;
  held.segment = std::move(segment);
  of_owner_[id.owner].insert(id);
  bytes_in_memory_ += bytes;
  if (state == State::ready) make_idle(id, held);
}

HeldObjects::Held* HeldObjects::find(const ObjectId& id) {
  const auto found = held_.find(id);
  return found == held_.end() ? nullptr : &found->second;
}

void HeldObjects::make_idle(const ObjectId& id, Held& held) {
  if (held.is_idle || held.pins > 0 || held.state != State::ready) return;
  held.used_at = Clock::now();
  held.place = idle_.insert(idle_.end(), id);
  held.is_idle = true;
}

void HeldObjects::make_busy(Held& held) {
  if (!held.is_idle) return;
  idle_.erase(held.place);
  held.is_idle = false;
}

void HeldObjects::set_state(Held& held, State state) {
  if (held.state == State::spilled && state != State::spilled) {
    bytes_spilled_ -= held.bytes;
    bytes_in_memory_ += held.bytes;
  }
  if (held.state != State::spilled && state == State::spilled) {
    bytes_spilled_ += held.bytes;
    bytes_in_memory_ -= held.bytes;
  }
  held.state = state;
}

std::vector<HeldObjects::Waiter> HeldObjects::set_ready(const ObjectId& id) {
  Held* const held = find(id);
  if (held == nullptr) return {};
  set_state(*held, State::ready);
  make_idle(id, *held);
  return std::exchange(held->waiters, {});
}

void HeldObjects::pin(const ObjectId& id, StoreId reader, PinNumber pin) {
  Held* const held = find(id);
  if (held == nullptr || !pinned_[reader].emplace(pin, id).second) return;
  make_busy(*held);
  if (held->pins++ == 0) bytes_pinned_ += held->bytes;
}

std::optional<HeldObjects::Freed> HeldObjects::unpin(StoreId reader, PinNumber pin) {
  const auto of_reader = pinned_.find(reader);
  if (of_reader == pinned_.end()) return std::nullopt;
  const auto made = of_reader->second.extract(pin);
  if (made.empty()) return std::nullopt;
  if (of_reader->second.empty()) pinned_.erase(of_reader);
  return release(held_.find(made.mapped()));
}

std::optional<HeldObjects::Freed> HeldObjects::release(All::iterator found) {
  Held& held = found->second;
  if (--held.pins > 0) return std::nullopt;
  bytes_pinned_ -= held.bytes;
  if (held.is_dropped && held.state != State::spilling) return take(found);
  make_idle(found->first, held);
  return std::nullopt;
}

HeldObjects::Freed HeldObjects::take(All::iterator found) {
  const ObjectId id = found->first;
  Held& held = found->second;
  make_busy(held);
  (held.state == State::spilled ? bytes_spilled_ : bytes_in_memory_) -= held.bytes;
  const auto of_owner = of_owner_.find(id.owner);
  of_owner->second.erase(id);
  if (of_owner->second.empty()) of_owner_.erase(of_owner);
  Freed freed{std::move(held.segment), held.is_read_on, std::move(held.file),
              std::move(held.waiters)};
  held_.erase(found);
  return freed;
}

std::optional<HeldObjects::Freed> HeldObjects::drop(const ObjectId& id) {
  const auto found = held_.find(id);
  if (found == held_.end()) return std::nullopt;
  Held& held = found->second;
  held.is_dropped = true;
  const bool is_busy = held.pins > 0 || held.state == State::spilling ||
                       held.state == State::restoring || held.state == State::filling;
  if (is_busy) return std::nullopt;
  return take(found);
}

std::optional<HeldObjects::Freed> HeldObjects::remove(const ObjectId& id) {
  const auto found = held_.find(id);
  if (found == held_.end()) return std::nullopt;
  return take(found);
}

std::vector<HeldObjects::Freed> HeldObjects::remove_reader(StoreId reader) {
  std::vector<Freed> freed;
  const auto pins = pinned_.extract(reader);
  if (pins.empty()) return freed;
  for (const auto& [pin, id] : pins.mapped()) {
    const auto found = held_.find(id);
    // It may run on without a link to here: what it has mapped must not change.
    found->second.is_read_on = true;
    if (auto one = release(found)) freed.push_back(*std::move(one));
  }
  return freed;
}

std::vector<HeldObjects::Freed> HeldObjects::remove_owner(StoreId owner) {
  std::vector<Freed> freed;
  const auto found = of_owner_.find(owner);
  if (found == of_owner_.end()) return freed;
  const std::vector<ObjectId> objects(found->second.begin(), found->second.end());
  for (const ObjectId& id : objects) {
    if (auto one = drop(id)) freed.push_back(*std::move(one));
  }
  return freed;
}

std::vector<HeldObjects::Waiter> HeldObjects::take_waiters() {
  std::vector<Waiter> all;
  for (auto& [id, held] : held_) {
    for (Waiter& waiter : std::exchange(held.waiters, {})) all.push_back(std::move(waiter));
  }
  return all;
}

std::optional<ObjectId> HeldObjects::begin_spill() {
  if (idle_.empty()) return std::nullopt;
  const ObjectId id = idle_.front();
  Held& held = held_.at(id);
  make_busy(held);
  set_state(held, State::spilling);
  return id;
}

std::optional<HeldObjects::Freed> HeldObjects::end_spill(const ObjectId& id,
                                                         std::shared_ptr<UniqueFd> file) {
  const auto found = held_.find(id);
  if (found == held_.end()) return std::nullopt;
  Held& held = found->second;
  if (file) held.file = std::move(file);  // objects do not change: it serves the next time, too
  if (held.pins > 0 || !held.file) {
    set_state(held, State::ready);
    if (held.is_dropped && held.pins == 0) return take(found);
    make_idle(id, held);
    return std::nullopt;
  }
  if (held.is_dropped) return take(found);
  set_state(held, State::spilled);
  return Freed{std::move(held.segment), held.is_read_on, nullptr, {}};
}

std::optional<HeldObjects::Clock::time_point> HeldObjects::oldest_use() const {
  if (idle_.empty()) return std::nullopt;
  return held_.at(idle_.front()).used_at;
}

}  // namespace troupe
