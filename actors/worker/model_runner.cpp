#include "actors/worker/model_runner.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {
namespace {

/// Rows of a pass for each context rank from which dividing it pays. On a GPU fewer rows take as
/// long as one, because the weights are read anyway.
constexpr std::int64_t min_context_rows = 8;
constexpr std::int64_t min_context_rows_of_gpu = 128;

Tensor host_view(std::vector<std::int32_t>& values) {
  return {values.data(), DType::i32, Shape{static_cast<std::int64_t>(values.size())}};
}

}  // namespace

ModelRunner::ModelRunner(Model& model, Ops& ops, const ParallelContext& parallel,
                         std::int64_t kv_blocks)
    : model_(&model),
      ops_(&ops),
      tensor_(parallel.tensor),
      context_(parallel.context),
      context_rank_(parallel.at().context),
      pipeline_(parallel.pipeline.host),
      stage_(parallel.at().stage),
      stages_(parallel.mesh.shape().pipeline),
      kv_blocks_(kv_blocks),
      partners_(StepPartners::of(parallel)),
      sequences_(model, kv_blocks, is_first_stage() || is_last_stage()) {}

Result<ModelRunner> ModelRunner::create(Model& model, Ops& ops, const ParallelContext& parallel,
                                        std::int64_t kv_blocks) {
  ModelRunner runner(model, ops, parallel, kv_blocks);
  TROUPE_CHECK(runner.allocate());
  return runner;
}

Result<void> ModelRunner::allocate() {
  const ModelLimits& limits = model_->limits();
  TROUPE_TRY(Pass pass, Pass::create(*ops_, limits, blocks_to_allocate(*model_, kv_blocks_),
                                     sequences_.cache_groups(),
                                     context_.host == nullptr ? 1 : context_.host->size()));
  pass_.emplace(std::move(pass));
  if (!limits.kv_policy.is_full()) {
    TROUPE_TRY(KvCompactor compactor, KvCompactor::create(*ops_, limits, kv_blocks_));
    compactor_.emplace(std::move(compactor));
  }
  if (!is_last_stage()) return {};
  const std::int64_t vocab = model_->config().vocab_size;
  // The first rank's share is the largest.
  const std::int64_t most = ceil_slice(limits.max_head_rows, {0, shard().size}).count;
  TROUPE_TRY(logits_, ops_->memory().allocate_outputs(DType::f32, {most, vocab}));
  TROUPE_TRY(RowSampler sampler,
             RowSampler::create(*ops_, tensor_, limits.max_head_rows, vocab, context_));
  sampler_.emplace(std::move(sampler));
  return {};
}

Result<void> ModelRunner::allow_swaps(std::int64_t host_blocks) {
  TROUPE_TRY(swap_, model_->make_swap(host_blocks));
  sequences_.allow_swaps(host_blocks);
  return {};
}

Result<void> ModelRunner::take_sequences(const StepPlan& plan) {
  TROUPE_TRY(const CacheMoves moves, sequences_.apply(plan));
  if (compactor_) TROUPE_CHECK(compactor_->compact(*model_, moves.compactions));
  if (swap_ == nullptr) return {};
  // The previous plan's swaps are complete now; this plan's run while it computes.
  swap_->join();
  swap_->copy_out(moves.out);
  swap_->copy_in(moves.in);
  return {};
}

