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

ModelRunner::ModelRunner(Model& model, Ops& ops, Collectives& tensor, std::int64_t kv_blocks)
    : model_(&model), ops_(&ops), tensor_(&tensor), kv_blocks_(kv_blocks) {}

Result<ModelRunner> ModelRunner::create(Model& model, Ops& ops, Collectives& tensor,
                                        std::int64_t kv_blocks) {
  ModelRunner runner(model, ops, tensor, kv_blocks);
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

Result<StepResult> ModelRunner::run(const StepPlan& plan) {
  const auto begin = std::chrono::steady_clock::now();
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
  result.model_us =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                     std::chrono::steady_clock::now() - begin)
                                     .count());
  return result;
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
  const auto upload = [this](std::vector<std::int32_t>& from, const DeviceTensor& to) {
    const Tensor target = to.view().rows(0, static_cast<std::int64_t>(from.size()));
    ops_->upload(host_view(from), target);
    return target;
  };
  ForwardBatch batch;
  batch.token_ids = upload(ids_, device_ids_);
  batch.head_rows = upload(head_rows_, device_heads_);
  batch.attention = {.positions = upload(positions_, device_positions_),
                     .kv_slots = upload(slots_, device_slots_),
                     .block_tables = upload(tables_, device_tables_),
                     .sequences = spans_,
                     .block_size = model_->limits().block_size};
  const auto head_count = static_cast<std::int64_t>(heads_.size());
  const Tensor logits = logits_.view().rows(0, head_count);
  TROUPE_CHECK(model_->forward(batch, logits));

  if (head_count > 0) {
    std::int32_t alternatives = 0;
    for (const HeadRow& row : heads_) {
      alternatives = std::max(alternatives, wanted_logprobs(row.sequence->sampling, row.sample));
    }
    const auto width = static_cast<std::int64_t>(record_bytes(alternatives));
    // Each rank chooses for its share of the rows, then all tell each other.
    const auto size = tensor_->size();
    std::vector<std::int64_t> rows_per_rank(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      rows_per_rank[static_cast<std::size_t>(r)] = ceil_slice(head_count, {r, size}).count;
    }
    const Slice mine = ceil_slice(head_count, {tensor_->rank(), size});

    const Tensor host = host_logits_.view().rows(0, head_count);
    ops_->download(logits, host);
    TROUPE_CHECK(ops_->synchronize());
    const std::int64_t vocab = model_->config().vocab_size;
    own_records_.assign(static_cast<std::size_t>(mine.count * width), std::byte{0});
    all_records_.resize(static_cast<std::size_t>(head_count * width));
    for (std::int64_t i = 0; i < mine.count; ++i) {
      const std::int64_t row = mine.begin + i;
      choose(host.rows(row, 1).span<float>().first(static_cast<std::size_t>(vocab)), heads_[row],
             std::span(own_records_).subspan(i * width, width));
    }
    TROUPE_CHECK(tensor_->all_gather(
        Tensor(own_records_.data(), DType::u8, Shape{mine.count, width}),
        Tensor(all_records_.data(), DType::u8, Shape{head_count, width}), rows_per_rank));
    for (std::int64_t i = 0; i < head_count; ++i) {
      take_record(std::span(all_records_).subspan(i * width, width), heads_[i], result);
    }
  }
  ids_.clear();
  positions_.clear();
  slots_.clear();
  tables_.clear();
  head_rows_.clear();
  spans_.clear();
  heads_.clear();
  return {};
}

void ModelRunner::choose(std::span<const float> logits, const HeadRow& row,
                         std::span<std::byte> record) {
  const Sequence& sequence = *row.sequence;
  RowHead head;
  if (row.sample) {
    const SampledToken sampled = sample(logits, sequence.sampling,
                                        static_cast<std::uint64_t>(row.position) + 1, 0, scratch_);
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
    head.alternatives = static_cast<std::int32_t>(scores.top_ids.size());
    std::byte* out = record.data() + sizeof(RowHead);
    std::memcpy(out, scores.top_ids.data(), scores.top_ids.size() * 4);
    std::memcpy(out + scores.top_ids.size() * 4, scores.top_logprobs.data(),
                scores.top_logprobs.size() * 4);
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
    scores.top_ids.resize(static_cast<std::size_t>(head.alternatives));
    scores.top_logprobs.resize(static_cast<std::size_t>(head.alternatives));
    const std::byte* from = record.data() + sizeof head;
    std::memcpy(scores.top_ids.data(), from, scores.top_ids.size() * 4);
    std::memcpy(scores.top_logprobs.data(), from + scores.top_ids.size() * 4,
                scores.top_logprobs.size() * 4);
    (row.sample ? entry.logprobs : entry.prompt_logprobs).push_back(std::move(scores));
  }
  if (row.sample) {
    entry.tokens.push_back(head.id);
    // `row.sequence` is const for whoever reads rows; here its successor becomes known.
    sequences_.at(entry.id).tokens.push_back(head.id);
  }
}

}  // namespace troupe
