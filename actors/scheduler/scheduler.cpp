#include "actors/scheduler/scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace troupe {
namespace {

/// [max_num_seqs] in falling order, so that the smallest is taken first.
std::vector<SequenceId> all_ids(std::int32_t count) {
  std::vector<SequenceId> ids;
  for (std::int32_t id = count; id-- > 0;) ids.push_back(static_cast<SequenceId>(id));
  return ids;
}

/// Refuses what cannot go with caches that lose tokens.
Result<void> check_kv_policy(const SchedulerConfig& config) {
  if (config.kv_policy.is_full()) return {};
  const char* what = config.prefix_caching    ? "prefix caching"
                     : config.swap_blocks > 0 ? "swap_blocks"
                     : config.speculation.method != SpeculationConfig::Method::none ? "speculation"
                     : config.windows != std::vector<std::int32_t>{0} ? "windows or cache groups"
                                                                      : nullptr;
  if (what == nullptr) return {};
  return fail(ErrorCode::invalid_argument, "kv_policy {} does not go with {}",
              to_string(config.kv_policy.kind), what);
}

}  // namespace

Result<Scheduler> Scheduler::make(const SchedulerConfig& config) {
  const std::pair<const char*, std::int32_t> bounds[] = {
      {"max_num_seqs", config.max_num_seqs},
      {"max_num_batched_tokens", config.max_num_batched_tokens},
      {"max_model_len", config.max_model_len},
      {"block_size", config.block_size},
      {"kv_cache_blocks", config.kv_cache_blocks},
      {"max_steps_in_flight", config.max_steps_in_flight},
      {"micro_batches", config.micro_batches}};
  for (const auto& [name, value] : bounds) {
    if (value < 1) {
      return fail(ErrorCode::invalid_argument, "{} is {}, it must be at least 1", name, value);
    }
  }
  if (config.swap_blocks < 0) {
    return fail(ErrorCode::invalid_argument, "swap_blocks is {}, it must not be negative",
                config.swap_blocks);
  }
  if (config.swap_blocks > 0 &&
      config.speculation.method == SpeculationConfig::Method::draft_model) {
    return fail(
        ErrorCode::invalid_argument,
        "swap_blocks is {} with a draft model: its own cache cannot be swapped, set it to 0",
        config.swap_blocks);
  }
  TROUPE_CHECK(check_kv_policy(config));
  if (!config.chunked_prefill && config.max_num_batched_tokens < config.max_model_len) {
    return fail(ErrorCode::invalid_argument,
                "max_num_batched_tokens ({}) is less than max_model_len ({}): raise it or allow "
                "chunked prefill",
                config.max_num_batched_tokens, config.max_model_len);
  }
  const SpeculationConfig& speculation = config.speculation;
  if (speculation.method != SpeculationConfig::Method::none &&
      (speculation.tokens < 1 || speculation.tokens > 16 || speculation.longest_match < 1)) {
    return fail(ErrorCode::invalid_argument,
                "speculation guesses {} tokens after a match of up to {}: 1 to 16, and at least 1",
                speculation.tokens, speculation.longest_match);
  }
  return Scheduler(config);
}

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(config),
      kv_(config.kv_cache_blocks, config.block_size, config.windows, config.prefix_caching),
      slots_(static_cast<std::size_t>(config.max_num_seqs)),
      free_ids_(all_ids(config.max_num_seqs)),
      swaps_(config.swap_blocks),
      result_of_(static_cast<std::size_t>(config.max_num_seqs), -1) {
  for (Sequence& slot : slots_) slot.ended = true;
}

