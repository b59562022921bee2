#include "actors/worker/sampling/row_sampler.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

/// Tokens of the edits of one choice's rows. One half is reserved for rows that need no more than
/// their share of it, which the device can always sample; other rows use the rest.
constexpr std::int64_t max_edit_tokens = std::int64_t{1} << 22;

std::int32_t wanted_logprobs(const LogitsRow& row) {
  if (!row.scores) return -1;
  return row.sample ? row.sampling->logprobs : row.sampling->prompt_logprobs;
}

SampledRow sampled_row(const LogitsRow& row, std::int32_t index) {
  const SamplingParams& sampling = *row.sampling;
  return {.row = index,
          .choice = sampling.choice,
          .seed = sampling.seed,
          .position = static_cast<std::uint64_t>(row.position) + 1,
          .temperature = sampling.temperature,
          .top_p = sampling.top_p,
          .min_p = sampling.min_p,
          .top_k = sampling.top_k};
}

ScoredRow scored_row(const LogitsRow& row, std::int32_t index) {
  return {.row = index, .id = row.sample ? -1 : row.scored, .best = wanted_logprobs(row)};
}

/// The most tokens that a row's edits can have.
RowEdits count_edits(const LogitsRow& row) {
  const SamplingParams& sampling = *row.sampling;
  const bool masks_stops = std::ssize(row.history.output) < sampling.min_tokens;
  const std::size_t masked =
      sampling.bad_words.size() + (masks_stops ? sampling.stop_token_ids.size() : 0);
  RowEdits edits;
  edits.allowed = static_cast<std::int32_t>(sampling.allowed_token_ids.size());
  edits.masked = static_cast<std::int32_t>(masked);
  edits.biased = static_cast<std::int32_t>(sampling.logit_bias.size());
  if (!penalizes(sampling)) return edits;
  edits.prompt = static_cast<std::int32_t>(row.history.prompt.size());
  edits.output = static_cast<std::int32_t>(row.history.output.size());
  edits.repetition_penalty = sampling.repetition_penalty;
  edits.frequency_penalty = sampling.frequency_penalty;
  edits.presence_penalty = sampling.presence_penalty;
  return edits;
}

TokenLogprobs logprobs_of(const RowScores& scores, std::int64_t best) {
  const auto logprob = [&](float logit) { return log_probability(logit, scores.max, scores.sum); };
  TokenLogprobs found;
  found.logprob = logprob(scores.logit);
  found.rank = scores.rank;
  found.top_ids.assign(scores.best_ids, scores.best_ids + best);
  for (std::int64_t i = 0; i < best; ++i) {
    found.top_logprobs.push_back(logprob(scores.best_logits[i]));
  }
  return found;
}

/// A growing array of T in memory that the device reads.
template <class T>
class DeviceRows {
 public:
  explicit DeviceRows(const DeviceTensor& memory) : rows_(static_cast<T*>(memory->data())) {}
  void add(const T& row) { rows_[count_++] = row; }
  std::span<const T> rows() const { return {rows_, count_}; }

 private:
  T* rows_;
  std::size_t count_ = 0;
};

}  // namespace

RowSampler::RowSampler(Ops& ops, const RankGroup& tensor, std::int64_t max_rows, std::int64_t vocab,
                       const RankGroup& context)
    : ops_(&ops), tensor_(tensor), context_(context), max_rows_(max_rows), vocab_(vocab) {}

Result<RowSampler> RowSampler::create(Ops& ops, const RankGroup& tensor, std::int64_t max_rows,
                                      std::int64_t vocab, const RankGroup& context) {
  RowSampler sampler(ops, tensor, max_rows, vocab, context);
  const auto bytes = [&](std::size_t of_row) {
    return Shape{max_rows * static_cast<std::int64_t>(of_row)};
  };
  for (Slot& slot : sampler.slots_) {
    TROUPE_TRY(slot.chosen, ops.memory().allocate(DType::i32, {max_rows}));
    TROUPE_TRY(slot.ids, ops.memory().allocate_host(DType::i32, {max_rows}));
    TROUPE_TRY(slot.scores, ops.memory().allocate(DType::u8, bytes(sizeof(RowScores))));
    TROUPE_TRY(slot.host_scores, ops.memory().allocate_host(DType::u8, bytes(sizeof(RowScores))));
    TROUPE_TRY(slot.rows_to_sample,
               ops.memory().allocate_host(DType::u8, bytes(sizeof(SampledRow))));
    TROUPE_TRY(slot.rows_to_score, ops.memory().allocate_host(DType::u8, bytes(sizeof(ScoredRow))));
  }
  return sampler;
}

