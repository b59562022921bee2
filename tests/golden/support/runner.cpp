#include "tests/golden/support/runner.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/layers/parallel/spans_of_rows.hpp"

namespace troupe::golden {

Result<std::unique_ptr<Runner>> Runner::create(Ops& ops, Model& model, std::int64_t blocks,
                                               int context_ranks) {
  std::unique_ptr<Runner> runner(new Runner(ops, model, blocks, context_ranks));
  TROUPE_CHECK(runner->allocate());
  TROUPE_CHECK(model.allocate_kv_cache(blocks));
  return runner;
}

Result<void> Runner::allocate() {
  const std::int64_t tokens = model_.limits().max_batch_tokens;
  const std::int64_t rows = model_.limits().max_head_rows;
  const std::int64_t vocab = model_.config().vocab_size;
  TROUPE_TRY(token_ids_, ops_.memory().allocate(DType::i32, {tokens}));
  TROUPE_TRY(positions_, ops_.memory().allocate(DType::i32, {tokens}));
  slots_.resize(groups_.size());
  tables_.resize(groups_.size());
  spans_.resize(groups_.size());
  head_spans_.resize(groups_.size());
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    TROUPE_TRY(slots_[group], ops_.memory().allocate(DType::i32, {tokens}));
    // Each slice of a divided pass may have a copy of a table.
    TROUPE_TRY(tables_[group], ops_.memory().allocate(DType::i32, {blocks_ * 2 * context_ranks_}));
    TROUPE_TRY(spans_[group], ops_.memory().allocate(DType::i32, {4 * blocks_}));
    TROUPE_TRY(head_spans_[group], ops_.memory().allocate(DType::i32, {4 * rows}));
  }
  TROUPE_TRY(head_rows_, ops_.memory().allocate(DType::i32, {rows}));
  TROUPE_TRY(head_positions_, ops_.memory().allocate(DType::i32, {rows}));
  TROUPE_TRY(logits_, ops_.memory().allocate(DType::f32, {rows, vocab}));
  host_logits_ = HostTensor(DType::f32, {rows, vocab});
  for (std::int64_t block = blocks_; block-- > 0;) free_.push_back(static_cast<int>(block));
  return {};
}

Result<void> Runner::reserve(Sequence& sequence, std::int32_t tokens) {
  const std::int32_t block_size = model_.limits().block_size;
  sequence.tables.resize(groups_.size());
  for (std::vector<std::int32_t>& table : sequence.tables) {
    while (static_cast<std::int32_t>(table.size()) * block_size < tokens) {
      if (free_.empty()) {
        return fail(ErrorCode::resource_exhausted, "the test needs more than {} blocks", blocks_);
      }
      table.push_back(free_.back());
      free_.pop_back();
    }
  }
  return {};
}

void Runner::drop_what_left_windows(Sequence& sequence) {
  for (std::size_t group = 0; group < sequence.tables.size(); ++group) {
    const std::int64_t window = groups_[group].window;
    if (window == 0) continue;
    const std::int64_t first_seen = sequence.computed - window + 1;
    std::vector<std::int32_t>& table = sequence.tables[group];
    for (std::size_t i = 0; i < table.size(); ++i) {
      const std::int64_t end = static_cast<std::int64_t>(i + 1) * model_.limits().block_size;
      if (end > first_seen || table[i] < 0) continue;
      free_.push_back(table[i]);
      table[i] = -1;
    }
  }
}

void Runner::release(Sequence& sequence) {
  for (const std::vector<std::int32_t>& table : sequence.tables) {
    for (const std::int32_t block : table) {
      if (block >= 0) free_.push_back(block);
    }
  }
  sequence.tables.clear();
  sequence.computed = 0;
}

Tensor Runner::upload(const std::vector<std::int32_t>& values, const Tensor& device) {
  const auto count = static_cast<std::int64_t>(values.size());
  HostTensor host(DType::i32, {count});
  std::ranges::copy(values, host->as<std::int32_t>());
  const Tensor view = device.rows(0, count);
  ops_.memory().upload(host, view);
  (void)ops_.stream().synchronize();
  return view;
}

AttentionBatch Runner::place(std::span<const Share> shares, std::size_t group,
                             const Tensor& positions, std::vector<SequenceSpan>& spans,
                             const std::optional<ContextSplit>& split) {
  const std::int32_t block_size = model_.limits().block_size;
  std::vector<std::int32_t> slots, tables;
  for (const Share& share : shares) {
    const Sequence& sequence = *share.sequence;
    const std::vector<std::int32_t>& table = sequence.tables[group];
    spans.push_back({static_cast<std::int32_t>(slots.size()), share.rows, sequence.computed,
                     static_cast<std::int32_t>(tables.size())});
    tables.insert(tables.end(), table.begin(), table.end());
    for (std::int32_t row = 0; row < share.rows; ++row) {
      const std::int32_t position = sequence.computed + row;
      slots.push_back(table[position / block_size] * block_size + position % block_size);
    }
  }
  if (split && split->reorders()) {
    ContextSplit::Sequences reordered = split->reorder(spans, tables);
    spans = std::move(reordered.spans);
    tables = std::move(reordered.tables);
    slots = split->reorder(slots);
  }
  std::vector<std::int32_t> numbers;
  for (const SequenceSpan& span : spans) {
    numbers.insert(numbers.end(),
                   {span.first_row, span.rows, span.first_position, span.block_offset});
  }
  return {.positions = positions,
          .kv_slots = upload(slots, slots_[group]),
          .block_tables = upload(tables, tables_[group]),
          .sequences = spans,
          .block_size = block_size,
          .spans = upload(numbers, spans_[group])};
}