Result<void> ModelRunner::take_sampled_ids(const StepPlan& plan) {
  std::uint64_t needed = 0;
  const auto need = [&](SequenceId id) {
    if (const KnownSequence* found = sequences_.find(id)) {
      needed = std::max(needed, found->awaits_message);
    }
  };
  // Check released sequences, too: this very plan may reuse their ids.
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

void ModelRunner::await_sampled_ids(const Step& step) {
  std::vector<Awaited> awaited;
  for (const Sampled& sampled : step.sampled) {
    KnownSequence& sequence = sequences_.at(sampled.id);
    sequence.tokens.resize(sequence.tokens.size() - sampled.drafts);
    sequence.tokens.push_back(unknown_token);
    sequence.awaits_message = messages_taken_ + awaited_.size() + 1;
    awaited.push_back({sampled.id, sampled.drafts});
  }
  if (is_first_stage() && !awaited.empty()) awaited_.push_back(std::move(awaited));
}

void ModelRunner::await_device(const Step& step) {
  for (std::int32_t row = 0; const HeadRow& head : step.heads) {
    sequences_.at(head.id).tokens.push_back(-1 - row++);
  }
}

void ModelRunner::take_sampled_ids_here(const Step& step) {
  if (step.chosen_on_device) {
    for (const HeadRow& head : step.heads) {
      KnownSequence* sequence = sequences_.find(head.id);
      if (sequence == nullptr || sequence->start != head.start) continue;  // preempted meanwhile
      const auto& ids = step.result.results[head.result].tokens;
      sequence->tokens[static_cast<std::size_t>(head.position) + 1] =
          ids.empty() ? token_after_failure : ids.front();
    }
    return;
  }
  for (const Sampled& sampled : step.sampled) {
    const auto& ids = step.result.results[sampled.result].tokens;
    auto& tokens = sequences_.at(sampled.id).tokens;
    tokens.resize(tokens.size() - sampled.drafts);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    if (ids.empty()) tokens.push_back(token_after_failure);
  }
}

Result<void> ModelRunner::send_sampled_ids(const Step& step) {
  if (stages_ == 1 || step.sampled.empty()) return {};
  sampled_.clear();
  for (const Sampled& sampled : step.sampled) {
    std::vector<std::int32_t> ids = step.result.results[sampled.result].tokens;
    if (ids.empty()) ids.push_back(token_after_failure);
    ids.resize(1 + sampled.drafts, unknown_token);
    sampled_.insert(sampled_.end(), ids.begin(), ids.end());
  }
  return pipeline_->send(host_view(sampled_), 0);
}

bool ModelRunner::can_begin() const {
  return steps_.empty() || (steps_.size() < max_in_flight && steps_.back().chosen_on_device);
}

Result<void> ModelRunner::begin(const StepPlan& plan) {
  Step& step = steps_.emplace_back();
  step.begin_ns = monotonic_ns();
  if (!plan.widened_layers.empty()) TROUPE_CHECK(model_->widen_layers(plan.widened_layers));
  if (stages_ > 1 && is_first_stage()) TROUPE_CHECK(take_sampled_ids(plan));
  TROUPE_CHECK(take_sequences(plan));
  step.result.step = plan.step;
  step.result.epoch = plan.epoch;
  bool has_several_passes = false;
  for (const SequenceStep& planned : plan.steps) {
    SequenceResult entry;
    entry.id = planned.id;
    entry.prompt_begin = planned.first_position + 1;
    step.result.results.push_back(std::move(entry));
    if (planned.sample) {
      step.sampled.push_back({step.result.results.size() - 1, planned.id, planned.drafts.size()});
    }
    std::int32_t next = planned.first_position;
    const std::int32_t end = planned.first_position + planned.tokens;
    while (next < end) {
      next += add_rows(planned, next, end, step);
      if (next == end) break;
      // A pass is full of rows or of logits; results do not depend on where a prompt is split.
      TROUPE_CHECK(run_pass(step));
      // Choices are finished in the order in which they were begun.
      if (steps_.size() > 1) TROUPE_CHECK(collect_samples(steps_.front()));
      TROUPE_CHECK(finish_choices(step));
      step.heads.clear();
      has_several_passes = true;
    }
    auto& sequence = sequences_.at(planned.id);
    sequence.computed = std::max(sequence.computed, end);
  }
  TROUPE_CHECK(run_pass(step));
  step.chosen_on_device = step.chosen_on_device && !has_several_passes;
  if (partners_) TROUPE_CHECK(join_passes_of_others());
  if (!is_last_stage()) {
    await_sampled_ids(step);
  } else if (step.chosen_on_device) {
    await_device(step);
  }
  return {};
}

bool ModelRunner::is_ready() const {
  const Step& step = steps_.front();
  return step.samples_collected || step.heads.empty() || sampler_->is_ready();
}

Result<void> ModelRunner::collect_samples(Step& step) {
  if (step.samples_collected || !is_last_stage()) return {};
  step.samples_collected = true;
  TROUPE_CHECK(finish_choices(step));
  take_sampled_ids_here(step);
  return {};
}

Result<StepResult> ModelRunner::finish() {
  Step& step = steps_.front();
  if (recorder_ != nullptr) recorder_->set_step(step.result.step);
  TROUPE_CHECK(collect_samples(step));
  if (is_last_stage()) {
    TROUPE_CHECK(send_sampled_ids(step));
    if (drafter_ != nullptr) TROUPE_CHECK(add_drafts(step));
  }
  // The device starts a step when it has finished the previous one.
  const std::int64_t begin_ns = std::max(step.begin_ns, last_end_ns_);
  last_end_ns_ = monotonic_ns();
  StepResult result = std::move(step.result);
  steps_.pop_front();
  result.model_us = static_cast<std::uint32_t>((last_end_ns_ - begin_ns) / 1000);
  if (recorder_ != nullptr) recorder_->record(SpanKind::step, begin_ns, last_end_ns_);
  return result;
}

Result<void> ModelRunner::add_drafts(Step& step) {
  std::vector<Drafter::Task> tasks;
  std::vector<std::size_t> results;
  for (const Sampled& sampled : step.sampled) {
    if (step.result.results[sampled.result].failed) continue;
    const KnownSequence& sequence = sequences_.at(sampled.id);
    tasks.push_back({.tokens = sequence.tokens,
                     .prompt_tokens = static_cast<std::size_t>(sequence.prompt_tokens),
                     .tables = &sequence.tables,
                     .sampling = &sequence.sampling,
                     .drafts = {}});
    results.push_back(sampled.result);
  }
  const SpanScope scope(recorder_, SpanKind::draft);
  TROUPE_CHECK(drafter_->propose(tasks, max_drafts_));
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    step.result.results[results[i]].drafts = std::move(tasks[i].drafts);
  }
  return {};
}

