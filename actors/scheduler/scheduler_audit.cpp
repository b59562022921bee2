#include <algorithm>
#include <vector>

#include "actors/scheduler/scheduler.hpp"

namespace troupe {
namespace {

template <class... Numbers>
auto broken(const char* what, Numbers... numbers) {
  std::string text = what;
  ((text += fmt::format(" {}", numbers)), ...);
  return fail(ErrorCode::internal, "the scheduler contradicts itself: {}", text);
}

}  // namespace

Result<void> Scheduler::audit() const {
  const BlockPool& pool = kv_.pool();
  std::vector<std::int32_t> holders(static_cast<std::size_t>(pool.blocks()), 0);
  std::vector<std::int32_t> plans(slots_.size(), 0);
  std::vector<std::int32_t> samples(slots_.size(), 0);
  std::vector<std::int32_t> drafts(slots_.size(), 0);
  for (const PlannedStep& planned : in_flight_) {
    for (const PlannedShare& share : planned.shares) {
      ++plans[share.id];
      samples[share.id] += share.sample ? 1 : 0;
      drafts[share.id] += share.drafts;
    }
  }
  std::vector<bool> is_inside(slots_.size(), false);
  for (const SwappedSequence& swap : swaps_.inside()) is_inside[swap.id] = true;
  const std::size_t swapped = swaps_.going_out().size() + swaps_.inside().size();
  std::size_t occupied = 0;
  std::size_t alive = 0;
  std::size_t evicting = 0;
  for (std::size_t id = 0; id < slots_.size(); ++id) {
    const Sequence& slot = slots_[id];
    if (slot.plans_in_flight != plans[id]) return broken("plans in flight of slot", id);
    if (slot.ended && slot.plans_in_flight == 0) {
      if (!slot.blocks.tables.empty()) return broken("a free slot holds blocks", id);
      continue;
    }
    ++occupied;
    alive += slot.ended ? 0 : 1;
    evicting += slot.evicting ? 1 : 0;
    if (slot.sampled_in_flight != samples[id]) return broken("samples in flight of slot", id);
    // Tokens that came for an ended sequence were dropped.
    const std::int32_t expected =
        slot.ended ? slot.scheduled : slot.known() + samples[id] + drafts[id];
    if (slot.computed > slot.scheduled || slot.scheduled > expected || slot.computed < 0) {
      return broken("computed <= scheduled <= expected:", slot.computed, slot.scheduled, expected);
    }
    for (std::size_t group = 0; group < kv_.groups(); ++group) {
      const auto& table = slot.blocks.tables[group];
      if (static_cast<std::int64_t>(table.size()) * config_.block_size <
          slot.scheduled - slot.dropped) {
        return broken("positions without a block in slot", id);
      }
      for (std::size_t i = 0; i < table.size(); ++i) {
        const bool left = static_cast<std::int32_t>(i) < slot.blocks.dropped[group];
        if ((table[i] < 0) != (left || is_inside[id])) {
          return broken("blocks that left the window of slot", id);
        }
        if (table[i] >= 0) ++holders[static_cast<std::size_t>(table[i])];
      }
    }
  }
  TROUPE_CHECK(audit_searches(holders));
  std::int32_t held = 0;
  for (std::int32_t block = 0; block < pool.blocks(); ++block) {
    const std::int32_t count = holders[static_cast<std::size_t>(block)];
    if (count > 1 && !config_.prefix_caching) return broken("a block with two owners", block);
    if (count != pool.references(block)) return broken("references of block", block);
    held += count > 0 ? 1 : 0;
  }
  if (held + pool.free_blocks() != pool.blocks()) return broken("blocks held and free", held);
  if (occupied + free_ids_.size() != slots_.size()) return broken("ids in use and free", occupied);
  if (alive != running_.size() + swapped) {
    return broken("running and swapped sequences", alive, running_.size(), swapped);
  }
  for (const SequenceId id : running_) {
    const Sequence& slot = slots_[id];
    if (slot.ended || slot.group == nullptr || !knows(*slot.group, slot, id)) {
      return broken("a running sequence that no request knows", id);
    }
  }
  const auto later = [this](SequenceId a, SequenceId b) { return slots_[a].rank < slots_[b].rank; };
  if (!std::is_sorted(running_.begin(), running_.end(), later)) return broken("order of running");
  if (evicting != evicting_) return broken("sequences that leave", evicting, evicting_);
  for (const auto& [rank, sequence] : waiting_) {
    if (rank != sequence.rank || !knows(*sequence.group, sequence, std::nullopt)) {
      return broken("a waiting sequence that no request knows", sequence.number);
    }
  }
  if (live_ != running_.size() + waiting_.size() + unmade_ + swapped) {
    return broken("live sequences", live_, running_.size(), waiting_.size(), unmade_, swapped);
  }
  if (in_flight_.size() > static_cast<std::size_t>(config_.max_steps_in_flight)) {
    return broken("plans in flight", in_flight_.size());
  }
  return audit_swaps();
}

bool Scheduler::knows(const SequenceGroup& group, const Sequence& sequence,
                      std::optional<SequenceId> slot) const {
  const auto member =
      std::ranges::find(group.members, sequence.number, &SequenceGroup::Member::sequence);
  return requests_.contains(group.request) && member != group.members.end() &&
         member->slot == slot && member->rank == sequence.rank;
}

/// Adds the blocks that searches keep to the references of each in `holders`.
Result<void> Scheduler::audit_searches(std::vector<std::int32_t>& holders) const {
  std::size_t unmade = 0;
  std::size_t live = 0;
  std::int32_t reserved = 0;
  for (const auto& [request, group] : requests_) {
    unmade += static_cast<std::size_t>(group.unmade);
    live += group.live();
    reserved += group.reserved_ids;
    const bool is_listed = std::ranges::count(searches_, &group) == 1;
    if (is_listed != (group.is_search() && group.admitted)) {
      return broken("searches that were admitted", request);
    }
    for (const auto* kept : {&group.parent_blocks, &group.ended_blocks}) {
      for (const SequenceBlocks& blocks : *kept) {
        for (const auto& table : blocks.tables) {
          for (const BlockId block : table) {
            if (block >= 0) ++holders[static_cast<std::size_t>(block)];
          }
        }
      }
    }
  }
  if (unmade != unmade_ || live != live_) return broken("sequences of requests", unmade, live);
  if (reserved != reserved_ids_ || reserved > std::ssize(free_ids_)) {
    return broken("reserved ids", reserved, reserved_ids_, free_ids_.size());
  }
  return {};
}

Result<void> Scheduler::audit_swaps() const {
  std::vector<bool> taken(static_cast<std::size_t>(swaps_.blocks()), false);
  const auto take = [&](std::span<const std::int32_t> blocks) {
    for (const std::int32_t block : blocks) {
      if (block < 0 || block >= swaps_.blocks() || taken[static_cast<std::size_t>(block)]) {
        return false;
      }
      taken[static_cast<std::size_t>(block)] = true;
    }
    return true;
  };
  for (const std::span<const SwappedSequence> swaps : {swaps_.going_out(), swaps_.inside()}) {
    for (const SwappedSequence& swap : swaps) {
      const Sequence& slot = slots_[swap.id];
      const bool is_idle = slot.plans_in_flight == 0 && slot.scheduled == slot.computed;
      if (slot.ended || slot.evicting || !is_idle || std::ranges::count(running_, swap.id) > 0) {
        return broken("a swapped sequence that is elsewhere too", swap.id);
      }
      if (kv_.held(slot.blocks) != std::ssize(swap.host_blocks)) {
        return broken("blocks in host memory of slot", swap.id);
      }
      if (!take(swap.host_blocks)) return broken("a block in host memory with two owners");
    }
  }
  if (!take(swaps_.coming_back())) return broken("a block in host memory with two owners");
  if (std::ranges::count(taken, false) != swaps_.free_blocks()) {
    return broken("free blocks in host memory", swaps_.free_blocks());
  }
  return {};
}

}  // namespace troupe
