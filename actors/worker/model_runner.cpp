#include "actors/worker/model_runner.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "parallel/sharding/sharding.hpp"

namespace troupe {
namespace {

/// What a rank tells the others of one row: a RowHead, then `n` ids and `n` log-probabilities.
struct RowHead {
  std::int32_t id = -1;
  std::int32_t failed = 0;
  std::int32_t alternatives = 0;
  float logprob = 0.0F;
  std::int32_t rank = 0;
};

std::size_t record_bytes(std::int32_t alternatives) {
  return sizeof(RowHead) + static_cast<std::size_t>(alternatives) * 8;
}

std::int32_t wanted_logprobs(const SamplingParams& sampling, bool sample) {
  return sample ? sampling.logprobs : sampling.prompt_logprobs;
}

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
      kv_blocks_(kv_blocks) {}

Result<ModelRunner> ModelRunner::create(Model& model, Ops& ops, const ParallelContext& parallel,
                                        std::int64_t kv_blocks) {
  ModelRunner runner(model, ops, parallel, kv_blocks);
  TROUPE_CHECK(runner.allocate());
  return runner;
}

Result<void> ModelRunner::allocate() {
  const ModelLimits& limits = model_->limits();
  const std::int64_t vocab = model_->config().vocab_size;
  TROUPE_TRY(device_ids_, ops_->allocate(DType::i32, Shape{limits.max_batch_tokens}));
  TROUPE_TRY(device_positions_, ops_->allocate(DType::i32, Shape{limits.max_batch_tokens}));
  TROUPE_TRY(device_slots_, ops_->allocate(DType::i32, Shape{limits.max_batch_tokens}));
  TROUPE_TRY(device_tables_, ops_->allocate(DType::i32, Shape{kv_blocks_}));
  TROUPE_TRY(device_heads_, ops_->allocate(DType::i32, Shape{limits.max_head_rows}));
  if (!is_last_stage()) return {};
  TROUPE_TRY(logits_, ops_->allocate(DType::f32, Shape{limits.max_head_rows, vocab}));
  host_logits_ = HostTensor(DType::f32, Shape{limits.max_head_rows, vocab});
  return {};
}

Result<void> ModelRunner::apply_deltas(const StepPlan& plan) {
  for (const SequenceId id : plan.released) {
    if (sequences_.erase(id) == 0) {
      return fail(ErrorCode::corrupt_data, "step {} releases sequence {}, which is not there",
                  plan.step, id);
    }
  }
  for (const NewSequence& started : plan.started) {
    for (const std::int32_t token : started.tokens) {
      if (token < 0 || token >= model_->config().vocab_size) {
        return fail(ErrorCode::corrupt_data, "step {}: sequence {} holds token id {} of {}",
                    plan.step, started.id, token, model_->config().vocab_size);
      }
    }
    if (started.prompt_tokens < 0 || started.prompt_tokens > std::ssize(started.tokens)) {
      return fail(ErrorCode::corrupt_data, "step {}: sequence {} has {} tokens, {} of them a prompt",
                  plan.step, started.id, started.tokens.size(), started.prompt_tokens);
    }
    const auto [place, added] = sequences_.try_emplace(
        started.id, Sequence{started.tokens, started.prompt_tokens, 0, started.sampling, {}});
    if (!added) {
      return fail(ErrorCode::corrupt_data, "step {} starts sequence {} a second time", plan.step,
                  started.id);
    }
  }
  for (const SequenceStep& step : plan.steps) {
    TROUPE_CHECK(check_step(step));
    auto& blocks = sequences_.at(step.id).blocks;
    blocks.insert(blocks.end(), step.new_blocks.begin(), step.new_blocks.end());
  }
  return {};
}

Result<void> ModelRunner::check_step(const SequenceStep& step) const {
  const auto found = sequences_.find(step.id);
  if (found == sequences_.end()) {
    return fail(ErrorCode::corrupt_data, "a step names sequence {}, which is not there", step.id);
  }
  const Sequence& sequence = found->second;
  const std::int64_t end = std::int64_t{step.first_position} + step.tokens;
  const auto known = static_cast<std::int64_t>(sequence.tokens.size());
  const auto room = static_cast<std::int64_t>(sequence.blocks.size() + step.new_blocks.size()) *
                    model_->limits().block_size;
  if (step.tokens < 1 || step.first_position < 0 || step.first_position > sequence.computed ||
      end > known || end > room || end > model_->limits().max_positions ||
      (step.sample && end != known)) {
    return fail(ErrorCode::corrupt_data,
                "sequence {} cannot compute positions [{}, {}): {} are computed, {} known, and its "
                "blocks have room for {}",
                step.id, step.first_position, end, sequence.computed, known, room);
  }
  for (const std::int32_t block : step.new_blocks) {
    if (block < 0 || block >= kv_blocks_) {
      return fail(ErrorCode::corrupt_data, "sequence {} is given block {} of {}", step.id, block,
                  kv_blocks_);
    }
  }
  return {};
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
    const std::vector<SequenceId> ids = std::move(awaited_.front());
    awaited_.pop_front();
    ++messages_taken_;
    sampled_.resize(ids.size());
    TROUPE_CHECK(pipeline_->receive(host_view(sampled_), stages_ - 1));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      sequences_.at(ids[i]).tokens.back() = sampled_[i];
    }
  }
  return {};
}

