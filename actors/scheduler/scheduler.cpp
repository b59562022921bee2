#include "actors/scheduler/scheduler.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe {
namespace {

std::int32_t size32(const std::vector<std::int32_t>& list) {
  return static_cast<std::int32_t>(list.size());
}

/// [max_num_seqs], the smallest at the back.
std::vector<SequenceId> all_ids(std::int32_t count) {
  std::vector<SequenceId> ids;
  for (std::int32_t id = count; id-- > 0;) ids.push_back(static_cast<SequenceId>(id));
  return ids;
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
  if (!config.chunked_prefill && config.max_num_batched_tokens < config.max_model_len) {
    return fail(ErrorCode::invalid_argument,
                "max_num_batched_tokens ({}) is less than max_model_len ({}): raise it or allow "
                "chunked prefill",
                config.max_num_batched_tokens, config.max_model_len);
  }
  return Scheduler(config);
}

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(config),
      pool_(config.kv_cache_blocks),
      slots_(static_cast<std::size_t>(config.max_num_seqs)),
      free_ids_(all_ids(config.max_num_seqs)),
      result_of_(static_cast<std::size_t>(config.max_num_seqs), -1) {
  for (Sequence& slot : slots_) slot.ended = true;
}

Result<void> Scheduler::add(SequenceSpec spec) {
  const std::int64_t prompt = static_cast<std::int64_t>(spec.prompt.size());
  const std::int32_t max_tokens = spec.sampling.max_tokens;
  if (prompt == 0) return fail(ErrorCode::invalid_argument, "the prompt is empty");
  if (max_tokens < 0) {
    return fail(ErrorCode::invalid_argument, "max_tokens is {}, it must not be negative",
                max_tokens);
  }
  if (std::any_of(spec.prompt.begin(), spec.prompt.end(), [](auto id) { return id < 0; })) {
    return fail(ErrorCode::invalid_argument, "the prompt has a negative token id");
  }
  if (prompt + (max_tokens > 0 ? 1 : 0) > config_.max_model_len) {
    return fail(ErrorCode::invalid_argument,
                "the prompt has {} tokens, the model's context holds {}{}", prompt,
                config_.max_model_len, max_tokens > 0 ? " with the answer" : "");
  }
  Sequence sequence;
  sequence.request = spec.request;
  sequence.prompt = std::move(spec.prompt);
  sequence.sampling = std::move(spec.sampling);
  sequence.max_generated =
      std::min(max_tokens, config_.max_model_len - static_cast<std::int32_t>(prompt));
  if (const std::int32_t blocks = blocks_needed(sequence); blocks > pool_.blocks()) {
    return fail(ErrorCode::invalid_argument,
                "a prompt of {} tokens with max_tokens {} needs {} cache blocks, there are {}",
                prompt, sequence.max_generated, blocks, pool_.blocks());
  }
  if (!requests_.try_emplace(sequence.request, std::nullopt).second) {
    return fail(ErrorCode::already_exists, "request {} is being answered already",
                sequence.request);
  }
  waiting_.push_back(std::move(sequence));
  return {};
}

bool Scheduler::abort(std::uint64_t request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return false;
  if (found->second) {
    end(*found->second);
    drop_ended_from_running();
    return true;
  }
  requests_.erase(found);
  std::erase_if(waiting_, [&](const Sequence& s) { return s.request == request; });
  return true;
}

std::vector<std::uint64_t> Scheduler::abort_waiting() {
  std::vector<std::uint64_t> ended;
  for (const Sequence& sequence : waiting_) {
    ended.push_back(sequence.request);
    requests_.erase(sequence.request);
  }
  waiting_.clear();
  return ended;
}

/// Blocks for every position whose KV can be computed: the last token generated is never fed back.
std::int32_t Scheduler::blocks_needed(const Sequence& sequence) const {
  const std::int64_t positions =
      size32(sequence.prompt) + std::int64_t{std::max(sequence.max_generated, 1)} - 1;
  return static_cast<std::int32_t>((positions + config_.block_size - 1) / config_.block_size);
}

std::optional<StepPlan> Scheduler::plan() {
  if (in_flight() >= static_cast<std::size_t>(config_.max_steps_in_flight)) return std::nullopt;
  StepPlan plan;
  PlannedStep planned;
  plan.steps.reserve(running_.size());
  planned.shares.reserve(running_.size());
  const auto part = [this](std::size_t all) {
    const auto parts = static_cast<std::size_t>(config_.micro_batches);
    return (all + parts - 1) / parts;
  };
  Budget budget{token_budget(), part(running_.size())};
  plan_running(plan, planned, budget);
  budget.sequences = part(std::min(slots_.size(), running_.size() + waiting_.size()));
  admit_waiting(plan, planned, budget);
  if (plan.steps.empty()) return std::nullopt;
  return number(std::move(plan), std::move(planned));
}

StepPlan Scheduler::plan_empty() { return number({}, {}); }

StepPlan Scheduler::number(StepPlan plan, PlannedStep planned) {
  plan.step = planned.step = next_step_++;
  plan.epoch = epoch_;
  plan.released = std::exchange(released_, {});
  in_flight_.push_back(std::move(planned));
  return plan;
}

/// This plan's part of the tokens that are not computed yet, those in flight included.
std::int32_t Scheduler::token_budget() const {
  const std::int32_t most = config_.max_num_batched_tokens;
  if (config_.micro_batches == 1 || !config_.chunked_prefill) return most;
  const std::int64_t enough = std::int64_t{most} * config_.micro_batches;
  std::int64_t tokens = 0;
  for (const SequenceId id : running_) tokens += slots_[id].known() - slots_[id].computed;
  for (const Sequence& sequence : waiting_) {
    if (tokens >= enough) return most;
    tokens += sequence.known();
  }
  tokens = std::min(tokens, enough);
  return static_cast<std::int32_t>((tokens + config_.micro_batches - 1) / config_.micro_batches);
}

void Scheduler::plan_running(StepPlan& plan, PlannedStep& planned, Budget& budget) {
  for (const SequenceId id : running_) {
    if (budget.tokens == 0 || plan.steps.size() == budget.sequences) return;
    const std::int32_t tokens = share_of(slots_[id], budget.tokens);
    if (tokens == 0) continue;
    plan_share(id, tokens, plan, planned);
    budget.tokens -= tokens;
  }
}

void Scheduler::admit_waiting(StepPlan& plan, PlannedStep& planned, Budget& budget) {
  while (budget.tokens > 0 && plan.steps.size() < budget.sequences && !waiting_.empty() &&
         !free_ids_.empty()) {
    Sequence& next = waiting_.front();
    const std::int32_t tokens = share_of(next, budget.tokens);
    if (tokens == 0 || !pool_.allocate(blocks_needed(next), next.table)) return;
    const SequenceId id = free_ids_.back();
    free_ids_.pop_back();
    Sequence& slot = slots_[id] = std::move(next);
    waiting_.pop_front();
    running_.push_back(id);
    requests_[slot.request] = id;

    NewSequence& started = plan.started.emplace_back();
    started.id = id;
    started.tokens.reserve(static_cast<std::size_t>(slot.known()));
    started.tokens = slot.prompt;
    started.tokens.insert(started.tokens.end(), slot.generated.begin(), slot.generated.end());
    started.prompt_tokens = size32(slot.prompt);
    started.sampling = slot.sampling;
    // The first token came with the prompt's last scores: they are not asked for twice.
    if (!slot.generated.empty()) started.sampling.prompt_logprobs = -1;
    plan_share(id, tokens, plan, planned);
    plan.steps.back().new_blocks = slot.table;
    budget.tokens -= tokens;
  }
}

/// How many of its known tokens a sequence can have planned now.
std::int32_t Scheduler::share_of(const Sequence& sequence, std::int32_t budget) const {
  const std::int32_t wanted = sequence.known() - sequence.scheduled;
  if (wanted > budget && !config_.chunked_prefill) return 0;
  return std::min(wanted, budget);
}

void Scheduler::plan_share(SequenceId id, std::int32_t tokens, StepPlan& plan,
                           PlannedStep& planned) {
  Sequence& sequence = slots_[id];
  SequenceStep& step = plan.steps.emplace_back();
  step.id = id;
  step.first_position = sequence.scheduled;
  step.tokens = tokens;
  sequence.scheduled += tokens;
  step.sample = sequence.scheduled == sequence.known() && sequence.max_generated > 0;
  ++sequence.plans_in_flight;
  planned.shares.push_back({id, tokens, step.sample});
}

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

