#include "actors/worker/model_runner.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {
namespace {

Tensor host_view(std::vector<std::int32_t>& values) {
  return {values.data(), DType::i32, Shape{static_cast<std::int64_t>(values.size())}};
}

}  // namespace

ModelRunner::ModelRunner(Model& model, Ops& ops, const ParallelContext& parallel,
                         std::int64_t kv_blocks)
    : model_(&model),
      ops_(&ops),
      tensor_(parallel.tensor),
      pipeline_(parallel.pipeline),
      domain_(parallel.mesh.replicas_per_domain() > 1 ? parallel.experts : nullptr),
      stage_(parallel.at().stage),
      stages_(parallel.mesh.shape().pipeline),
      kv_blocks_(kv_blocks),
      groups_(cache_groups(model.config())) {}

Result<ModelRunner> ModelRunner::create(Model& model, Ops& ops, const ParallelContext& parallel,
                                        std::int64_t kv_blocks) {
  ModelRunner runner(model, ops, parallel, kv_blocks);
  TROUPE_CHECK(runner.allocate());
  return runner;
}

Result<void> ModelRunner::allocate() {
  const ModelLimits& limits = model_->limits();
  TROUPE_TRY(Pass pass, Pass::create(*ops_, limits, kv_blocks_, groups_.size()));
  pass_.emplace(std::move(pass));
  if (!is_last_stage()) return {};
  const Shape shape{limits.max_head_rows, model_->config().vocab_size};
  TROUPE_TRY(logits_, ops_->allocate(DType::f32, shape));
  TROUPE_TRY(RowSampler sampler, RowSampler::create(*ops_, tensor_, shape[0], shape[1]));
  sampler_.emplace(std::move(sampler));
  return {};
}

Result<void> ModelRunner::apply_deltas(const StepPlan& plan) {
  for (const SequenceId id : plan.released) {
    if (sequences_.erase(id) == 0) {
      return fail(ErrorCode::corrupt_data, "step {} releases sequence {}, which is not there",
                  plan.step, id);
    }
  }
  for (const NewSequence& started : plan.started) TROUPE_CHECK(start(started, plan.step));
  for (const SequenceStep& step : plan.steps) {
    TROUPE_CHECK(check_step(step));
    TROUPE_CHECK(check_blocks(step));
    take_blocks_and_drafts(step);
  }
  return {};
}

Result<void> ModelRunner::start(const NewSequence& started, std::uint64_t step) {
  const auto known = std::ssize(started.tokens);
  for (const std::int32_t token : started.tokens) {
    if (token < 0 || token >= model_->config().vocab_size) {
      return fail(ErrorCode::corrupt_data, "step {}: sequence {} holds token id {} of {}", step,
                  started.id, token, model_->config().vocab_size);
    }
  }
  if (started.prompt_tokens < 0 || started.prompt_tokens > known || started.cached_tokens < 0 ||
      started.cached_tokens >= known) {
    return fail(ErrorCode::corrupt_data,
                "step {}: sequence {} has {} tokens, {} of them a prompt and {} cached", step,
                started.id, known, started.prompt_tokens, started.cached_tokens);
  }
  Sequence sequence;
  sequence.tokens = started.tokens;
  sequence.prompt_tokens = started.prompt_tokens;
  sequence.computed = started.cached_tokens;
  sequence.sampling = started.sampling;
  sequence.tables.resize(groups_.size());
  if (!sequences_.try_emplace(started.id, std::move(sequence)).second) {
    return fail(ErrorCode::corrupt_data, "step {} starts sequence {} a second time", step,
                started.id);
  }
  return {};
}

Result<void> ModelRunner::check_step(const SequenceStep& step) const {
  const auto found = sequences_.find(step.id);
  if (found == sequences_.end()) {
    return fail(ErrorCode::corrupt_data, "sequence {} was never started", step.id);
  }
  const Sequence& sequence = found->second;
  const auto drafts = std::ssize(step.drafts);
  const std::int64_t end = std::int64_t{step.first_position} + step.tokens;
  // A stage between knows of sampled tokens from plans alone.
  const bool knows_tokens = is_first_stage() || is_last_stage();
  const std::int64_t known =
      (knows_tokens ? std::ssize(sequence.tokens)
                    : std::max<std::int64_t>(std::ssize(sequence.tokens), end - drafts)) +
      drafts;
  if (step.tokens <= drafts || step.first_position < 0 || step.first_position > sequence.computed ||
      end > known || end > model_->limits().max_positions || (step.sample && end != known) ||
      (drafts > 0 && !step.sample)) {
    return fail(ErrorCode::corrupt_data,
                "sequence {} cannot compute positions [{}, {}), {} of them drafts: {} are computed "
                "and {} known",
                step.id, step.first_position, end, drafts, sequence.computed, known);
  }
  for (const std::int32_t token : step.drafts) {
    if (token < 0 || token >= model_->config().vocab_size) {
      return fail(ErrorCode::corrupt_data, "sequence {} is given draft {} of {}", step.id, token,
                  model_->config().vocab_size);
    }
  }
  return {};
}