std::optional<StepPlan> Scheduler::plan(std::int64_t now_us) {
  if (in_flight() >= static_cast<std::size_t>(config_.max_steps_in_flight)) return std::nullopt;
  OpenPlan open;
  open.plan.steps.reserve(running_.size());
  open.planned.shares.reserve(running_.size());
  const auto part = [this](std::size_t all) {
    const auto parts = static_cast<std::size_t>(config_.micro_batches);
    return (all + parts - 1) / parts;
  };
  if (swaps()) make_room_ahead();
  open.tokens = token_budget();
  open.sequences = part(running_.size());
  plan_running(open);
  put_late_ones_back(now_us);
  if (swaps()) bring_back(open);
  open.sequences = part(std::min(slots_.size(), running_.size() + waiting_.size() + unmade_));
  admit_waiting(open);
  const bool swaps_can_wait = swaps_.going_out().empty() || !nothing_is_computed();
  if (open.plan.steps.empty() && open.plan.swapped_in.empty() && swaps_can_wait) {
    return std::nullopt;
  }
  return number(std::move(open.plan), std::move(open.planned));
}

StepPlan Scheduler::plan_empty() { return number({}, {}); }

StepPlan Scheduler::number(StepPlan plan, PlannedStep planned) {
  plan.step = planned.step = next_step_++;
  plan.epoch = epoch_;
  plan.released = std::exchange(released_, {});
  // Blocks allocated from here on belong to later plans.
  for (const SwappedSequence& swap : swaps_.tell()) {
    SequenceBlocks& blocks = slots_[swap.id].blocks;
    plan.swapped_out.push_back({swap.id, kv_.in_places_of(swap.host_blocks, blocks)});
    kv_.vacate(blocks);
  }
  in_flight_.push_back(std::move(planned));
  return plan;
}

bool Scheduler::nothing_is_computed() const {
  return std::ranges::all_of(in_flight_,
                             [](const auto& planned) { return planned.shares.empty(); });
}

/// This plan's share of the tokens that are not computed yet, those in flight included.
std::int32_t Scheduler::token_budget() const {
  const std::int32_t most = config_.max_num_batched_tokens;
  if (config_.micro_batches == 1 || !config_.chunked_prefill) return most;
  const std::int64_t enough = std::int64_t{most} * config_.micro_batches;
  std::int64_t tokens = 0;
  for (const SequenceId id : running_) {
    tokens += std::max(slots_[id].known() - slots_[id].computed, 1);
  }
  for (const auto& [rank, sequence] : waiting_) {
    if (tokens >= enough) return most;
    const auto following = sequence.admitted_before ? 0 : sequence.group->unmade;
    tokens += std::int64_t{sequence.known()} * (1 + following);
  }
  tokens = std::min(tokens, enough);
  return static_cast<std::int32_t>((tokens + config_.micro_batches - 1) / config_.micro_batches);
}

void Scheduler::plan_running(OpenPlan& open) {
  for (std::size_t i = 0; i < running_.size() && !open.is_full(); ++i) {
    const SequenceId id = running_[i];
    Sequence& sequence = slots_[id];
    const std::int32_t tokens = share_of(sequence, open.tokens);
    if (tokens == 0 || sequence.evicting) continue;
    kv_.drop_left(sequence.scheduled, sequence.blocks);
    const std::int32_t dropped = dropped_before(sequence, sequence.scheduled);
    if (!make_room(id, sequence.scheduled + tokens - dropped)) continue;
    std::vector<std::int32_t> drafts;
    if (sequence.scheduled + tokens == sequence.known()) {
      drafts = drafts_for(sequence, open.tokens - tokens);
    }
    plan_share(id, tokens, std::move(drafts), open);
  }
}

/// Allocates blocks for the entries of `id` below `end`, evicting the last running sequences if
/// need be. False: not possible now, or `id` itself was the last.
bool Scheduler::make_room(SequenceId id, std::int32_t end) {
  while (!kv_.grow(end, slots_[id].blocks)) {
    if (release_kept(slots_[running_.back()].rank)) continue;
    const bool is_last = running_.back() == id;
    if (!evict_last() || is_last) return false;
  }
  return true;
}

/// Evicts the last running sequence. False: its blocks are not free yet.
bool Scheduler::evict_last() {
  // The evicted sequences' blocks become free with the next results, or with the next plan.
  if (evicting_ > 0 || !swaps_.going_out().empty()) return false;
  const SequenceId last = running_.back();
  if (slots_[last].plans_in_flight > 0) {
    slots_[last].evicting = true;
    ++evicting_;
    return false;
  }
  running_.pop_back();
  preempt(last);
  return true;
}