void ModelRunner::await_sampled_ids(const StepPlan& plan) {
  std::vector<SequenceId> ids;
  for (const SequenceStep& step : plan.steps) {
    if (!step.sample) continue;
    Sequence& sequence = sequences_.at(step.id);
    sequence.tokens.push_back(unknown_token);
    sequence.awaits_message = messages_taken_ + awaited_.size() + 1;
    ids.push_back(step.id);
  }
  if (is_first_stage() && !ids.empty()) awaited_.push_back(std::move(ids));
}

Result<void> ModelRunner::tell_sampled_ids(const StepPlan& plan, const StepResult& result) {
  sampled_.clear();
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (!plan.steps[i].sample) continue;
    const auto& tokens = result.results[i].tokens;
    sampled_.push_back(tokens.empty() ? unknown_token : tokens.back());
  }
  if (sampled_.empty()) return {};
  return pipeline_->send(host_view(sampled_), 0);
}

Result<StepResult> ModelRunner::run(const StepPlan& plan) {
  const auto begin = std::chrono::steady_clock::now();
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
  if (!is_last_stage()) {
    await_sampled_ids(plan);
  } else if (stages_ > 1) {
    TROUPE_CHECK(tell_sampled_ids(plan, result));
  }
  result.model_us =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                     std::chrono::steady_clock::now() - begin)
                                     .count());
  return result;
}

