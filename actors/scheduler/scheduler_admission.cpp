#include <algorithm>
#include <utility>

#include "actors/scheduler/scheduler.hpp"
#include "runtime/base/invariant.hpp"

namespace troupe {
namespace {

/// The most tokens of the sequences that a plan starts, which may be mostly cached: a plan stays a
/// message of a few megabytes.
constexpr std::int64_t max_started_tokens = 1 << 18;

}  // namespace

void Scheduler::admit_waiting(OpenPlan& open) {
  while (!open.is_full() && evicting_ == 0) {
    Sequence* const found = next_to_admit();
    if (found == nullptr || somebody_comes_back_before(found->rank)) return;
    Sequence& next = *found;
    // The last known token is always computed, because its logits are needed; so are all of the
    // prompt's if it is scored.
    const bool scores = scores_prompt(next);
    next.scheduled =
        kv_.take_prefix(next.known_tokens(), scores ? 0 : next.known() - 1, next.blocks);
    const std::int32_t tokens = share_of(next, open.tokens);
    const bool is_too_long =
        open.started_tokens > 0 && open.started_tokens + next.known() > max_started_tokens;
    const bool has_room = has_room_for(next);
    if (tokens == 0 || is_too_long || !has_room) {
      kv_.release(next.blocks);
      next.scheduled = 0;
      if (has_room || !make_room_for(next)) return;
      continue;
    }
    Sequence admitted = std::move(next);
    waiting_.erase(admitted.rank);
    start(open, std::move(admitted), tokens);
  }
}

/// True for a beam of a search that has begun, which counts as running.
bool Scheduler::goes_on(const Sequence& next) const {
  return next.group->is_search() && next.group->admitted;
}

/// True if the worker is to score the prompt: once per request, before its first token, which comes
/// with the last scores.
bool Scheduler::scores_prompt(const Sequence& sequence) const {
  return sequence.group->sampling.prompt_logprobs >= 0 && sequence.number == 0 &&
         sequence.generated() == 0;
}

/// A search takes the ids of all its beams when the first is admitted.
bool Scheduler::has_id_for(const Sequence& next) const {
  const SequenceGroup& group = *next.group;
  const auto free = static_cast<std::int32_t>(free_ids_.size());
  if (group.admitted && group.reserved_ids > 0) return true;
  return free - reserved_ids_ >= (group.admitted ? 1 : ids_of_search(group));
}

/// Returns the first waiting sequence if there is an id for it; else a beam behind it whose search
/// has reserved an id, which others cannot use.
Scheduler::Sequence* Scheduler::next_to_admit() {
  if (waiting_.empty()) return nullptr;
  if (has_id_for(waiting_.begin()->second)) return &waiting_.begin()->second;
  for (SequenceGroup* search : searches_) {
    if (search->reserved_ids == 0) continue;
    for (const SequenceGroup::Member& member : search->members) {
      if (!member.slot) return &waiting_.at(member.rank);
    }
  }
  return nullptr;
}

/// Frees blocks for `next`, which finds too few: those that searches behind it keep and, if it is a
/// beam of a begun search, those of a running sequence behind it. False: it must wait.
bool Scheduler::make_room_for(const Sequence& next) {
  if (running_.empty()) return release_kept(first_rank);
  if (!goes_on(next)) return false;
  if (release_kept(next.rank)) return true;
  return next.rank < slots_[running_.back()].rank && evict_last();
}

/// True if its known tokens fit and, while others run, leave a little room for them to grow.
bool Scheduler::has_room_for(const Sequence& next) const {
  const BlockPool& pool = kv_.pool();
  const std::int64_t entries = config_.kv_policy.most_entries(next.known(), next.prompt_tokens);
  const std::int32_t needed =
      kv_.growth(static_cast<std::int32_t>(entries), config_.max_num_batched_tokens, next.blocks);
  if (running_.empty() || goes_on(next)) return needed <= pool.free_blocks();
  const std::int32_t spare =
      std::max(pool.blocks() / 100, swaps() ? growth_ahead(plans_to_stay()) : 0);
  return needed + spare <= pool.free_blocks();
}

void Scheduler::start(OpenPlan& open, Sequence next, std::int32_t tokens) {
  const SequenceId id = free_ids_.back();
  free_ids_.pop_back();
  Sequence& slot = slots_[id] = std::move(next);
  insert_running(id);
  SequenceGroup& group = *slot.group;
  if (slot.tokens.empty()) slot.tokens = group.prompt;
  find_member(group, slot.number)->slot = id;
  if (!std::exchange(group.admitted, true) && group.is_search()) searches_.push_back(&group);
  reserve_ids(group);
  slot.computed = slot.scheduled;
  if (!std::exchange(slot.admitted_before, true)) {
    counters_.prefix_tokens += static_cast<std::uint64_t>(slot.scheduled);
    if (config_.prefix_caching) {
      counters_.looked_up_tokens += static_cast<std::uint64_t>(slot.prompt_tokens);
    }
    slot.prompt_planned = slot.scheduled;
    if (group.unmade > 0) {
      --group.unmade;
      --unmade_;
      --live_;  // make_member counts it
      make_member(group, {});
    }
  }

  open.started_tokens += slot.known();
  NewSequence& started = open.plan.started.emplace_back();
  started.id = id;
  started.tokens = slot.tokens;
  started.prompt_tokens = slot.prompt_tokens;
  started.cached_tokens = slot.scheduled;
  started.sampling = group.sampling;
  if (!group.is_search()) started.sampling.choice = static_cast<std::uint32_t>(slot.number);
  if (!scores_prompt(slot)) started.sampling.prompt_logprobs = -1;
  require(kv_.grow(slot.scheduled + tokens, slot.blocks), "an admitted sequence has its blocks");
  plan_share(id, tokens, {}, open);
  if (group.is_search()) release_parents(group);
}

void Scheduler::insert_running(SequenceId id) {
  const auto before = [this](const SchedulingRank& rank, SequenceId other) {
    return rank < slots_[other].rank;
  };
  running_.insert(std::upper_bound(running_.begin(), running_.end(), slots_[id].rank, before), id);
}

void Scheduler::put_late_ones_back(std::int64_t now_us) {
  if (config_.policy != SchedulingPolicy::deadline) return;
  while (!waiting_.empty() && is_too_late(waiting_.begin()->first, now_us)) {
    auto entry = waiting_.extract(waiting_.begin());
    Sequence& sequence = entry.mapped();
    entry.key() = sequence.rank = late_rank(entry.key());
    find_member(*sequence.group, sequence.number)->rank = sequence.rank;
    sequence.group->rank.rank = sequence.rank.rank;  // for choices that are not made yet
    waiting_.insert(std::move(entry));
  }
}

}  // namespace troupe
