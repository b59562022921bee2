#include "actors/step/step_codec.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include <kj/string.h>

#ifdef __clang__
// clang-tidy reads this file as well. Cap'n Proto 0.9 relies on a rule of C++20 that was withdrawn
// (P2468R2: no reversed operator== beside an operator!=), to which g++ 12 still keeps.
namespace kj {
inline bool operator==(const char* a, const StringPtr& b) { return b == a; }
inline bool operator!=(const char* a, const StringPtr& b) { return !(b == a); }
}  // namespace kj
#endif

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include "actors/step/step.capnp.h"

namespace troupe {
namespace {

/// A message that contradicts itself; caught at this file's border.
struct Contradiction {
  const char* what;
};

constexpr std::size_t least_scratch_words = 1024;

// --- writing ---

template <class List, class Items, class Get>
void fill(List list, const Items& items, Get get) {
  unsigned i = 0;
  for (const auto& item : items) list.set(i++, get(item));
}

template <class List, class T>
void fill(List list, const std::vector<T>& values) {
  for (unsigned i = 0; i < values.size(); ++i) list.set(i, values[i]);
}

/// The number of entries of all the lists that `get` finds in `items`.
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

/// What most requests do not use: lists that are empty stay away.
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

/// The lists that `get` finds in `rows` as a column of counts and one of entries; neither is
/// written if all are empty, as in most steps.
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

void write_plan(wire::Plan::Builder out, const StepPlan& plan) {
  out.setProtocol(step_protocol);
  out.setEpoch(plan.epoch);
  out.setStep(plan.step);
  fill(out.initReleased(length(plan.released.size())), plan.released);
  auto started = out.initStarted(length(plan.started.size()));
  for (unsigned i = 0; i < plan.started.size(); ++i) write_sequence(started[i], plan.started[i]);

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

/// Writes all entries of the lists `get` finds in `results` as one set of columns.
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

// --- reading ---

template <class T, class List>
std::vector<T> read_list(List list) {
  std::vector<T> values(list.size());
  for (unsigned i = 0; i < list.size(); ++i) values[i] = list[i];
  return values;
}

template <class List>
void expect_length(List list, unsigned count, const char* what) {
  if (list.size() != count) throw Contradiction{what};
}

/// A column of counts with the entries that it divides; reads them in order. An empty column of
/// counts stands for zeros.
template <class Counts>
class Divided {
 public:
  Divided(Counts counts, unsigned rows, std::size_t entries, const char* what) : counts_(counts) {
    if (counts.size() != 0 && counts.size() != rows) throw Contradiction{what};
    std::size_t sum = 0;
    for (unsigned i = 0; i < counts.size(); ++i) sum += counts[i];
    if (sum != entries) throw Contradiction{what};
  }

  /// The entries [first, second) of `row`; rows must be asked for in order, each once.
  std::pair<unsigned, unsigned> next(unsigned row) {
    const unsigned first = end_;
    if (counts_.size() != 0) end_ += counts_[row];
    return {first, end_};
  }

 private:
  Counts counts_;
  unsigned end_ = 0;
};

/// What write_lists wrote: a list a row, asked for in order, each once.
template <class Counts, class Entries>
class ListColumns {
 public:
  ListColumns(Counts counts, Entries entries, unsigned rows, const char* what)
      : divided_(counts, rows, entries.size(), what), entries_(entries) {}

  std::vector<std::int32_t> next(unsigned row) {
    const auto [first, last] = divided_.next(row);
    std::vector<std::int32_t> list(last - first);
    for (unsigned i = first; i < last; ++i) list[i - first] = entries_[i];
    return list;
  }

 private:
  Divided<Counts> divided_;
  Entries entries_;
};

void read_edits(wire::NewSequence::Reader in, SamplingParams& sampling) {
  sampling.min_tokens = in.getMinTokens();
  sampling.repetition_penalty = in.getRepetitionPenalty();
  sampling.frequency_penalty = in.getFrequencyPenalty();
  sampling.presence_penalty = in.getPresencePenalty();
  const auto biased = in.getBiasedTokens();
  const auto biases = in.getBiases();
  expect_length(biases, biased.size(), "biases and biasedTokens of different length");
  sampling.logit_bias.resize(biased.size());
  for (unsigned i = 0; i < biased.size(); ++i) sampling.logit_bias[i] = {biased[i], biases[i]};
  sampling.allowed_token_ids = read_list<std::int32_t>(in.getAllowedTokenIds());
  const auto lengths = in.getBadWordLengths();
  const auto tokens = in.getBadWordTokens();
  Divided words(lengths, lengths.size(), tokens.size(), "badWordLengths do not add up");
  sampling.bad_words.resize(lengths.size());
  for (unsigned i = 0; i < lengths.size(); ++i) {
    const auto [first, last] = words.next(i);
    if (first == last) throw Contradiction{"a bad word without tokens"};
    for (unsigned k = first; k < last; ++k) sampling.bad_words[i].push_back(tokens[k]);
  }
}

void read_sequence(wire::NewSequence::Reader in, NewSequence& sequence) {
  SamplingParams& sampling = sequence.sampling;
  sequence.id = in.getId();
  sequence.prompt_tokens = in.getPromptTokens();
  sequence.cached_tokens = in.getCachedTokens();
  sequence.tokens = read_list<std::int32_t>(in.getTokens());
  sampling.temperature = in.getTemperature();
  sampling.top_k = in.getTopK();
  sampling.top_p = in.getTopP();
  sampling.min_p = in.getMinP();
  sampling.seed = in.getSeed();
  sampling.max_tokens = in.getMaxTokens();
  sampling.ignore_eos = in.getIgnoreEos();
  sampling.stop_token_ids = read_list<std::int32_t>(in.getStopTokenIds());
  sampling.logprobs = in.getLogprobs();
  sampling.prompt_logprobs = in.getPromptLogprobs();
  sampling.choice = in.getChoice();
  read_edits(in, sampling);
}

StepPlan read_plan(wire::Plan::Reader in) {
  StepPlan plan;
  plan.epoch = in.getEpoch();
  plan.step = in.getStep();
  plan.released = read_list<SequenceId>(in.getReleased());
  const auto started = in.getStarted();
  plan.started.resize(started.size());
  for (unsigned i = 0; i < started.size(); ++i) read_sequence(started[i], plan.started[i]);

  const auto ids = in.getIds();
  const auto positions = in.getFirstPositions();
  const auto tokens = in.getTokens();
  const auto samples = in.getSamples();
  expect_length(positions, ids.size(), "firstPositions and ids of different length");
  expect_length(tokens, ids.size(), "tokens and ids of different length");
  expect_length(samples, ids.size(), "samples and ids of different length");
  ListColumns block_lists(in.getNewBlockCounts(), in.getNewBlocks(), ids.size(),
                          "newBlockCounts do not add up");
  ListColumns draft_lists(in.getDraftCounts(), in.getDrafts(), ids.size(),
                          "draftCounts do not add up");
  plan.steps.resize(ids.size());
  for (unsigned i = 0; i < ids.size(); ++i) {
    SequenceStep& step = plan.steps[i];
    step.id = ids[i];
    step.first_position = positions[i];
    step.tokens = tokens[i];
    step.sample = samples[i];
    step.new_blocks = block_lists.next(i);
    step.drafts = draft_lists.next(i);
  }
  return plan;
}

/// Reads a set of logprob columns and hands row i's share of them to `member` of results[i].
template <class Counts>
void read_logprobs(wire::Logprobs::Reader in, Counts counts, std::vector<SequenceResult>& results,
                   std::vector<TokenLogprobs> SequenceResult::* member) {
  const auto chosen = in.getChosen();
  const auto ids = in.getTopIds();
  const auto logprobs = in.getTopLogprobs();
  const auto ranks = in.getRanks();
  expect_length(logprobs, ids.size(), "topLogprobs and topIds of different length");
  expect_length(ranks, chosen.size(), "ranks and chosen of different length");
  Divided rows(counts, static_cast<unsigned>(results.size()), chosen.size(),
               "logprob counts do not add up");
  Divided entries(in.getTopCounts(), chosen.size(), ids.size(), "topCounts do not add up");
  for (unsigned row = 0; row < results.size(); ++row) {
    const auto [first, last] = rows.next(row);
    auto& list = results[row].*member;
    list.resize(last - first);
    for (unsigned i = first; i < last; ++i) {
      TokenLogprobs& entry = list[i - first];
      entry.logprob = chosen[i];
      entry.rank = ranks[i];
      const auto [begin, end] = entries.next(i);
      entry.top_ids.reserve(end - begin);
      entry.top_logprobs.reserve(end - begin);
      for (unsigned k = begin; k < end; ++k) {
        entry.top_ids.push_back(ids[k]);
        entry.top_logprobs.push_back(logprobs[k]);
      }
    }
  }
}

StepResult read_result(wire::Result::Reader in) {
  StepResult result;
  result.epoch = in.getEpoch();
  result.step = in.getStep();
  result.model_us = in.getModelUs();
  const auto ids = in.getIds();
  const auto failed = in.getFailed();
  const auto begins = in.getPromptBegins();
  expect_length(failed, ids.size(), "failed and ids of different length");
  expect_length(begins, ids.size(), "promptBegins and ids of different length");
  ListColumns token_lists(in.getTokenCounts(), in.getTokens(), ids.size(),
                          "tokenCounts do not add up");
  ListColumns draft_lists(in.getDraftCounts(), in.getDrafts(), ids.size(),
                          "draftCounts do not add up");
  result.results.resize(ids.size());
  for (unsigned i = 0; i < ids.size(); ++i) {
    SequenceResult& row = result.results[i];
    row.id = ids[i];
    row.failed = failed[i];
    row.prompt_begin = begins[i];
    row.tokens = token_lists.next(i);
    row.drafts = draft_lists.next(i);
  }
  read_logprobs(in.getLogprobs(), in.getLogprobCounts(), result.results, &SequenceResult::logprobs);
  read_logprobs(in.getPromptLogprobs(), in.getPromptLogprobCounts(), result.results,
                &SequenceResult::prompt_logprobs);
  return result;
}

template <class Root, class Value, class Read>
Result<Value> decode(std::span<const std::byte> bytes, const char* what, Read read) {
  constexpr std::size_t word = sizeof(capnp::word);
  if (bytes.empty() || bytes.size() % word != 0) {
    return fail(ErrorCode::corrupt_data, "malformed {}: {} bytes are no whole number of words",
                what, bytes.size());
  }
  std::vector<std::uint64_t> aligned;
  const void* data = bytes.data();
  if (reinterpret_cast<std::uintptr_t>(data) % word != 0) {
    aligned.resize(bytes.size() / word);
    std::memcpy(aligned.data(), data, bytes.size());
    data = aligned.data();
  }
  const kj::ArrayPtr<const capnp::word> words(static_cast<const capnp::word*>(data),
                                              bytes.size() / word);
  try {
    capnp::ReaderOptions options;
    // Every field is read once, so an honest message never needs more than its own size; pointers
    // that meet in one place to make a small message large run into this.
    options.traversalLimitInWords = words.size() + 8;
    options.nestingLimit = 8;
    capnp::FlatArrayMessageReader message(words, options);
    if (message.getEnd() != words.end()) {
      return fail(ErrorCode::corrupt_data, "malformed {}: words left over behind the message",
                  what);
    }
    const auto root = message.getRoot<Root>();
    if (root.getProtocol() != step_protocol) {
      return fail(ErrorCode::unsupported, "{} of protocol {}, this build speaks {}", what,
                  root.getProtocol(), step_protocol);
    }
    return read(root);
  } catch (const kj::Exception& error) {
    return fail(ErrorCode::corrupt_data, "malformed {}: {}", what, error.getDescription().cStr());
  } catch (const Contradiction& error) {
    return fail(ErrorCode::corrupt_data, "malformed {}: {}", what, error.what);
  } catch (const std::exception& error) {
    return fail(ErrorCode::corrupt_data, "malformed {}: {}", what, error.what());
  }
}

}  // namespace

template <class Fill>
Result<std::span<const std::byte>> StepEncoder::write(Fill&& fill_message) {
  if (scratch_.empty()) scratch_.resize(least_scratch_words);
  std::size_t words = 0;
  try {
    // The builder zeroes what it used of its first segment when it goes.
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
  // A message that outgrew the first segment took others from the heap: the next finds room.
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

Result<StepPlan> decode_plan(std::span<const std::byte> bytes) {
  return decode<wire::Plan, StepPlan>(bytes, "step plan", read_plan);
}

Result<StepResult> decode_result(std::span<const std::byte> bytes) {
  return decode<wire::Result, StepResult>(bytes, "step result", read_result);
}

}  // namespace troupe