Result<void> ModelRunner::join_passes_of_others() {
  while (true) {
    TROUPE_CHECK(meet_partners());
    if (partners_->tokens() == 0) return {};
    TROUPE_TRY([[maybe_unused]] const RanPass ran, forward());
    pass_->clear();
  }
}

Result<void> ModelRunner::meet_partners() {
  const bool records = model_->supports_graph() && !drafting_enabled_;
  const auto block = static_cast<std::int32_t>(kv_blocks_);  // which padding rows write to
  const bool is_agreed = partners_ && partners_->share_dense_layers();
  if (records && !is_agreed) pass_->pad_for_recording(block);
  if (!partners_) return {};
  TROUPE_CHECK(partners_->meet({.rows = {pass_->rows(), pass_->head_rows()},
                                .graph_rows = records ? pass_->recorded_rows() : 0,
                                .room = pass_->padded_room()}));
  if (partners_->graph_rows() > 0) pass_->pad_to(partners_->graph_rows(), block);
  return {};
}

std::int32_t ModelRunner::add_rows(const SequenceStep& planned, std::int32_t begin,
                                   std::int32_t end, Step& step) {
  const KnownSequence& sequence = sequences_.at(planned.id);
  const std::int32_t block_size = model_->limits().block_size;
  const auto used_blocks =
      static_cast<std::size_t>((end - sequence.dropped + block_size - 1) / block_size);
  // A row's requirements are known before its sequence is begun: a begun one has at least one row.
  const std::int32_t first_sampled = planned.first_position + planned.tokens - 1 -
                                     static_cast<std::int32_t>(planned.drafts.size());
  const auto samples = [&](std::int32_t position) {
    return planned.sample && position >= first_sampled;
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
      pass_->begin_sequence(sequence.tables, used_blocks, begin - sequence.dropped);
    }
    if (wants_logits) {
      const bool sample = samples(position);
      const auto after = sample ? static_cast<std::size_t>(position - first_sampled) : 0;
      step.heads.push_back(
          {step.result.results.size() - 1, planned.id, sequence.start, position, sample, after});
    }
    pass_->add_row(sequence.tables, sequence.tokens[static_cast<std::size_t>(position)],
                   sequences_.place_of(sequence, position), wants_logits);
  }
  return position - begin;
}