Result<void> ModelRunner::join_passes_of_others() {
  while (true) {
    TROUPE_TRY(const bool others_have, any_has_tokens(false));
    if (!others_have) return {};
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
  const ModelLimits& limits = model_->limits();
  const Sequence& sequence = sequences_.at(step.id);
  const std::int32_t used_blocks = (end + limits.block_size - 1) / limits.block_size;
  // Tables of sequences that share no blocks always fit; those that do may need another pass.
  if (static_cast<std::int64_t>(tables_.size()) + used_blocks > kv_blocks_ && !spans_.empty()) {
    return 0;
  }
  SequenceSpan span{.first_row = static_cast<std::int32_t>(ids_.size()),
                    .rows = 0,
                    .first_position = begin,
                    .block_offset = static_cast<std::int32_t>(tables_.size())};
  std::int32_t position = begin;
  for (; position < end; ++position) {
    const bool sample = step.sample && position + 1 == end;
    const bool score =
        sequence.sampling.prompt_logprobs >= 0 && !sample && position + 1 < sequence.prompt_tokens;
    if (static_cast<std::int64_t>(ids_.size()) == limits.max_batch_tokens) break;
    if (sample || score) {
      if (static_cast<std::int64_t>(heads_.size()) == limits.max_head_rows) break;
      head_rows_.push_back(static_cast<std::int32_t>(ids_.size()));
      heads_.push_back({result, &sequence, position, sample});
    }
    ids_.push_back(sequence.tokens[position]);
    positions_.push_back(position);
    slots_.push_back(sequence.blocks[position / limits.block_size] * limits.block_size +
                     position % limits.block_size);
    ++span.rows;
  }
  if (span.rows > 0) {
    tables_.insert(tables_.end(), sequence.blocks.begin(), sequence.blocks.begin() + used_blocks);
    spans_.push_back(span);
  }
  return span.rows;
}

Result<void> ModelRunner::run_pass(StepResult& result) {
  if (ids_.empty()) return {};
  if (domain_ != nullptr) TROUPE_CHECK(any_has_tokens(true));
  const auto upload = [this](std::vector<std::int32_t>& from, const DeviceTensor& to) {
    const Tensor target = to.view().rows(0, static_cast<std::int64_t>(from.size()));
    ops_->upload(host_view(from), target);
    return target;
  };
  ForwardBatch batch;
  batch.token_ids = upload(ids_, device_ids_);
  batch.head_rows = upload(head_rows_, device_heads_);
  const AttentionBatch attention{.positions = upload(positions_, device_positions_),
                                 .kv_slots = upload(slots_, device_slots_),
                                 .block_tables = upload(tables_, device_tables_),
                                 .sequences = spans_,
                                 .block_size = model_->limits().block_size};
  batch.attention = std::span(&attention, 1);
  Tensor logits;
  if (is_last_stage()) logits = logits_.view().rows(0, static_cast<std::int64_t>(heads_.size()));
  TROUPE_CHECK(model_->forward(batch, logits));
  if (is_last_stage() && !heads_.empty()) TROUPE_CHECK(read_logits(logits, result));
  ids_.clear();
  positions_.clear();
  slots_.clear();
  tables_.clear();
  head_rows_.clear();
  spans_.clear();
  heads_.clear();
  return {};
}

Result<void> ModelRunner::read_logits(const Tensor& logits, StepResult& result) {
  const auto head_count = static_cast<std::int64_t>(heads_.size());
  std::int32_t alternatives = 0;
  for (const HeadRow& row : heads_) {
    alternatives = std::max(alternatives, wanted_logprobs(row.sequence->sampling, row.sample));
  }
  const auto width = static_cast<std::int64_t>(record_bytes(alternatives));
  const Tensor host = host_logits_.view().rows(0, head_count);
  ops_->download(logits, host);
  TROUPE_CHECK(ops_->synchronize());

  // Each rank chooses for its share of the rows, then all tell each other.
  const ShardOf shard = tensor_ == nullptr ? ShardOf{} : ShardOf{tensor_->rank(), tensor_->size()};
  const Slice mine = ceil_slice(head_count, shard);
  records_.assign(static_cast<std::size_t>(head_count * width), std::byte{0});
  const auto record = [&](std::int64_t row) {
    return std::span(records_).subspan(static_cast<std::size_t>(row * width),
                                       static_cast<std::size_t>(width));
  };
  for (std::int64_t row = mine.begin; row < mine.end(); ++row) {
    choose(host.rows(row, 1).span<float>(), heads_[static_cast<std::size_t>(row)], record(row));
  }
  if (tensor_ != nullptr) {
    std::vector<std::int64_t> rows_per_rank;
    for (int r = 0; r < shard.size; ++r) {
      rows_per_rank.push_back(ceil_slice(head_count, {r, shard.size}).count);
    }
    const Tensor all(records_.data(), DType::u8, Shape{head_count, width});
    TROUPE_CHECK(tensor_->all_gather(all.rows(mine.begin, mine.count), all, rows_per_rank));
  }
  for (std::int64_t row = 0; row < head_count; ++row) {
    take_record(record(row), heads_[static_cast<std::size_t>(row)], result);
  }
  return {};
}

void ModelRunner::choose(std::span<const float> logits, const HeadRow& row,
                         std::span<std::byte> record) {
  const Sequence& sequence = *row.sequence;
  RowHead head;
  if (row.sample) {
    const auto known = std::span(sequence.tokens).first(static_cast<std::size_t>(row.position) + 1);
    const auto prompt = static_cast<std::size_t>(sequence.prompt_tokens);
    const SampledToken sampled = sample(logits, sequence.sampling,
                                        {known.first(prompt), known.subspan(prompt)}, scratch_);
    head.id = sampled.id;
    head.failed = sampled.failed ? 1 : 0;
  } else {
    head.id = sequence.tokens[row.position + 1];
    const bool finite = std::ranges::all_of(logits, [](float x) { return std::isfinite(x); });
    head.failed = finite ? 0 : 1;
  }
  const std::int32_t wanted = wanted_logprobs(sequence.sampling, row.sample);
  if (wanted >= 0 && head.failed == 0) {
    const TokenLogprobs scores = token_logprobs(logits, head.id, wanted, scratch_);
    head.logprob = scores.logprob;
    head.rank = scores.rank;
    head.alternatives = static_cast<std::int32_t>(scores.top_ids.size());
    const auto ids = std::as_bytes(std::span(scores.top_ids));
    const auto rest = record.subspan(sizeof head);
    std::ranges::copy(ids, rest.begin());
    std::ranges::copy(std::as_bytes(std::span(scores.top_logprobs)),
                      rest.subspan(ids.size()).begin());
  }
  std::memcpy(record.data(), &head, sizeof head);
}

void ModelRunner::take_record(std::span<const std::byte> record, const HeadRow& row,
                              StepResult& result) {
  RowHead head;
  std::memcpy(&head, record.data(), sizeof head);
  SequenceResult& entry = result.results[row.result];
  if (head.failed != 0) {
    entry.failed = true;
    return;
  }
  if (wanted_logprobs(row.sequence->sampling, row.sample) >= 0) {
    TokenLogprobs scores;
    scores.logprob = head.logprob;
    scores.rank = head.rank;
    scores.top_ids.resize(static_cast<std::size_t>(head.alternatives));
    scores.top_logprobs.resize(static_cast<std::size_t>(head.alternatives));
    const auto ids = std::as_writable_bytes(std::span(scores.top_ids));
    const auto values = std::as_writable_bytes(std::span(scores.top_logprobs));
    const auto rest = record.subspan(sizeof head);
    std::ranges::copy(rest.first(ids.size()), ids.begin());
    std::ranges::copy(rest.subspan(ids.size(), values.size()), values.begin());
    (row.sample ? entry.logprobs : entry.prompt_logprobs).push_back(std::move(scores));
  }
  if (row.sample) {
    entry.tokens.push_back(head.id);
    // `row.sequence` is const for whoever reads rows; here its successor becomes known.
    sequences_.at(entry.id).tokens.push_back(head.id);
  }
}

}  // namespace troupe