/// The number of tokens of a sequence that can be planned now.
std::int32_t Scheduler::share_of(const Sequence& sequence, std::int32_t budget) const {
  if (sequence.sampled_in_flight > 0) return may_run_ahead(sequence) ? 1 : 0;
  // No plan has rows on both sides of a position at which tokens are dropped.
  const std::int32_t until_drop =
      config_.kv_policy.next_drop(sequence.scheduled, sequence.prompt_tokens) - sequence.scheduled;
  const std::int32_t wanted = std::min(sequence.known() - sequence.scheduled, until_drop);
  if (wanted > budget && !config_.chunked_prefill) return 0;
  return std::min(wanted, budget);
}

/// True if a token that is being sampled can be planned before its id is known here.
bool Scheduler::may_run_ahead(const Sequence& sequence) const {
  return config_.speculation.method == SpeculationConfig::Method::none &&
         sequence.generated() + sequence.sampled_in_flight < sequence.max_generated &&
         next_step_ - sequence.last_step >= static_cast<std::uint64_t>(config_.micro_batches);
}

/// Drafts of the tokens after the last known one, as many as fit; blocks for them are allocated.
std::vector<std::int32_t> Scheduler::drafts_for(Sequence& sequence, std::int32_t budget) {
  const SpeculationConfig& speculation = config_.speculation;
  // One token is sampled in any case, and the last one that may be generated is never an input.
  const std::int32_t most =
      std::min({speculation.tokens, budget, sequence.max_generated - sequence.generated() - 1});
  std::vector<std::int32_t> drafts;
  if (most < 1) return drafts;
  switch (speculation.method) {
    case SpeculationConfig::Method::none:
      break;
    case SpeculationConfig::Method::prompt_lookup:
      if (!sequence.lookup) sequence.lookup.emplace(speculation.longest_match);
      drafts = sequence.lookup->continuation(sequence.tokens, most);
      break;
    case SpeculationConfig::Method::draft_model:
      drafts = std::exchange(sequence.drafts, {});
      drafts.resize(std::min(drafts.size(), static_cast<std::size_t>(most)));
      break;
  }
  const std::int32_t end = sequence.known() + static_cast<std::int32_t>(drafts.size());
  if (!grow_for_guesses(end, sequence.blocks)) drafts.clear();
  return drafts;
}

/// Allocates blocks for drafts, but leaves one block for each running sequence and group.
bool Scheduler::grow_for_guesses(std::int32_t end, SequenceBlocks& blocks) {
  const auto wanted = static_cast<std::int32_t>(running_.size() * kv_.groups());
  const std::int32_t missing = kv_.missing(end, blocks);
  return missing == 0 || (missing + wanted <= kv_.pool().free_blocks() && kv_.grow(end, blocks));
}

void Scheduler::plan_share(SequenceId id, std::int32_t tokens, std::vector<std::int32_t> drafts,
                           OpenPlan& open) {
  Sequence& sequence = slots_[id];
  const auto guessed = static_cast<std::int32_t>(drafts.size());
  SequenceStep& step = open.plan.steps.emplace_back();
  step.id = id;
  step.first_position = sequence.scheduled;
  step.tokens = tokens + guessed;
  step.drafts = std::move(drafts);
  sequence.scheduled += step.tokens;
  step.sample = sequence.scheduled >= sequence.known() && sequence.max_generated > 0;
  if (step.sample && config_.speculation.method == SpeculationConfig::Method::draft_model) {
    // The draft model also writes KV for the drafts that it reads.
    const std::int32_t read = sequence.scheduled + config_.speculation.tokens;
    grow_for_guesses(std::min(read, sequence.prompt_tokens + sequence.max_generated),
                     sequence.blocks);
  }
  if (!config_.kv_policy.is_full()) {
    // Blocks of what is dropped are free from here on: workers drop it before the plan's steps.
    sequence.dropped = dropped_before(sequence, step.first_position);
    kv_.truncate(sequence.scheduled - sequence.dropped, sequence.blocks);
  }
  step.new_blocks = kv_.take_new(sequence.blocks);
  sequence.last_step = next_step_;
  sequence.sampled_in_flight += step.sample ? 1 : 0;
  ++sequence.plans_in_flight;
  kv_.publish(sequence.tokens, sequence.scheduled, sequence.blocks);
  counters_.drafts += static_cast<std::uint64_t>(guessed);
  count_prompt(sequence, step.first_position);
  open.tokens -= step.tokens;
  open.planned.shares.push_back({id, step.tokens, step.sample, guessed});
}

