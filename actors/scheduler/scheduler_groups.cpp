#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "actors/scheduler/scheduler.hpp"

namespace troupe {

Result<void> Scheduler::add(SequenceGroupSpec spec) {
  const auto prompt = static_cast<std::int64_t>(spec.prompt.size());
  const std::int32_t max_tokens = spec.sampling.max_tokens;
  if (prompt == 0) return fail(ErrorCode::invalid_argument, "the prompt is empty");
  if (max_tokens < 0) {
    return fail(ErrorCode::invalid_argument, "max_tokens is {}, it must not be negative",
                max_tokens);
  }
  if (spec.choices < 1 || spec.beam_width < 0) {
    return fail(ErrorCode::invalid_argument, "{} choices and a beam width of {} were asked for",
                spec.choices, spec.beam_width);
  }
  if (spec.beam_width > 0 && !config_.kv_policy.is_full()) {
    return fail(ErrorCode::invalid_argument,
                "beam search needs every token in the cache, and this job drops tokens "
                "(kv_cache.policy {})",
                to_string(config_.kv_policy.kind));
  }
  if (std::any_of(spec.prompt.begin(), spec.prompt.end(), [](auto id) { return id < 0; })) {
    return fail(ErrorCode::invalid_argument, "the prompt has a negative token id");
  }
  if (prompt + (max_tokens > 0 ? 1 : 0) > config_.max_model_len) {
    return fail(ErrorCode::invalid_argument,
                "the prompt has {} tokens, the model's context holds {}{}", prompt,
                config_.max_model_len, max_tokens > 0 ? " with the answer" : "");
  }
  const std::int32_t max_generated =
      std::min(max_tokens, config_.max_model_len - static_cast<std::int32_t>(prompt));
  // The last generated token is never an input.
  const std::int64_t positions = prompt + std::max(max_generated, 1) - 1;
  const std::int64_t entries = config_.kv_policy.most_entries(positions, prompt);
  const std::int32_t blocks = kv_.max_held(entries, config_.max_num_batched_tokens);
  if (blocks > kv_.pool().blocks()) {
    return fail(ErrorCode::invalid_argument,
                "a prompt of {} tokens with max_tokens {} needs {} cache blocks, there are {}",
                prompt, max_generated, blocks, kv_.pool().blocks());
  }
  const auto [entry, is_new] = requests_.try_emplace(spec.request);
  if (!is_new) {
    return fail(ErrorCode::already_exists, "request {} is being answered already", spec.request);
  }
  const double steps = max_generated + static_cast<double>(prompt) / config_.max_num_batched_tokens;
  SequenceGroup& group = entry->second;
  group.request = spec.request;
  group.prompt = std::move(spec.prompt);
  group.sampling = std::move(spec.sampling);
  group.max_generated = max_generated;
  group.beam_width = spec.beam_width;
  group.rank = rank_of(config_.policy, {.arrival = arrivals_++,
                                        .priority = spec.priority,
                                        .tokens = prompt + max_generated,
                                        .deadline_us = spec.deadline_us,
                                        .cost_us = std::llround(steps * us_per_step_)});
  if (spec.begun > 0) {
    resume(group, std::move(spec));
  } else {
    set_unmade(group, group.is_search() ? 0 : spec.choices - 1);
    make_member(group, {});
  }
  return {};
}

void Scheduler::set_unmade(SequenceGroup& group, std::int32_t unmade) {
  group.unmade = unmade;
  unmade_ += static_cast<std::size_t>(unmade);
  live_ += static_cast<std::size_t>(unmade);
}

/// Makes the sequences of a request that has begun elsewhere as restart() leaves those of one that
/// has begun here.
void Scheduler::resume(SequenceGroup& group, SequenceGroupSpec spec) {
  for (ResumedSequence& resumed : spec.resumed) {
    group.made = resumed.sequence;
    std::vector<std::int32_t> tokens = group.prompt;
    tokens.insert(tokens.end(), resumed.tokens.begin(), resumed.tokens.end());
    make_member(group, std::move(tokens));
    if (group.is_search()) continue;
    Sequence& sequence = waiting_.at(group.members.back().rank);
    sequence.prompt_tokens = sequence.prompt_planned =
        static_cast<std::int32_t>(group.prompt.size());
    sequence.admitted_before = true;
  }
  group.made = spec.begun;
  if (group.is_search()) {
    const auto free = static_cast<std::int32_t>(free_ids_.size());
    group.admitted = free - reserved_ids_ >= ids_of_search(group);
    if (group.admitted) searches_.push_back(&group);
    reserve_ids(group);
    return;
  }
  group.admitted = true;
  if (spec.begun < spec.choices) {
    set_unmade(group, spec.choices - spec.begun - 1);
    make_member(group, {});
  }
}

Result<void> Scheduler::advance(std::uint64_t request,
                                std::vector<std::vector<std::int32_t>> beams) {
  const auto found = requests_.find(request);
  if (found == requests_.end() || !found->second.is_search() || found->second.live() > 0) {
    return fail(ErrorCode::not_found, "request {} is no search that waits for its next step",
                request);
  }
  SequenceGroup& group = found->second;
  if (beams.empty()) {
    erase_group(group);
    return {};
  }
  group.parent_blocks = std::exchange(group.ended_blocks, {});
  for (std::vector<std::int32_t>& beam : beams) {
    beam.insert(beam.begin(), group.prompt.begin(), group.prompt.end());
    make_member(group, std::move(beam));
  }
  return {};
}

bool Scheduler::abort(std::uint64_t request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return false;
  SequenceGroup& group = found->second;
  live_ -= static_cast<std::size_t>(group.unmade);
  unmade_ -= static_cast<std::size_t>(std::exchange(group.unmade, 0));
  if (group.members.empty()) {
    erase_group(group);  // a search between two steps
    return true;
  }
  group.beam_width = 0;  // ends with its last member
  const std::vector<SequenceGroup::Member> members = group.members;
  for (const SequenceGroup::Member& member : members) abort(request, member.sequence);
  return true;
}

bool Scheduler::abort(std::uint64_t request, std::int32_t sequence) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return false;
  const SequenceGroup::Member* member = find_member(found->second, sequence);
  if (member == nullptr) return false;
  if (member->slot) {
    end(*member->slot);
    drop_from_running();
    return true;
  }
  const auto waiting = waiting_.find(member->rank);
  forget_member(waiting->second);
  waiting_.erase(waiting);
  return true;
}