ShardOf RowSampler::shard() const {
  return tensor_.host == nullptr ? ShardOf{} : ShardOf{tensor_.host->rank(), tensor_.host->size()};
}

Slice RowSampler::rows_of(const Slot& slot, ShardOf shard) {
  const Slice all = ceil_slice(slot.of_rows, shard);
  const std::int64_t chosen = std::ssize(slot.rows);  // what pads a pass comes last
  const std::int64_t begin = std::min(all.begin, chosen);
  return {begin, std::min(all.end(), chosen) - begin};
}

Slice RowSampler::host_rows_of(const Slot& slot, ShardOf shard) {
  const Slice rows = rows_of(slot, shard);
  const auto first = std::ranges::lower_bound(slot.host_rows, rows.begin);
  const auto last = std::ranges::lower_bound(slot.host_rows, rows.end());
  return {first - slot.host_rows.begin(), last - first};
}

Result<void> RowSampler::share(const Slot& slot, const Tensor& all, std::int64_t width) {
  if (tensor_.device != nullptr) {
    std::vector<std::int64_t> rows_per_rank;
    for (int rank = 0; rank < shard().size; ++rank) {
      rows_per_rank.push_back(rows_of(slot, {rank, shard().size}).count);
    }
    const Slice own = own_rows(slot);
    const Tensor rows = all.reshaped({std::ssize(slot.rows), width});
    TROUPE_CHECK(tensor_.device->all_gather(rows.rows(own.begin, own.count), rows, rows_per_rank));
  }
  return context_.device == nullptr ? Result<void>() : context_.device->broadcast(all, 0);
}

bool RowSampler::on_device(const LogitsRow& row) const {
  if (!row.sample || wanted_logprobs(row) >= 0 || !row.sampling->bad_words.empty()) return false;
  SampledRow sampled = sampled_row(row, 0);
  sampled.edits = count_edits(row);
  return sampled.edits.tokens() <= max_edit_tokens / 2 / max_rows_ &&
         ops_->sampling().can_sample(sampled, vocab_);
}

Result<void> RowSampler::begin(const Tensor& logits, std::span<const LogitsRow> rows,
                               std::int64_t of_rows) {
  if (begun_ == max_in_flight) {
    return fail(ErrorCode::internal, "{} choices of tokens are under way already", begun_);
  }
  const std::int64_t own = ceil_slice(of_rows, shard()).count;
  TROUPE_CHECK(check_shape("logits to choose from", logits, {own, vocab_}, DType::f32));
  if (std::ssize(rows) > of_rows) {
    return fail(ErrorCode::invalid_argument, "{} rows to choose from, of {}", rows.size(), of_rows);
  }
  Slot& slot = slots_[(oldest_ + begun_) % max_in_flight];
  slot.rows.assign(rows.begin(), rows.end());
  slot.of_rows = of_rows;
  slot.wanted.clear();
  for (const LogitsRow& row : rows) slot.wanted.push_back(wanted_logprobs(row));
  TROUPE_CHECK(begin_on_device(logits, slot));
  TROUPE_CHECK(download_logits(logits, slot));
  slot.done = ops_->stream().record_event();
  ++begun_;
  return {};
}

Result<void> RowSampler::begin_on_device(const Tensor& logits, Slot& slot) {
  slot.host_rows.clear();
  histories_.clear();
  lists_.clear();
  rows_to_edit_.clear();
  DeviceRows<SampledRow> to_sample(slot.rows_to_sample);
  DeviceRows<ScoredRow> to_score(slot.rows_to_score);
  const Slice own = own_rows(slot);
  bool samples = false, scores = false;  // true if any rank does
  for (std::int32_t i = 0; const LogitsRow& row : slot.rows) {
    const bool is_own = i >= own.begin && i < own.end();
    const auto place = static_cast<std::int32_t>(i - own.begin);
    SampledRow sampled = sampled_row(row, place);
    const bool is_scored = wanted_logprobs(row) >= 0;
    const bool can_score = !is_scored || ops_->sampling().can_score(scored_row(row, place), vocab_);
    // All ranks judge all rows: what one may add depends on the rows before.
    if (!can_score || (row.sample ? !add_edits(row, sampled) : !is_scored)) {
      slot.host_rows.push_back(i++);
      continue;
    }
    const bool edits = sampled.edits.tokens() > 0;
    if (is_own && row.sample && edits) rows_to_edit_.push_back(sampled);
    if (is_own && row.sample && !edits) to_sample.add(sampled);
    if (is_own && is_scored) to_score.add(scored_row(row, place));
    samples = samples || row.sample;
    scores = scores || is_scored;
    ++i;
  }
  const std::int64_t count = std::ssize(slot.rows);
  const Tensor before = std::exchange(chosen_, slot.chosen->rows(0, count));
  const Tensor own_chosen = chosen_.rows(own.begin, own.count);
  for (SampledRow& row : rows_to_edit_) {
    row.edits.first += static_cast<std::int32_t>(histories_.size());
    to_sample.add(row);
  }
  if (samples) {
    TROUPE_TRY(const Tensor edited, upload_edits(slot, before));
    ops_->sampling().sample(logits, to_sample.rows(), edited, own_chosen);
    TROUPE_CHECK(share(slot, chosen_, 1));
    ops_->memory().download(chosen_, slot.ids->rows(0, count));
  }
  if (scores) {
    constexpr std::int64_t width = sizeof(RowScores);
    const Tensor found = slot.scores->rows(0, count * width);
    ops_->sampling().score(logits, to_score.rows(), own_chosen,
                           found.rows(own.begin * width, own.count * width));
    TROUPE_CHECK(share(slot, found, width));
    ops_->memory().download(found, slot.host_scores->rows(0, count * width));
  }
  return {};
}