bool ModelRunner::divides_pass() const {
  if (context_.host == nullptr || pass_->graph_captured()) return false;
  const bool on_gpu = ops_->memory().available().has_value();
  return pass_->rows() >=
         context_.host->size() * (on_gpu ? min_context_rows_of_gpu : min_context_rows);
}

Result<void> ModelRunner::run_pass(Step& step) {
  if (pass_->empty()) return {};
  const std::int64_t unpadded = pass_->rows();
  TROUPE_CHECK(meet_partners());
  const bool divides = divides_pass();
  if (divides) pass_->divide_rows(model_->context_split(pass_->rows()));
  TROUPE_TRY(const RanPass ran, forward());
  rows_ += static_cast<std::uint64_t>(
      divides ? ran.batch.rows_per_context_rank[static_cast<std::size_t>(context_rank_)]
              : unpadded);
  step.result.shared_positions += static_cast<std::uint64_t>(model_->shared_positions());
  if (is_last_stage() && !step.heads.empty()) TROUPE_CHECK(begin_choices(ran.logits, step));
  if (!is_last_stage()) step.heads.clear();
  if (drafter_ != nullptr) {
    const SpanScope scope(recorder_, SpanKind::draft);
    TROUPE_CHECK(drafter_->follow(ran.batch));
  }
  pass_->clear();
  return {};
}

Result<ModelRunner::RanPass> ModelRunner::forward() {
  RanPass ran;
  ForwardBatch& batch = ran.batch;
  if (pass_->empty()) {  // only other replicas have rows
    batch.graph_captured = !partners_->share_dense_layers();
  } else {
    TROUPE_TRY(batch, pass_->upload());
  }
  if (partners_) batch.replicas = partners_->replicas();
  batch.divides_logits = tensor_.host != nullptr;
  batch.alone = alone_;
  if (stages_ == 1 && pass_->awaits_tokens()) {
    ops_->sampling().resolve_sampled_ids(sampler_->chosen(), batch.token_ids);
  }
  if (is_last_stage()) {
    ran.logits = logits_.view().rows(0, ceil_slice(pass_->head_rows(), shard()).count);
  }
  const SpanScope scope(recorder_, SpanKind::forward);
  TROUPE_CHECK(model_->forward(batch, ran.logits));
  return ran;
}

LogitsRow ModelRunner::logits_row(const HeadRow& head) const {
  const KnownSequence& sequence = sequences_.at(head.id);
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

Result<void> ModelRunner::begin_choices(const Tensor& logits, Step& step) {
  rows_to_sample_.clear();
  for (const HeadRow& head : step.heads) rows_to_sample_.push_back(logits_row(head));
  step.chosen_on_device =
      !drafting_enabled_ &&
      std::ranges::all_of(rows_to_sample_, [&](const auto& r) { return sampler_->on_device(r); }) &&
      std::ranges::all_of(step.sampled, [](const Sampled& s) { return s.drafts == 0; });
  // The logits of padding rows come last.
  return sampler_->begin(logits, rows_to_sample_, pass_->head_rows());
}

Result<void> ModelRunner::finish_choices(Step& step) {
  if (step.heads.empty() || !is_last_stage()) return {};
  const SpanScope scope(recorder_, SpanKind::sample);
  TROUPE_TRY(std::vector<RowChoice> choices, sampler_->finish());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const HeadRow& head = step.heads[i];
    if (!step.chosen_on_device) {
      take_choice(std::move(choices[i]), head, step.result);
      continue;
    }
    SequenceResult& entry = step.result.results[head.result];
    entry.failed = choices[i].failed;
    if (!entry.failed) entry.tokens.push_back(choices[i].id);
  }
  return {};
}

void ModelRunner::take_choice(RowChoice choice, const HeadRow& row, StepResult& result) const {
  const KnownSequence& sequence = sequences_.at(row.id);
  SequenceResult& entry = result.results[row.result];
  if (row.sample && row.after_drafts > 0) {
    // The draft before this row must equal the token sampled in the row before. A failed row is
    // computed again as the first of the next step, if there is one.
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
