#include <algorithm>
#include <cassert>
#include <utility>

#include "actors/scheduler/scheduler.hpp"

namespace troupe {
namespace {

/// Of sequences that a plan starts, most of whose tokens may be cached: a plan stays a message of a
/// few megabytes.
constexpr std::int64_t max_started_tokens = 1 << 18;

}  // namespace

void Scheduler::admit_waiting(OpenPlan& open) {
  while (!open.is_full() && !waiting_.empty() && !free_ids_.empty() && evicting_ == 0) {
    Sequence& next = waiting_.begin()->second;
    if (somebody_comes_back_before(next.rank)) return;
    // The last known token is always computed: its logits are wanted. So are all of the prompt's
    // where it is scored.
    const bool scores = next.sampling.prompt_logprobs >= 0 && next.generated() == 0;
    next.scheduled = kv_.take_prefix(next.tokens, scores ? 0 : next.known() - 1, next.blocks);
    const std::int32_t tokens = share_of(next, open.tokens);
    const bool is_too_long =
        open.started_tokens > 0 && open.started_tokens + next.known() > max_started_tokens;
    if (tokens == 0 || is_too_long || !has_room_for(next)) {
      kv_.release(next.blocks);
      next.scheduled = 0;
      return;
    }
    Sequence admitted = std::move(next);
    waiting_.erase(waiting_.begin());
    start(open, std::move(admitted), tokens);
  }
}

/// Room for all the tokens that it knows, and while others run a little for them to grow.
bool Scheduler::has_room_for(const Sequence& next) const {
  const BlockPool& pool = kv_.pool();
  const std::int32_t needed = kv_.growth(next.known(), config_.max_num_batched_tokens, next.blocks);
  if (running_.empty()) return needed <= pool.free_blocks();
  const std::int32_t spare =
      std::max(pool.blocks() / 100, swaps() ? growth_ahead(plans_to_stay()) : 0);
  return needed + spare <= pool.free_blocks();
}

void Scheduler::start(OpenPlan& open, Sequence next, std::int32_t tokens) {
  const SequenceId id = free_ids_.back();
  free_ids_.pop_back();
  Sequence& slot = slots_[id] = std::move(next);
  insert_running(id);
  requests_[slot.request].slot = id;
  slot.computed = slot.scheduled;
  if (!std::exchange(slot.admitted_before, true)) {
    counters_.prefix_tokens += static_cast<std::uint64_t>(slot.scheduled);
    if (config_.prefix_caching) {
      counters_.looked_up_tokens += static_cast<std::uint64_t>(slot.prompt_tokens);
    }
    slot.prompt_planned = slot.scheduled;
  }

  open.started_tokens += slot.known();
  NewSequence& started = open.plan.started.emplace_back();
  started.id = id;
  started.tokens = slot.tokens;
  started.prompt_tokens = slot.prompt_tokens;
  started.cached_tokens = slot.scheduled;
  started.sampling = slot.sampling;
  // The first token came with the prompt's last scores: they are not asked for twice.
  if (slot.generated() > 0) started.sampling.prompt_logprobs = -1;
  [[maybe_unused]] const bool grown = kv_.grow(slot.scheduled + tokens, slot.blocks);
  assert(grown);
  plan_share(id, tokens, {}, open);
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
    entry.key() = entry.mapped().rank = late_rank(entry.key().arrival);
    requests_[entry.mapped().request].rank = entry.key();
    waiting_.insert(std::move(entry));
  }
}

}  // namespace troupe