/// Counts the prompt tokens among positions `begin` to sequence.scheduled, which are in a plan.
void Scheduler::count_prompt(Sequence& sequence, std::int32_t begin) {
  const std::int32_t end = std::min(sequence.scheduled, sequence.prompt_tokens);
  if (end <= begin) return;
  counters_.prompt_tokens += static_cast<std::uint64_t>(end - begin);
  const std::int32_t again = std::min(end, sequence.prompt_planned) - begin;
  counters_.recomputed_tokens += static_cast<std::uint64_t>(std::max(again, 0));
  sequence.prompt_planned = std::max(sequence.prompt_planned, end);
}

/// Takes the blocks of `id`, which no plan in flight names and which is no longer in running_.
void Scheduler::preempt(SequenceId id) {
  if (swaps() && swap_out(id)) return;
  kv_.release(slots_[id].blocks);
  ++counters_.preemptions;
  counters_.max_preemptions = std::max(counters_.max_preemptions, ++slots_[id].preemptions);
  wait_again(id);
  free_slot(id);
}

/// Moves a sequence without blocks from its slot to the waiting ones.
void Scheduler::wait_again(SequenceId id) {
  Sequence sequence = std::move(slots_[id]);
  sequence.scheduled = sequence.computed = sequence.dropped = 0;
  sequence.sampled_in_flight = sequence.plans_in_flight = 0;
  sequence.evicting = false;
  sequence.drafts.clear();
  sequence.lookup.reset();
  SequenceGroup& group = *sequence.group;
  find_member(group, sequence.number)->slot.reset();
  reserve_ids(group);
  waiting_.emplace(sequence.rank, std::move(sequence));
}

std::vector<UnderWay> Scheduler::under_way() const {
  std::map<std::uint64_t, UnderWay> requests;
  for (const PlannedStep& planned : in_flight_) {
    for (const PlannedShare& share : planned.shares) {
      const Sequence& sequence = slots_[share.id];
      if (sequence.ended) continue;
      const SequenceGroup& group = *sequence.group;
      UnderWay& one = requests[group.request];
      one.request = group.request;
      if (group.is_search() || group.made + group.unmade > 1) continue;
      const std::int64_t known =
          std::max<std::int64_t>(sequence.scheduled, std::ssize(sequence.tokens));
      one.reach = known - std::ssize(group.prompt);
    }
  }
  std::vector<UnderWay> all;
  for (const auto& [id, one] : requests) all.push_back(one);
  return all;
}

LostWork Scheduler::restart(std::uint32_t epoch) {
  LostWork lost;
  for (SequenceId id = 0; id < slots_.size(); ++id) {
    if (slots_[id].ended) continue;
    lost.kv_tokens += static_cast<std::uint64_t>(slots_[id].computed);
    lost.in_flight_tokens += static_cast<std::uint64_t>(slots_[id].sampled_in_flight);
    kv_.release(slots_[id].blocks);
    wait_again(id);
  }
  for (SequenceGroup* search : searches_) {
    search->parent_blocks.clear();
    search->ended_blocks.clear();
  }
  swaps_ = SwapSpace(config_.swap_blocks);
  kv_ = KvTables(config_.kv_cache_blocks, config_.block_size, config_.windows,
                 config_.prefix_caching);
  for (Sequence& slot : slots_) {
    slot = Sequence{};
    slot.ended = true;
  }
  free_ids_ = all_ids(config_.max_num_seqs);
  running_.clear();
  released_.clear();
  in_flight_.clear();
  evicting_ = 0;
  epoch_ = epoch;
  return lost;
}

}  // namespace troupe
