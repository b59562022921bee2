#include <algorithm>
#include <tuple>
#include <utility>

#include "actors/scheduler/scheduler.hpp"

namespace troupe {
namespace {

/// Plans from noticing that blocks are short to having the blocks of a sequence swapped out for
/// that, not counting plans in flight; with a margin, as blocks are not taken evenly.
constexpr std::int32_t plans_of_a_swap = 6;
/// A sequence that comes back outside of its turn has room to stay for this many more plans.
constexpr std::int32_t plans_between_swaps = 8;
/// At the end of a batch, a sequence with this many more tokens to generate takes another's place.
constexpr std::int32_t turn_tokens = 64;
/// A sequence with fewer tokens left than this is evicted last: it frees its blocks by ending.
constexpr std::int32_t nearly_done_tokens = 32;
/// One plan brings back one sequence, or several if together they take at most this fraction (one
/// in so many) of the free blocks.
constexpr std::int32_t parts_of_free_blocks = 16;

}  // namespace

std::int32_t Scheduler::plans_to_make_room() const {
  return config_.max_steps_in_flight + plans_of_a_swap;
}
std::int32_t Scheduler::plans_to_stay() const { return plans_to_make_room() + plans_between_swaps; }

/// Moves `id` to host memory, which the next plan reports. If it returns false, only blocks that
/// left the windows are released.
bool Scheduler::swap_out(SequenceId id) {
  Sequence& sequence = slots_[id];
  kv_.drop_left(sequence.scheduled, sequence.blocks);
  if (!can_swap(id) || !swaps_.put(id, kv_.held(sequence.blocks))) return false;
  sequence.evicting = false;
  ++counters_.swaps;
  return true;
}

/// A sequence that shares most of its blocks is recomputed instead: shared blocks are likely found
/// again, but would be copies of its own after a swap.
bool Scheduler::can_swap(SequenceId id) const {
  const SequenceBlocks& blocks = slots_[id].blocks;
  return !config_.prefix_caching || 2 * kv_.held_alone(blocks) >= kv_.held(blocks);
}

/// Evicts sequences before blocks are short.
void Scheduler::make_room_ahead() {
  std::int32_t growth = growth_ahead(plans_to_make_room());
  while (kv_.pool().free_blocks() < growth && release_kept(slots_[running_.back()].rank)) {
  }
  std::int32_t soon_free = kv_.pool().free_blocks();
  for (const SwappedSequence& swap : swaps_.going_out()) {
    soon_free += kv_.held_alone(slots_[swap.id].blocks);
  }
  for (const SequenceId id : running_) {
    if (slots_[id].evicting) soon_free += kv_.held_alone(slots_[id].blocks);
  }
  while (soon_free < growth) {
    const auto id = next_to_leave();
    if (!id) return;
    growth -= growth_of(slots_[*id], plans_to_make_room());
    soon_free += kv_.held_alone(slots_[*id].blocks);
    evict(*id);
  }
  if (waiting_.empty()) rotate_swapped(growth, soon_free);
}

/// Evicts one sequence if swapped ones with more left to generate want its place.
void Scheduler::rotate_swapped(std::int32_t growth, std::int32_t soon_free) {
  std::int32_t wanted = growth;
  for (const SequenceId id : next_to_come_back(static_cast<std::size_t>(plans_to_make_room()))) {
    const auto leaves = next_to_leave();
    if (!leaves || slots_[id].remaining() < slots_[*leaves].remaining() + turn_tokens) return;
    wanted += kv_.held(slots_[id].blocks) + growth_of(slots_[id], plans_to_make_room());
    if (soon_free >= wanted) continue;
    evict(*leaves);
    return;
  }
}

void Scheduler::evict(SequenceId id) {
  if (slots_[id].plans_in_flight > 0) {
    slots_[id].evicting = true;
    ++evicting_;
    return;
  }
  std::erase(running_, id);
  preempt(id);
}

/// The next sequence to evict; none if it would be the last, or cannot be swapped.
std::optional<SequenceId> Scheduler::next_to_leave() const {
  if (running_.size() - evicting_ < 2) return std::nullopt;
  const auto later = [this](SequenceId a, SequenceId b) {
    const auto key = [this](SequenceId id) {
      const Sequence& sequence = slots_[id];
      const std::int32_t remaining = waiting_.empty() ? sequence.remaining() : 0;
      const bool nearly_done = waiting_.empty() && remaining < nearly_done_tokens;
      return std::tuple(sequence.evicting, nearly_done, remaining);
    };
    // The last of equal ones: running_ is in the order of rank.
    return key(a) <= key(b);
  };
  std::int32_t host_blocks = 0;
  SequenceId next = running_.front();
  for (const SequenceId id : running_) {
    if (slots_[id].evicting) host_blocks += kv_.held(slots_[id].blocks);
    if (later(id, next)) next = id;
  }
  host_blocks += kv_.held(slots_[next].blocks);
  if (host_blocks > swaps_.free_blocks() || !can_swap(next)) return std::nullopt;
  return next;
}

void Scheduler::bring_back(OpenPlan& open) {
  // A plan of swaps alone would only delay other work.
  if (open.plan.steps.empty() && !nothing_is_computed()) return;
  const std::int32_t most = kv_.pool().free_blocks() / parts_of_free_blocks;
  std::int32_t blocks = 0;
  while (!swaps_.inside().empty()) {
    const SequenceId id = next_to_come_back(1).front();
    Sequence& sequence = slots_[id];
    const bool another_is_first = !waiting_.empty() && waiting_.begin()->first < sequence.rank &&
                                  has_id_for(waiting_.begin()->second);
    if (another_is_first) return;
    while (!may_come_back(id)) {
      if (!running_.empty() || !release_kept(first_rank)) return;
    }
    const bool is_first = std::exchange(blocks, blocks + kv_.held(sequence.blocks)) == 0;
    if (!is_first && blocks > most) return;
    SwapIn& swap = open.plan.swapped_in.emplace_back();
    swap.id = id;
    swap.host_blocks = kv_.in_places_of(swaps_.take(id), sequence.blocks);
    swap.blocks = kv_.refill(sequence.blocks);
    insert_running(id);
  }
}

/// True if `id` fits and leaves it and the others room to grow for a while.
bool Scheduler::may_come_back(SequenceId id) const {
  const Sequence& sequence = slots_[id];
  const std::int32_t free = kv_.pool().free_blocks() - kv_.held(sequence.blocks);
  if (running_.empty()) return free >= 0;
  const auto has_much_less = [&](SequenceId other) {
    return slots_[other].remaining() + turn_tokens / 2 <= sequence.remaining();
  };
  // Half a turn: since the turn began, the others have generated some.
  const bool has_turn = waiting_.empty() && std::ranges::any_of(running_, has_much_less);
  const std::int32_t plans = has_turn ? plans_to_make_room() : plans_to_stay();
  return growth_ahead(plans) + growth_of(sequence, plans) <= free;
}

/// The first `most` of the swapped sequences, in the order in which they come back.
std::vector<SequenceId> Scheduler::next_to_come_back(std::size_t most) const {
  std::vector<SequenceId> ids;
  for (const SwappedSequence& swap : swaps_.inside()) ids.push_back(swap.id);
  const auto before = [this](SequenceId a, SequenceId b) {
    const auto key = [this](const Sequence& sequence) {
      return std::tuple(waiting_.empty() ? -sequence.remaining() : 0, sequence.rank);
    };
    return key(slots_[a]) < key(slots_[b]);
  };
  const std::size_t count = std::min(most, ids.size());
  std::ranges::partial_sort(ids, ids.begin() + static_cast<std::ptrdiff_t>(count), before);
  ids.resize(count);
  return ids;
}

bool Scheduler::somebody_comes_back_before(const SchedulingRank& rank) const {
  const auto before = [&](const SwappedSequence& swap) { return slots_[swap.id].rank < rank; };
  return std::ranges::any_of(swaps_.inside(), before) ||
         std::ranges::any_of(swaps_.going_out(), before);
}

/// The number of blocks by which the running sequences that are not being evicted grow in `plans`.
std::int32_t Scheduler::growth_ahead(std::int32_t plans) const {
  std::int32_t blocks = 0;
  for (const SequenceId id : running_) {
    if (!slots_[id].evicting) blocks += growth_of(slots_[id], plans);
  }
  return blocks;
}

std::int32_t Scheduler::growth_of(const Sequence& sequence, std::int32_t plans) const {
  const SpeculationConfig& speculation = config_.speculation;
  const bool guesses = speculation.method != SpeculationConfig::Method::none;
  const std::int64_t each = guesses ? 1 + speculation.tokens : 1;
  const std::int64_t samples = (plans + config_.micro_batches - 1) / config_.micro_batches;
  const std::int64_t budget = config_.max_num_batched_tokens;
  const auto known = std::min<std::int64_t>(sequence.known(), sequence.scheduled + budget * plans);
  // The last generated token is never an input.
  const std::int32_t last = sequence.prompt_tokens + std::max(sequence.max_generated, 1) - 1;
  const std::int64_t end = std::min<std::int64_t>(
      std::max<std::int64_t>(sequence.scheduled, known) + samples * each, last);
  const std::int64_t chunk = std::clamp(known - sequence.scheduled, std::int64_t{1}, budget);
  return kv_.growth(static_cast<std::int32_t>(end),
                    static_cast<std::int32_t>(std::max(chunk, each)), sequence.blocks);
}

}  // namespace troupe
