#include <vector>

#include "actors/scheduler/scheduler.hpp"

namespace troupe {

Result<void> Scheduler::audit() const {
  const auto broken = [](const char* what, auto... numbers) {
    std::string text = what;
    ((text += fmt::format(" {}", numbers)), ...);
    return fail(ErrorCode::internal, "the scheduler contradicts itself: {}", text);
  };

  std::vector<std::int32_t> holders(static_cast<std::size_t>(pool_.blocks()), 0);
  std::vector<std::int32_t> plans(slots_.size(), 0);
  for (const PlannedStep& planned : in_flight_) {
    for (const PlannedShare& share : planned.shares) ++plans[share.id];
  }
  std::size_t occupied = 0;
  std::size_t alive = 0;
  for (std::size_t id = 0; id < slots_.size(); ++id) {
    const Sequence& slot = slots_[id];
    if (slot.plans_in_flight != plans[id]) return broken("plans in flight of slot", id);
    if (slot.ended && slot.plans_in_flight == 0) {
      if (!slot.table.empty()) return broken("a free slot holds blocks", id);
      continue;
    }
    ++occupied;
    alive += slot.ended ? 0 : 1;
    for (const BlockId block : slot.table) ++holders[static_cast<std::size_t>(block)];
    if (slot.computed > slot.scheduled || slot.scheduled > slot.known() || slot.computed < 0) {
      return broken("computed <= scheduled <= known:", slot.computed, slot.scheduled, slot.known());
    }
    if (static_cast<std::int64_t>(slot.table.size()) * config_.block_size < slot.scheduled) {
      return broken("positions without a block in slot", id);
    }
  }
  std::int32_t held = 0;
  for (std::int32_t block = 0; block < pool_.blocks(); ++block) {
    const std::int32_t count = holders[static_cast<std::size_t>(block)];
    if (count > 1) return broken("a block with two owners", block);
    if (count != pool_.references(block)) return broken("references of block", block);
    held += count;
  }
  if (held + pool_.free_blocks() != pool_.blocks()) return broken("blocks held and free", held);
  if (occupied + free_ids_.size() != slots_.size()) return broken("ids in use and free", occupied);
  if (alive != running_.size()) return broken("running sequences", alive, running_.size());
  for (const SequenceId id : running_) {
    const auto found = requests_.find(slots_[id].request);
    if (slots_[id].ended || found == requests_.end() || found->second != id) {
      return broken("a running sequence that no request knows", id);
    }
  }
  if (requests_.size() != running_.size() + waiting_.size()) {
    return broken("live requests", requests_.size(), running_.size(), waiting_.size());
  }
  if (in_flight_.size() > static_cast<std::size_t>(config_.max_steps_in_flight)) {
    return broken("plans in flight", in_flight_.size());
  }
  return {};
}

}  // namespace troupe