Result<void> ModelRunner::check_blocks(const SequenceStep& step) const {
  const std::size_t groups = groups_.size();
  const std::size_t each = step.new_blocks.size() / groups;
  const std::int64_t end = std::int64_t{step.first_position} + step.tokens;
  const auto room = static_cast<std::int64_t>(sequences_.at(step.id).tables[0].size() + each) *
                    model_->limits().block_size;
  if (step.new_blocks.size() % groups != 0 || end > room) {
    return fail(ErrorCode::corrupt_data,
                "sequence {} with {} new blocks in {} groups has room for {} positions, not {}",
                step.id, step.new_blocks.size(), groups, room, end);
  }
  // Only what the window has left before this step may be missing.
  const std::size_t known = sequences_.at(step.id).tables[0].size();
  const auto first_written =
      static_cast<std::size_t>(step.first_position / model_->limits().block_size);
  for (std::size_t i = 0; i < step.new_blocks.size(); ++i) {
    const bool may_be_missing =
        groups_[i / each].kind == CacheSpec::Kind::window && known + i % each < first_written;
    const std::int32_t block = step.new_blocks[i];
    if (block < (may_be_missing ? -1 : 0) || block >= kv_blocks_) {
      return fail(ErrorCode::corrupt_data, "sequence {} is given block {} of {}", step.id, block,
                  kv_blocks_);
    }
  }
  return {};
}

void ModelRunner::take_blocks_and_drafts(const SequenceStep& step) {
  Sequence& sequence = sequences_.at(step.id);
  const auto each = static_cast<std::ptrdiff_t>(step.new_blocks.size() / groups_.size());
  auto next = step.new_blocks.begin();
  for (auto& table : sequence.tables) {
    table.insert(table.end(), next, next + each);
    next += each;
  }
  const auto end =
      static_cast<std::size_t>(step.first_position) + static_cast<std::size_t>(step.tokens);
  const std::size_t known = end - step.drafts.size();
  if (sequence.tokens.size() < known) sequence.tokens.resize(known, unknown_token);
  sequence.tokens.insert(sequence.tokens.end(), step.drafts.begin(), step.drafts.end());
}

Result<void> ModelRunner::take_sampled_ids(const StepPlan& plan) {
  std::uint64_t needed = 0;
  const auto need = [&](SequenceId id) {
    const auto found = sequences_.find(id);
    if (found != sequences_.end()) needed = std::max(needed, found->second.awaits_message);
  };
  // Of those that go, too: their names may be given to others in this very plan.
  for (const SequenceId id : plan.released) need(id);
  for (const SequenceStep& step : plan.steps) need(step.id);
  while (messages_taken_ < needed) {
    const std::vector<Awaited> awaited = std::move(awaited_.front());
    awaited_.pop_front();
    ++messages_taken_;
    std::size_t length = 0;
    for (const Awaited& entry : awaited) length += 1 + entry.drafts;
    sampled_.resize(length);
    TROUPE_CHECK(pipeline_->receive(host_view(sampled_), stages_ - 1));
    auto next = sampled_.begin();
    for (const Awaited& entry : awaited) {
      const auto last = next + static_cast<std::ptrdiff_t>(1 + entry.drafts);
      auto& tokens = sequences_.at(entry.id).tokens;
      tokens.pop_back();  // the unknown one
      std::copy_if(next, last, std::back_inserter(tokens), [](auto id) { return id >= 0; });
      next = last;
    }
  }
  return {};
}

void ModelRunner::await_sampled_ids(const StepPlan& plan) {
  std::vector<Awaited> awaited;
  for (const SequenceStep& step : plan.steps) {
    if (!step.sample) continue;
    Sequence& sequence = sequences_.at(step.id);
    sequence.tokens.resize(sequence.tokens.size() - step.drafts.size());
    sequence.tokens.push_back(unknown_token);
    sequence.awaits_message = messages_taken_ + awaited_.size() + 1;
    awaited.push_back({step.id, step.drafts.size()});
  }
  if (is_first_stage() && !awaited.empty()) awaited_.push_back(std::move(awaited));
}

