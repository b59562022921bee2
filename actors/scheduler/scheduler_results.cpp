#include <algorithm>
#include <cassert>
#include <utility>

#include "actors/scheduler/scheduler.hpp"

namespace troupe {

Result<std::vector<SequenceUpdate>> Scheduler::apply(StepResult result) {
  if (in_flight_.empty()) {
    return fail(ErrorCode::internal, "a result of step {} came, but no step is in flight",
                result.step);
  }
  const PlannedStep& oldest = in_flight_.front();
  const auto checked = check_result(oldest, result);
  if (!checked.ok()) {
    for (const PlannedShare& share : oldest.shares) result_of_[share.id] = -1;
    return checked.error();
  }
  const PlannedStep planned = std::move(in_flight_.front());
  in_flight_.pop_front();
  us_per_step_ += 0.1 * (static_cast<double>(result.model_us) - us_per_step_);

  std::vector<SequenceUpdate> updates;
  updates.reserve(result.results.size());
  SequenceResult nothing;
  bool any_gone = false;
  for (const PlannedShare& share : planned.shares) {
    const std::int32_t index = std::exchange(result_of_[share.id], -1);
    Sequence& sequence = slots_[share.id];
    sequence.computed += share.tokens;
    sequence.sampled_in_flight -= share.sample ? 1 : 0;
    --sequence.plans_in_flight;
    if (sequence.ended) {
      if (sequence.plans_in_flight == 0) free_slot(share.id);
      continue;
    }
    SequenceResult& row = index < 0 ? nothing : result.results[static_cast<std::size_t>(index)];
    SequenceUpdate update;
    update.request = sequence.group->request;
    update.sequence = sequence.number;
    take_result(share, row, update);
    if (update.end) {
      end(share.id);
      any_gone = true;
    } else if (sequence.evicting && sequence.plans_in_flight == 0) {
      --evicting_;
      std::erase(running_, share.id);
      preempt(share.id);
    }
    if (update.end || !update.tokens.empty() || !update.prompt_logprobs.empty()) {
      updates.push_back(std::move(update));
    }
  }
  if (any_gone) drop_from_running();
  return updates;
}

/// Sets `result_of_` to each planned sequence's row in the result (below 0: it has none).
Result<void> Scheduler::check_result(const PlannedStep& planned, const StepResult& result) {
  constexpr std::int32_t awaited = -2;
  if (result.step != planned.step || result.epoch != epoch_) {
    return fail(ErrorCode::internal,
                "a result of step {} in epoch {} came, expected step {} in epoch {}", result.step,
                result.epoch, planned.step, epoch_);
  }
  for (const PlannedShare& share : planned.shares) result_of_[share.id] = awaited;
  for (std::size_t i = 0; i < result.results.size(); ++i) {
    const SequenceId id = result.results[i].id;
    if (id >= slots_.size() || result_of_[id] != awaited) {
      return fail(ErrorCode::internal,
                  "the result of step {} names sequence {}, which the plan does not, or twice",
                  result.step, id);
    }
    result_of_[id] = static_cast<std::int32_t>(i);
  }
  for (const PlannedShare& share : planned.shares) TROUPE_CHECK(check_row(share, result));
  return {};
}

Result<void> Scheduler::check_row(const PlannedShare& share, const StepResult& result) const {
  const std::int32_t index = result_of_[share.id];
  if (index < 0) {
    if (!share.sample) return {};
    return fail(ErrorCode::internal, "the result of step {} has nothing for sequence {}",
                result.step, share.id);
  }
  const SequenceResult& row = result.results[static_cast<std::size_t>(index)];
  const std::size_t least = share.sample && !row.failed ? 1 : 0;
  const auto most = static_cast<std::size_t>(share.sample ? share.drafts + 1 : 0);
  if (row.tokens.size() < least || row.tokens.size() > most) {
    return fail(ErrorCode::internal,
                "the result of step {} has {} tokens for sequence {}, expected {} to {}",
                result.step, row.tokens.size(), share.id, least, most);
  }
  const Sequence& sequence = slots_[share.id];
  const bool scored = !sequence.ended && sequence.group->sampling.logprobs >= 0;
  if (scored && row.logprobs.size() != row.tokens.size()) {
    return fail(ErrorCode::internal,
                "the result of step {} has {} tokens with {} logprobs for sequence {}", result.step,
                row.tokens.size(), row.logprobs.size(), share.id);
  }
  return {};
}

void Scheduler::take_result(const PlannedShare& share, SequenceResult& result,
                            SequenceUpdate& update) {
  Sequence& sequence = slots_[share.id];
  if (result.failed) {
    update.end = SequenceEnd::failed;
    return;
  }
  update.prompt_begin = result.prompt_begin;
  update.prompt_logprobs = std::move(result.prompt_logprobs);
  if (share.sample) {
    take_tokens(share, result, update);
  } else if (sequence.max_generated == 0 && sequence.computed == sequence.known()) {
    update.end = SequenceEnd::length;
  }
}

void Scheduler::take_tokens(const PlannedShare& share, SequenceResult& result,
                            SequenceUpdate& update) {
  Sequence& sequence = slots_[share.id];
  const auto& stops = sequence.group->sampling.stop_token_ids;
  std::size_t taken = 0;
  while (taken < result.tokens.size() && !update.end) {
    const std::int32_t token = result.tokens[taken++];
    sequence.tokens.push_back(token);
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      update.end = SequenceEnd::stop;
    } else if (sequence.generated() == sequence.max_generated) {
      update.end = SequenceEnd::length;
    }
  }
  if (share.drafts > 0) {
    // Positions computed for rejected drafts are computed again.
    sequence.scheduled = sequence.computed = sequence.known() - 1;
    counters_.accepted_drafts += taken - 1;
  }
  sequence.drafts = std::move(result.drafts);
  kv_.publish(sequence.tokens, sequence.scheduled, sequence.blocks);
  result.tokens.resize(taken);
  update.tokens = std::move(result.tokens);
  if (sequence.group->sampling.logprobs >= 0) {
    result.logprobs.resize(taken);
    update.logprobs = std::move(result.logprobs);
  }
}

void Scheduler::end(SequenceId id) {
  Sequence& sequence = slots_[id];
  forget_member(sequence);
  sequence.ended = true;
  if (std::exchange(sequence.evicting, false)) --evicting_;
  if (sequence.plans_in_flight == 0) free_slot(id);
}

void Scheduler::free_slot(SequenceId id) {
  swaps_.drop(id);
  kv_.release(slots_[id].blocks);
  slots_[id] = Sequence{};
  slots_[id].ended = true;
  free_ids_.push_back(id);
  released_.push_back(id);
}

void Scheduler::drop_from_running() {
  std::erase_if(running_, [this](SequenceId id) { return slots_[id].ended; });
}

}  // namespace troupe