/// Returns true if the device can sample this row; then `sampled` has its edits, and their tokens
/// are added.
bool RowSampler::add_edits(const LogitsRow& row, SampledRow& sampled) {
  const SamplingParams& sampling = *row.sampling;
  sampled.edits = count_edits(row);
  const std::int64_t room = on_device(row) ? max_edit_tokens : max_edit_tokens / 2;
  const std::int64_t used = std::ssize(histories_) + std::ssize(lists_);
  if (used + sampled.edits.tokens() > room || !ops_->sampling().can_sample(sampled, vocab_))
    return false;
  RowEdits& edits = sampled.edits;
  edits.first = static_cast<std::int32_t>(lists_.size());
  edits.history = static_cast<std::int32_t>(histories_.size());
  const auto& allowed = sampling.allowed_token_ids;
  lists_.insert(lists_.end(), allowed.begin(), allowed.end());
  append_masked(sampling, row.history, lists_);
  edits.masked = static_cast<std::int32_t>(std::ssize(lists_)) - edits.first - edits.allowed;
  for (const auto& [token, bias] : sampling.logit_bias) {
    lists_.push_back(token);
    lists_.push_back(std::bit_cast<std::int32_t>(bias));
  }
  if (penalizes(sampling)) {
    const auto& [prompt, output] = row.history;
    histories_.insert(histories_.end(), prompt.begin(), prompt.end());
    histories_.insert(histories_.end(), output.begin(), output.end());
  }
  return true;
}

/// Returns the edits' tokens on the device; tokens unknown to the host are taken from `before`.
Result<Tensor> RowSampler::upload_edits(Slot& slot, const Tensor& before) {
  const auto histories = std::ssize(histories_), lists = std::ssize(lists_);
  if (histories + lists == 0) return Tensor();
  if (slot.edited->empty()) {  // many runs never need it
    TROUPE_TRY(slot.edited, ops_->memory().allocate(DType::i32, {max_edit_tokens}));
    TROUPE_TRY(slot.host_edited, ops_->memory().allocate_host(DType::i32, {max_edit_tokens}));
  }
  std::ranges::copy(histories_, slot.host_edited->as<std::int32_t>());
  std::ranges::copy(lists_, slot.host_edited->as<std::int32_t>() + histories);
  const Tensor edited = slot.edited->rows(0, histories + lists);
  ops_->memory().upload(slot.host_edited->rows(0, histories + lists), edited);
  if (std::ranges::any_of(histories_, [](std::int32_t id) { return id < 0; })) {
    ops_->sampling().resolve_sampled_ids(before, edited.rows(0, histories));
  }
  return edited;
}

Result<void> RowSampler::download_logits(const Tensor& logits, Slot& slot) {
  if (slot.host_rows.empty()) return {};
  if (slot.logits->empty()) {  // many runs never need it, and hardly any both
    const Slice most = ceil_slice(max_rows_, {0, shard().size});
    TROUPE_TRY(slot.logits, ops_->memory().allocate_host(DType::f32, {most.count, vocab_}));
  }
  const Slice mine = host_rows_of(slot, shard());
  const std::int64_t first_own = own_rows(slot).begin;
  const auto row_at = [&](std::int64_t i) -> std::int64_t {
    return slot.host_rows[static_cast<std::size_t>(i)] - first_own;
  };
  for (std::int64_t i = mine.begin; i < mine.end();) {
    std::int64_t next = i + 1;  // adjacent rows go together
    while (next < mine.end() && row_at(next) == row_at(i) + (next - i)) ++next;
    ops_->memory().download(logits.rows(row_at(i), next - i),
                            slot.logits->rows(i - mine.begin, next - i));
    i = next;
  }
  return {};
}