Result<void> ModelRunner::take_sampled_ids_here(const StepPlan& plan, const StepResult& result) {
  sampled_.clear();
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const SequenceStep& step = plan.steps[i];
    if (!step.sample) continue;
    std::vector<std::int32_t> ids = result.results[i].tokens;
    if (ids.empty()) ids.push_back(token_after_failure);
    auto& tokens = sequences_.at(step.id).tokens;
    tokens.resize(tokens.size() - step.drafts.size());
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    ids.resize(1 + step.drafts.size(), unknown_token);
    sampled_.insert(sampled_.end(), ids.begin(), ids.end());
  }
  if (stages_ == 1 || sampled_.empty()) return {};
  return pipeline_->send(host_view(sampled_), 0);
}

Result<StepResult> ModelRunner::run(const StepPlan& plan) {
  const std::int64_t begin_ns = monotonic_ns();
  if (stages_ > 1 && is_first_stage()) TROUPE_CHECK(take_sampled_ids(plan));
  TROUPE_CHECK(apply_deltas(plan));
  StepResult result;
  result.step = plan.step;
  result.epoch = plan.epoch;
  for (const SequenceStep& step : plan.steps) {
    SequenceResult entry;
    entry.id = step.id;
    entry.prompt_begin = step.first_position + 1;
    result.results.push_back(std::move(entry));
    std::int32_t next = step.first_position;
    const std::int32_t end = step.first_position + step.tokens;
    while (next < end) {
      const std::int32_t added = add_rows(step, next, end, result.results.size() - 1);
      next += added;
      // A pass is full of rows or of logits: results do not depend on where a prompt is cut.
      if (next < end) TROUPE_CHECK(run_pass(result));
    }
    auto& sequence = sequences_.at(step.id);
    sequence.computed = std::max(sequence.computed, end);
  }
  TROUPE_CHECK(run_pass(result));
  if (domain_ != nullptr) TROUPE_CHECK(join_passes_of_others());
  if (is_last_stage()) {
    TROUPE_CHECK(take_sampled_ids_here(plan, result));
    if (drafter_ != nullptr) TROUPE_CHECK(add_drafts(plan, result));
  } else {
    await_sampled_ids(plan);
  }
  const std::int64_t end_ns = monotonic_ns();
  result.model_us = static_cast<std::uint32_t>((end_ns - begin_ns) / 1000);
  if (recorder_ != nullptr) recorder_->record(SpanKind::step, begin_ns, end_ns);
  return result;
}

Result<void> ModelRunner::add_drafts(const StepPlan& plan, StepResult& result) {
  std::vector<Drafter::Task> tasks;
  std::vector<std::size_t> results;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (!plan.steps[i].sample || result.results[i].failed) continue;
    const Sequence& sequence = sequences_.at(plan.steps[i].id);
    tasks.push_back({.tokens = sequence.tokens,
                     .prompt_tokens = static_cast<std::size_t>(sequence.prompt_tokens),
                     .tables = &sequence.tables,
                     .sampling = &sequence.sampling,
                     .drafts = {}});
    results.push_back(i);
  }
  const SpanScope scope(recorder_, SpanKind::draft);
  TROUPE_CHECK(drafter_->propose(tasks, most_drafts_));
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    result.results[results[i]].drafts = std::move(tasks[i].drafts);
  }
  return {};
}

Result<void> ModelRunner::join_passes_of_others() {
  while (true) {
    TROUPE_TRY(const bool others_have, any_has_tokens(false));
    if (!others_have) return {};
    const SpanScope scope(recorder_, SpanKind::forward);
    TROUPE_CHECK(model_->forward({}, {}));
  }
}

Result<bool> ModelRunner::any_has_tokens(bool here) {
  std::uint8_t own = here ? 1 : 0;
  const auto size = static_cast<std::size_t>(domain_->size());
  std::vector<std::uint8_t> all(size);
  const std::vector<std::int64_t> one_each(size, 1);
  TROUPE_CHECK(domain_->all_gather(Tensor(&own, DType::u8, Shape{1, 1}),
                                   Tensor(all.data(), DType::u8, Shape{domain_->size(), 1}),
                                   one_each));
  return std::ranges::any_of(all, [](std::uint8_t has) { return has != 0; });
}