std::vector<std::uint64_t> Scheduler::abort_waiting() {
  std::vector<std::uint64_t> ended;
  for (const auto& [rank, sequence] : waiting_) {
    if (!sequence.group->admitted) ended.push_back(sequence.group->request);
  }
  for (const std::uint64_t request : ended) abort(request);
  return ended;
}

/// Makes the next sequence of `group` and lets it wait. `tokens` are a beam's, or empty for the
/// prompt alone.
void Scheduler::make_member(SequenceGroup& group, std::vector<std::int32_t> tokens) {
  Sequence sequence;
  sequence.group = &group;
  sequence.number = group.made++;
  const std::size_t known = tokens.empty() ? group.prompt.size() : tokens.size();
  sequence.prompt_tokens = static_cast<std::int32_t>(known);
  sequence.tokens = std::move(tokens);
  sequence.max_generated = group.is_search() ? 1 : group.max_generated;
  sequence.rank = group.rank;
  sequence.rank.sequence = sequence.number;
  group.members.push_back({sequence.number, std::nullopt, sequence.rank});
  ++live_;
  waiting_.emplace(sequence.rank, std::move(sequence));
}

SequenceGroup::Member* Scheduler::find_member(SequenceGroup& group, std::int32_t sequence) {
  const auto found = std::ranges::find(group.members, sequence, &SequenceGroup::Member::sequence);
  return found == group.members.end() ? nullptr : &*found;
}

/// Removes `sequence`, which ends. A search keeps its blocks for the next beams.
void Scheduler::forget_member(Sequence& sequence) {
  SequenceGroup& group = *std::exchange(sequence.group, nullptr);
  const auto member =
      std::ranges::find(group.members, sequence.number, &SequenceGroup::Member::sequence);
  const bool has_slot = member->slot.has_value();
  group.members.erase(member);
  --live_;
  if (group.is_search() && has_slot && config_.prefix_caching) {
    group.ended_blocks.push_back(std::exchange(sequence.blocks, {}));
  }
  reserve_ids(group);
  if (group.live() == 0 && !group.is_search()) erase_group(group);
}

void Scheduler::erase_group(SequenceGroup& group) {
  for (auto* kept : {&group.parent_blocks, &group.ended_blocks}) {
    for (SequenceBlocks& blocks : *kept) kv_.release(blocks);
  }
  reserved_ids_ -= group.reserved_ids;
  std::erase(searches_, &group);
  requests_.erase(group.request);
}

/// The ids that a group takes when it is admitted: all that its beams can use at one time.
std::int32_t Scheduler::ids_of_search(const SequenceGroup& group) const {
  return std::clamp(group.beam_width, 1, config_.max_num_seqs);
}

/// Reserves the ids of a search that none of its beams has.
void Scheduler::reserve_ids(SequenceGroup& group) {
  std::int32_t reserved = 0;
  if (group.is_search() && group.admitted) {
    const auto in_slots = std::ranges::count_if(
        group.members, [](const auto& member) { return member.slot.has_value(); });
    reserved = std::max(ids_of_search(group) - static_cast<std::int32_t>(in_slots), 0);
  }
  reserved_ids_ += reserved - group.reserved_ids;
  group.reserved_ids = reserved;
}

/// Releases the blocks of a search's last step if all beams of this step have found them.
void Scheduler::release_parents(SequenceGroup& group) {
  for (const SequenceGroup::Member& member : group.members) {
    if (!member.slot) return;
  }
  for (SequenceBlocks& blocks : group.parent_blocks) kv_.release(blocks);
  group.parent_blocks.clear();
}

/// Releases the blocks that one search keeps between two steps, choosing the last search of those
/// that rank behind `behind`. They stay findable until allocated. False: there is no such search.
bool Scheduler::release_kept(const SchedulingRank& behind) {
  SequenceGroup* last = nullptr;
  for (SequenceGroup* search : searches_) {
    const bool keeps = !search->parent_blocks.empty() || !search->ended_blocks.empty();
    const SchedulingRank& before = last == nullptr ? behind : last->rank;
    if (keeps && before < search->rank) last = search;
  }
  if (last == nullptr) return false;
  for (auto* kept : {&last->parent_blocks, &last->ended_blocks}) {
    for (SequenceBlocks& blocks : *kept) kv_.release(blocks);
    kept->clear();
  }
  return true;
}

}  // namespace troupe