Result<Tensor> Runner::pass(std::span<const Share> shares) {
  std::vector<std::int32_t> ids, positions, rows;
  for (const Share& share : shares) {
    Sequence& sequence = *share.sequence;
    drop_what_left_windows(sequence);
    TROUPE_CHECK(reserve(sequence, sequence.computed + share.rows));
    for (std::int32_t row = 0; row < share.rows; ++row) {
      if (row >= share.rows - share.logit_rows) rows.push_back(static_cast<int>(ids.size()));
      ids.push_back(sequence.tokens[sequence.computed + row]);
      positions.push_back(sequence.computed + row);
    }
  }
  ForwardBatch batch;
  std::optional<ContextSplit> split;
  if (context_ranks_ > 1 && std::ssize(ids) >= 2 * context_ranks_) {
    split = model_.context_split(std::ssize(ids));
    batch.rows_per_context_rank = split->rows_per_rank();
  }
  if (split && split->reorders()) {
    ids = split->reorder(ids);
    positions = split->reorder(positions);
    for (std::int32_t& row : rows) row = split->place_of(row);
  }
  batch.token_ids = upload(ids, token_ids_);
  const Tensor device_positions = upload(positions, positions_);
  std::vector<AttentionBatch> attention;
  std::vector<std::vector<SequenceSpan>> spans(groups_.size());
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    attention.push_back(place(shares, group, device_positions, spans[group], split));
  }
  batch.attention = attention;
  batch.head_rows = upload(rows, head_rows_);
  std::vector<AttentionBatch> head_attention;
  std::vector<std::vector<SequenceSpan>> head_spans(groups_.size());
  if (!split && !rows.empty()) {
    std::vector<std::int32_t> places;
    for (const std::int32_t row : rows) places.push_back(positions[static_cast<std::size_t>(row)]);
    const Tensor head_positions = upload(places, head_positions_);
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      head_spans[group] = spans_of_single_rows(spans[group], rows);
      std::vector<std::int32_t> numbers;
      for (const SequenceSpan& span : head_spans[group]) {
        numbers.insert(numbers.end(),
                       {span.first_row, span.rows, span.first_position, span.block_offset});
      }
      AttentionBatch of_heads = attention[group];
      of_heads.positions = head_positions;
      of_heads.kv_slots = head_positions;  // nothing is stored
      of_heads.sequences = head_spans[group];
      of_heads.spans = upload(numbers, head_spans_[group]);
      head_attention.push_back(of_heads);
    }
  }
  batch.head_attention = head_attention;
  for (const Share& share : shares) share.sequence->computed += share.rows;
  const auto count = static_cast<std::int64_t>(rows.size());
  TROUPE_CHECK(tell_rows(batch));
  TROUPE_CHECK(model_.forward(batch, logits_->rows(0, count)));
  ops_.memory().download(logits_->rows(0, count), host_logits_->rows(0, count));
  TROUPE_CHECK(ops_.stream().synchronize());
  return host_logits_->rows(0, count);
}

Result<void> Runner::empty_pass() {
  ForwardBatch batch;
  TROUPE_CHECK(tell_rows(batch));
  return model_.forward(batch, Tensor());
}

Result<void> Runner::tell_rows(ForwardBatch& batch) {
  if (dense_ == nullptr) return {};
  const auto ranks = static_cast<std::size_t>(dense_->size());
  std::vector<std::int64_t> own = {batch.token_ids.elements(), batch.head_rows.elements()};
  std::vector<std::int64_t> all(2 * ranks);
  const std::vector<std::int64_t> one_each(ranks, 1);
  TROUPE_CHECK(dense_->all_gather(Tensor(own.data(), DType::i64, {1, 2}),
                                  Tensor(all.data(), DType::i64, {dense_->size(), 2}), one_each));
  replicas_.clear();
  for (std::size_t rank = 0; rank < ranks; rank += static_cast<std::size_t>(tensor_ranks_)) {
    replicas_.push_back({all[2 * rank], all[2 * rank + 1]});
  }
  batch.replicas = replicas_;
  return {};
}

Result<void> Runner::feed(Sequence& sequence, std::int32_t chunk, std::vector<float>& logits) {
  while (sequence.computed < static_cast<std::int32_t>(sequence.tokens.size())) {
    const auto left = static_cast<std::int32_t>(sequence.tokens.size()) - sequence.computed;
    const std::int32_t rows = std::min(chunk, left);
    const Share share{&sequence, rows, rows};
    TROUPE_TRY(const Tensor found, pass({&share, 1}));
    const std::span<const float> values = found.span<float>();
    logits.insert(logits.end(), values.begin(), values.end());
  }
  return {};
}

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

std::vector<double> log_softmax(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const double normaliser = largest + std::log(sum);
  std::vector<double> logprobs;
  for (const float logit : logits) logprobs.push_back(logit - normaliser);
  return logprobs;
}

}  // namespace troupe::golden