std::int32_t ModelRunner::add_rows(const SequenceStep& step, std::int32_t begin, std::int32_t end,
                                   std::size_t result) {
  const Sequence& sequence = sequences_.at(step.id);
  const std::int32_t block_size = model_->limits().block_size;
  const auto used_blocks = static_cast<std::size_t>((end + block_size - 1) / block_size);
  // What a row needs is known before its sequence is begun: a begun one has at least one row.
  const std::int32_t first_sampled =
      step.first_position + step.tokens - 1 - static_cast<std::int32_t>(step.drafts.size());
  const auto samples = [&](std::int32_t position) {
    return step.sample && position >= first_sampled;
  };
  const auto scores = [&](std::int32_t position) {
    return sequence.sampling.prompt_logprobs >= 0 && !samples(position) &&
           position + 1 < sequence.prompt_tokens;
  };
  std::int32_t position = begin;
  for (; position < end; ++position) {
    const bool wants_logits = samples(position) || scores(position);
    if (!pass_->has_room_for_row() || (wants_logits && !pass_->has_room_for_head())) break;
    if (position == begin) {
      if (!pass_->has_room_for_tables(used_blocks)) break;
      pass_->begin_sequence(sequence.tables, used_blocks, begin);
    }
    if (wants_logits) {
      const bool sample = samples(position);
      const auto after = sample ? static_cast<std::size_t>(position - first_sampled) : 0;
      heads_.push_back({result, step.id, position, sample, after});
    }
    pass_->add_row(sequence.tables, sequence.tokens[static_cast<std::size_t>(position)], position,
                   wants_logits);
  }
  return position - begin;
}

Result<void> ModelRunner::run_pass(StepResult& result) {
  if (pass_->empty()) return {};
  if (domain_ != nullptr) TROUPE_CHECK(any_has_tokens(true));
  const ForwardBatch batch = pass_->upload();
  Tensor logits;
  if (is_last_stage()) logits = logits_.view().rows(0, pass_->head_rows());
  rows_ += static_cast<std::uint64_t>(batch.token_ids.elements());
  {
    const SpanScope scope(recorder_, SpanKind::forward);
    TROUPE_CHECK(model_->forward(batch, logits));
  }
  if (is_last_stage() && !heads_.empty()) {
    const SpanScope scope(recorder_, SpanKind::sample);
    TROUPE_CHECK(sample_rows(logits, result));
  }
  if (drafter_ != nullptr) {
    const SpanScope scope(recorder_, SpanKind::draft);
    TROUPE_CHECK(drafter_->follow(batch));
  }
  pass_->clear();
  heads_.clear();
  return {};
}

LogitsRow ModelRunner::logits_row(const HeadRow& head) const {
  const Sequence& sequence = sequences_.at(head.id);
  LogitsRow row{.sampling = &sequence.sampling,
                .position = head.position,
                .sample = head.sample,
                .scored = -1,
                .history = {}};
  const auto known = static_cast<std::size_t>(head.position) + 1;
  if (head.sample) {
    const auto tokens = std::span(sequence.tokens).first(known);
    const auto prompt = static_cast<std::size_t>(sequence.prompt_tokens);
    row.history = {tokens.first(prompt), tokens.subspan(prompt)};
  } else {
    row.scored = sequence.tokens[known];
  }
  return row;
}

Result<void> ModelRunner::sample_rows(const Tensor& logits, StepResult& result) {
  rows_to_sample_.clear();
  for (const HeadRow& head : heads_) rows_to_sample_.push_back(logits_row(head));
  TROUPE_CHECK(sampler_->begin(logits, rows_to_sample_));
  TROUPE_TRY(std::vector<RowChoice> choices, sampler_->finish());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    take_choice(std::move(choices[i]), heads_[i], result);
  }
  return {};
}

void ModelRunner::take_choice(RowChoice choice, const HeadRow& row, StepResult& result) const {
  const Sequence& sequence = sequences_.at(row.id);
  SequenceResult& entry = result.results[row.result];
  if (row.sample && row.after_drafts > 0) {
    // The draft before this row must be what the row before it sampled.
    // A row that failed is computed again as the first of the next step, if there is one.
    const bool held =
        !choice.failed && !entry.failed && entry.tokens.size() == row.after_drafts &&
        entry.tokens.back() == sequence.tokens[static_cast<std::size_t>(row.position)];
    if (!held) return;
  }
  if (choice.failed) {
    entry.failed = true;
    return;
  }
  const SamplingParams& sampling = sequence.sampling;
  if ((row.sample ? sampling.logprobs : sampling.prompt_logprobs) >= 0) {
    (row.sample ? entry.logprobs : entry.prompt_logprobs).push_back(std::move(choice.scores));
  }
  if (row.sample) entry.tokens.push_back(choice.id);
}

}  // namespace troupe
