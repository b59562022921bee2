#include <cstring>
#include <new>
#include <utility>

#include "actors/step/step_codec.hpp"
#include "actors/step/wire.hpp"

namespace troupe {
namespace {

constexpr std::size_t min_scratch_words = 1024;

template <class List, class Items, class Get>
void fill(List list, const Items& items, Get get) {
  unsigned i = 0;
  for (const auto& item : items) list.set(i++, get(item));
}

template <class List, class T>
void fill(List list, const std::vector<T>& values) {
  for (unsigned i = 0; i < values.size(); ++i) list.set(i, values[i]);
}

/// The total number of entries of the lists that `get` returns for `items`.
template <class Items, class Get>
std::size_t total(const Items& items, Get get) {
  std::size_t sum = 0;
  for (const auto& item : items) sum += get(item).size();
  return sum;
}

unsigned length(std::size_t entries) {
  // The lists' own bound is 2^29 - 1; beyond it Cap'n Proto would cut the number silently.
  if (entries >= (std::size_t{1} << 29)) throw Contradiction{"a list of 2^29 entries or more"};
  return static_cast<unsigned>(entries);
}

/// Writes the parameters that most requests leave empty; empty lists are not written.
void write_edits(wire::NewSequence::Builder out, const SamplingParams& sampling) {
  out.setMinTokens(sampling.min_tokens);
  out.setRepetitionPenalty(sampling.repetition_penalty);
  out.setFrequencyPenalty(sampling.frequency_penalty);
  out.setPresencePenalty(sampling.presence_penalty);
  if (!sampling.logit_bias.empty()) {
    const unsigned count = length(sampling.logit_bias.size());
    fill(out.initBiasedTokens(count), sampling.logit_bias, [](const auto& b) { return b.token; });
    fill(out.initBiases(count), sampling.logit_bias, [](const auto& b) { return b.bias; });
  }
  if (const auto& allowed = sampling.allowed_token_ids; !allowed.empty()) {
    fill(out.initAllowedTokenIds(length(allowed.size())), allowed);
  }
  if (sampling.bad_words.empty()) return;
  fill(out.initBadWordLengths(length(sampling.bad_words.size())), sampling.bad_words,
       [](const auto& word) { return static_cast<std::uint32_t>(word.size()); });
  auto tokens = out.initBadWordTokens(
      length(total(sampling.bad_words, [](const auto& word) -> auto& { return word; })));
  unsigned next = 0;
  for (const auto& word : sampling.bad_words) {
    for (const std::int32_t token : word) tokens.set(next++, token);
  }
}

void write_sequence(wire::NewSequence::Builder out, const NewSequence& sequence) {
  const SamplingParams& sampling = sequence.sampling;
  out.setId(sequence.id);
  out.setPromptTokens(sequence.prompt_tokens);
  out.setCachedTokens(sequence.cached_tokens);
  fill(out.initTokens(length(sequence.tokens.size())), sequence.tokens);
  out.setTemperature(sampling.temperature);
  out.setTopK(sampling.top_k);
  out.setTopP(sampling.top_p);
  out.setMinP(sampling.min_p);
  out.setSeed(sampling.seed);
  out.setMaxTokens(sampling.max_tokens);
  out.setIgnoreEos(sampling.ignore_eos);
  fill(out.initStopTokenIds(length(sampling.stop_token_ids.size())), sampling.stop_token_ids);
  out.setLogprobs(sampling.logprobs);
  out.setPromptLogprobs(sampling.prompt_logprobs);
  out.setChoice(sampling.choice);
  write_edits(out, sampling);
}

/// Writes the lists that `get` returns for `rows` as a column of counts and one of entries; neither
/// is written if all are empty, as in most steps.
template <class Row, class Get, class InitCounts, class InitEntries>
void write_lists(const std::vector<Row>& rows, Get get, InitCounts init_counts,
                 InitEntries init_entries) {
  const std::size_t entries = total(rows, get);
  if (entries == 0) return;
  fill(init_counts(length(rows.size())), rows,
       [&](const Row& row) { return static_cast<std::uint32_t>(get(row).size()); });
  auto flat = init_entries(length(entries));
  unsigned next = 0;
  for (const Row& row : rows) {
    for (const std::int32_t entry : get(row)) flat.set(next++, entry);
  }
}

void write_swaps(wire::Plan::Builder out, const StepPlan& plan) {
  if (!plan.swapped_out.empty()) {
    const auto& swaps = plan.swapped_out;
    fill(out.initSwappedOut(length(swaps.size())), swaps, [](const auto& s) { return s.id; });
    write_lists(
        swaps, [](const auto& s) -> auto& { return s.host_blocks; },
        [&](unsigned rows) { return out.initOutCounts(rows); },
        [&](unsigned entries) { return out.initOutHostBlocks(entries); });
  }
  if (plan.swapped_in.empty()) return;
  const auto& swaps = plan.swapped_in;
  fill(out.initSwappedIn(length(swaps.size())), swaps, [](const auto& s) { return s.id; });
  write_lists(
      swaps, [](const auto& s) -> auto& { return s.host_blocks; },
      [&](unsigned rows) { return out.initInHostCounts(rows); },
      [&](unsigned entries) { return out.initInHostBlocks(entries); });
  write_lists(
      swaps, [](const auto& s) -> auto& { return s.blocks; },
      [&](unsigned rows) { return out.initInCounts(rows); },
      [&](unsigned entries) { return out.initInBlocks(entries); });
}

void write_plan(wire::Plan::Builder out, const StepPlan& plan) {
  out.setProtocol(step_protocol);
  out.setEpoch(plan.epoch);
  out.setStep(plan.step);
  if (const auto& layers = plan.widened_layers; !layers.empty()) {
    fill(out.initWidenedLayers(length(layers.size())), layers);
  }
  fill(out.initReleased(length(plan.released.size())), plan.released);
  auto started = out.initStarted(length(plan.started.size()));
  for (unsigned i = 0; i < plan.started.size(); ++i) write_sequence(started[i], plan.started[i]);
  write_swaps(out, plan);

  const auto& steps = plan.steps;
  const unsigned count = length(steps.size());
  fill(out.initIds(count), steps, [](const SequenceStep& s) { return s.id; });
  fill(out.initFirstPositions(count), steps, [](const auto& s) { return s.first_position; });
  fill(out.initTokens(count), steps, [](const auto& s) { return s.tokens; });
  fill(out.initSamples(count), steps, [](const auto& s) { return s.sample; });
  write_lists(
      steps, [](const auto& s) -> auto& { return s.new_blocks; },
      [&](unsigned rows) { return out.initNewBlockCounts(rows); },
      [&](unsigned entries) { return out.initNewBlocks(entries); });
  write_lists(
      steps, [](const auto& s) -> auto& { return s.drafts; },
      [&](unsigned rows) { return out.initDraftCounts(rows); },
      [&](unsigned entries) { return out.initDrafts(entries); });
}

/// Writes all entries of the lists that `get` returns for `results` as one set of columns.
template <class Get>
void write_logprobs(wire::Logprobs::Builder out, const std::vector<SequenceResult>& results,
                    std::size_t entries, Get get) {
  std::size_t alternatives = 0;
  for (const auto& result : results) {
    for (const TokenLogprobs& entry : get(result)) {
      if (entry.top_ids.size() != entry.top_logprobs.size()) {
        throw Contradiction{"top_ids and top_logprobs of different length"};
      }
      alternatives += entry.top_ids.size();
    }
  }
  auto chosen = out.initChosen(length(entries));
  auto counts = out.initTopCounts(length(entries));
  auto ranks = out.initRanks(length(entries));
  auto ids = out.initTopIds(length(alternatives));
  auto logprobs = out.initTopLogprobs(length(alternatives));
  unsigned row = 0;
  unsigned next = 0;
  for (const auto& result : results) {
    for (const TokenLogprobs& entry : get(result)) {
      chosen.set(row, entry.logprob);
      ranks.set(row, entry.rank);
      counts.set(row++, static_cast<std::uint32_t>(entry.top_ids.size()));
      for (std::size_t i = 0; i < entry.top_ids.size(); ++i) {
        ids.set(next, entry.top_ids[i]);
        logprobs.set(next++, entry.top_logprobs[i]);
      }
    }
  }
}

void write_result(wire::Result::Builder out, const StepResult& result) {
  out.setProtocol(step_protocol);
  out.setEpoch(result.epoch);
  out.setStep(result.step);
  out.setModelUs(result.model_us);
  out.setSharedPositions(result.shared_positions);
  const auto& results = result.results;
  const unsigned count = length(results.size());
  const auto logprobs_of = [](const SequenceResult& r) -> auto& { return r.logprobs; };
  const auto prompt_of = [](const SequenceResult& r) -> auto& { return r.prompt_logprobs; };
  const auto size_of = [](auto get) {
    return [get](const SequenceResult& r) { return static_cast<std::uint32_t>(get(r).size()); };
  };

  fill(out.initIds(count), results, [](const auto& r) { return r.id; });
  fill(out.initFailed(count), results, [](const auto& r) { return r.failed; });
  fill(out.initPromptBegins(count), results, [](const auto& r) { return r.prompt_begin; });
  write_lists(
      results, [](const auto& r) -> auto& { return r.tokens; },
      [&](unsigned rows) { return out.initTokenCounts(rows); },
      [&](unsigned entries) { return out.initTokens(entries); });
  write_lists(
      results, [](const auto& r) -> auto& { return r.drafts; },
      [&](unsigned rows) { return out.initDraftCounts(rows); },
      [&](unsigned entries) { return out.initDrafts(entries); });
  if (const std::size_t entries = total(results, logprobs_of); entries != 0) {
    fill(out.initLogprobCounts(count), results, size_of(logprobs_of));
    write_logprobs(out.initLogprobs(), results, entries, logprobs_of);
  }
  if (const std::size_t entries = total(results, prompt_of); entries != 0) {
    fill(out.initPromptLogprobCounts(count), results, size_of(prompt_of));
    write_logprobs(out.initPromptLogprobs(), results, entries, prompt_of);
  }
}

}  // namespace

template <class Fill>
Result<std::span<const std::byte>> StepEncoder::write(Fill&& fill_message) {
  if (scratch_.empty()) scratch_.resize(min_scratch_words);
  std::size_t words = 0;
  try {
    // The builder's destructor zeroes the part of the first segment that it used.
    capnp::MallocMessageBuilder builder(kj::ArrayPtr<capnp::word>(
        reinterpret_cast<capnp::word*>(scratch_.data()), scratch_.size()));
    fill_message(builder);
    const auto segments = builder.getSegmentsForOutput();
    // Standard framing: segments - 1, their sizes in words, padding to 8 bytes, the segments.
    const std::size_t table_words = segments.size() / 2 + 1;
    words = table_words;
    for (const auto& segment : segments) words += segment.size();
    if (message_.size() < words) message_.resize(words);
    std::vector<std::uint32_t> table(table_words * 2);
    table[0] = static_cast<std::uint32_t>(segments.size() - 1);
    std::size_t next = table_words;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      table[i + 1] = static_cast<std::uint32_t>(segments[i].size());
      std::memcpy(message_.data() + next, segments[i].begin(), segments[i].size() * 8);
      next += segments[i].size();
    }
    std::memcpy(message_.data(), table.data(), table_words * 8);
  } catch (const kj::Exception& error) {
    return fail(ErrorCode::resource_exhausted, "cannot encode a step: {}",
                error.getDescription().cStr());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::resource_exhausted, "cannot encode a step: out of memory");
  } catch (const Contradiction& error) {
    return fail(ErrorCode::invalid_argument, "cannot encode a step: {}", error.what);
  }
  // A message that outgrew the first segment took heap memory: make room for the next one.
  if (words > scratch_.size()) scratch_.assign(words + words / 2, 0);
  return std::span(reinterpret_cast<const std::byte*>(message_.data()), words * 8);
}

Result<std::span<const std::byte>> StepEncoder::encode(const StepPlan& plan) {
  return write([&](auto& builder) { write_plan(builder.template initRoot<wire::Plan>(), plan); });
}

Result<std::span<const std::byte>> StepEncoder::encode(const StepResult& result) {
  return write(
      [&](auto& builder) { write_result(builder.template initRoot<wire::Result>(), result); });
}

}  // namespace troupe