Result<std::vector<RowChoice>> RowSampler::finish() {
  if (begun_ == 0) return fail(ErrorCode::internal, "no choice of tokens is under way");
  const Slot& slot = slots_[oldest_];
  --begun_;
  // A caller that begins one at a time uses one slot's memory only.
  oldest_ = begun_ == 0 ? 0 : (oldest_ + 1) % max_in_flight;
  TROUPE_CHECK(ops_->stream().wait(slot.done));
  std::vector<RowChoice> choices(slot.rows.size());
  auto of_host = slot.host_rows.begin();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (of_host != slot.host_rows.end() && static_cast<std::size_t>(*of_host) == i) {
      ++of_host;
    } else {
      choices[i] = chosen_on_device(slot, i);
    }
  }
  if (!slot.host_rows.empty()) TROUPE_CHECK(choose_on_host(slot, choices));
  return choices;
}

RowChoice RowSampler::chosen_on_device(const Slot& slot, std::size_t i) const {
  const LogitsRow& row = slot.rows[i];
  RowChoice choice;
  choice.id = row.sample ? slot.ids->span<std::int32_t>()[i] : row.scored;
  choice.failed = choice.id < 0;
  const std::int64_t wanted = slot.wanted[i];
  if (wanted < 0 || choice.failed) return choice;
  const RowScores& scores = static_cast<const RowScores*>(slot.host_scores->data())[i];
  choice.failed = scores.rank == 0;
  if (!choice.failed) choice.scores = logprobs_of(scores, std::min(wanted, vocab_));
  return choice;
}

Result<void> RowSampler::choose_on_host(const Slot& slot, std::vector<RowChoice>& choices) {
  const auto count = static_cast<std::int64_t>(slot.host_rows.size());
  const auto row_at = [&](std::int64_t i) {
    return static_cast<std::size_t>(slot.host_rows[static_cast<std::size_t>(i)]);
  };
  std::int32_t alternatives = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    alternatives = std::max(alternatives, wanted_logprobs(slot.rows[row_at(i)]));
  }
  const auto width = static_cast<std::int64_t>(record_bytes(alternatives));
  records_.assign(static_cast<std::size_t>(count * width), std::byte{0});
  const auto record = [&](std::int64_t i) {
    return std::span(records_).subspan(static_cast<std::size_t>(i * width),
                                       static_cast<std::size_t>(width));
  };
  // Each rank chooses for its share of the rows, then all exchange the choices.
  const Slice mine = host_rows_of(slot, shard());
  for (std::int64_t i = mine.begin; i < mine.end(); ++i) {
    const auto logits = slot.logits->rows(i - mine.begin, 1).span<float>();
    write_record(choose(logits, slot.rows[row_at(i)]), record(i));
  }
  const Tensor all(records_.data(), DType::u8, Shape{count, width});
  if (tensor_.host != nullptr) {
    std::vector<std::int64_t> rows_per_rank;
    for (int r = 0; r < shard().size; ++r) {
      rows_per_rank.push_back(host_rows_of(slot, {r, shard().size}).count);
    }
    TROUPE_CHECK(tensor_.host->all_gather(all.rows(mine.begin, mine.count), all, rows_per_rank));
  }
  if (context_.host != nullptr) TROUPE_CHECK(context_.host->broadcast(all, 0));
  for (std::int64_t i = 0; i < count; ++i) choices[row_at(i)] = read_record(record(i));
  return {};
}

RowChoice RowSampler::choose(std::span<const float> logits, const LogitsRow& row) {
  RowChoice choice;
  if (row.sample) {
    const SampledToken sampled = sample(logits, *row.sampling, row.history, scratch_);
    choice.id = sampled.id;
    choice.failed = sampled.failed;
  } else {
    choice.id = row.scored;
    choice.failed = !std::ranges::all_of(logits, [](float x) { return std::isfinite(x); });
  }
  const std::int32_t wanted = wanted_logprobs(row);
  if (wanted >= 0 && !choice.failed) {
    choice.scores = token_logprobs(logits, choice.id, wanted, scratch_);
  }
  return choice;
}

}  // namespace troupe