  std::vector<SequenceUpdate> updates;
  updates.reserve(result.results.size());
  SequenceResult nothing;
  bool any_ended = false;
  for (const PlannedShare& share : planned.shares) {
    const std::int32_t index = std::exchange(result_of_[share.id], -1);
    Sequence& sequence = slots_[share.id];
    sequence.computed += share.tokens;
    --sequence.plans_in_flight;
    if (sequence.ended) {
      if (sequence.plans_in_flight == 0) free_slot(share.id);
      continue;
    }
    SequenceResult& row = index < 0 ? nothing : result.results[static_cast<std::size_t>(index)];
    SequenceUpdate update;
    update.request = sequence.request;
    take_result(share, row, update);
    if (update.end) {
      end(share.id);
      any_ended = true;
    }
    if (update.end || !update.tokens.empty() || !update.prompt_logprobs.empty()) {
      updates.push_back(std::move(update));
    }
  }
  if (any_ended) drop_ended_from_running();
  return updates;
}

/// Leaves the row of each planned sequence's result in `result_of_` (below 0: it has none).
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
  for (const PlannedShare& share : planned.shares) {
    const std::int32_t index = result_of_[share.id];
    if (index < 0) {
      if (!share.sample) continue;
      return fail(ErrorCode::internal, "the result of step {} has nothing for sequence {}",
                  result.step, share.id);
    }
    const SequenceResult& row = result.results[static_cast<std::size_t>(index)];
    const bool scored = slots_[share.id].sampling.logprobs >= 0 && !slots_[share.id].ended;
    if (!share.sample && !row.tokens.empty()) {
      return fail(ErrorCode::internal,
                  "the result of step {} has tokens for sequence {}, whose "
                  "known tokens are not computed",
                  result.step, share.id);
    }
    if (scored && row.logprobs.size() != row.tokens.size()) {
      return fail(ErrorCode::internal,
                  "the result of step {} has {} tokens with {} logprobs for sequence {}",
                  result.step, row.tokens.size(), row.logprobs.size(), share.id);
    }
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
    take_tokens(sequence, result, update);
  } else if (sequence.max_generated == 0 && sequence.computed == sequence.known()) {
    update.end = SequenceEnd::length;
  }
}

void Scheduler::take_tokens(Sequence& sequence, SequenceResult& result, SequenceUpdate& update) {
  if (result.tokens.empty()) {
    --sequence.scheduled;
    --sequence.computed;
    return;
  }
  const auto& stops = sequence.sampling.stop_token_ids;
  std::size_t taken = 0;
  while (taken < result.tokens.size() && !update.end) {
    const std::int32_t token = result.tokens[taken++];
    sequence.generated.push_back(token);
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      update.end = SequenceEnd::stop;
    } else if (size32(sequence.generated) == sequence.max_generated) {
      update.end = SequenceEnd::length;
    }
  }
  result.tokens.resize(taken);
  update.tokens = std::move(result.tokens);
  if (sequence.sampling.logprobs >= 0) {
    result.logprobs.resize(taken);
    update.logprobs = std::move(result.logprobs);
  }
}

void Scheduler::end(SequenceId id) {
  requests_.erase(slots_[id].request);
  slots_[id].ended = true;
  if (slots_[id].plans_in_flight == 0) free_slot(id);
}

void Scheduler::free_slot(SequenceId id) {
  [[maybe_unused]] const auto released = pool_.release(slots_[id].table);
  assert(released.ok());
  slots_[id] = Sequence{};
  slots_[id].ended = true;
  free_ids_.push_back(id);
  released_.push_back(id);
}

void Scheduler::drop_ended_from_running() {
  std::erase_if(running_, [this](SequenceId id) { return slots_[id].ended; });
}

void Scheduler::restart(std::uint32_t epoch) {
  for (std::size_t i = running_.size(); i-- > 0;) {
    Sequence& sequence = waiting_.emplace_front(std::move(slots_[running_[i]]));
    sequence.scheduled = sequence.computed = sequence.plans_in_flight = 0;
    sequence.table.clear();
    requests_[sequence.request] = std::nullopt;
  }
  pool_ = BlockPool(config_.kv_cache_blocks);
  for (Sequence& slot : slots_) {
    slot = Sequence{};
    slot.ended = true;
  }
  free_ids_ = all_ids(config_.max_num_seqs);
  running_.clear();
  released_.clear();
  in_flight_.clear();
  epoch_ = epoch;
}

}  // namespace troupe
