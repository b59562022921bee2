#include <cstring>
#include <exception>
#include <utility>

#include "actors/step/step_codec.hpp"
#include "actors/step/wire.hpp"

namespace troupe {
namespace {

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

/// A column of counts with the entries that it divides, read in order. An empty column of counts
/// stands for zeros.
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

/// Reads the output of write_lists: a list per row, asked for in order, each once.
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

void read_swaps(wire::Plan::Reader in, StepPlan& plan) {
  const auto out = in.getSwappedOut();
  ListColumns out_hosts(in.getOutCounts(), in.getOutHostBlocks(), out.size(),
                        "outCounts do not add up");
  for (unsigned i = 0; i < out.size(); ++i) {
    plan.swapped_out.push_back({out[i], out_hosts.next(i)});
  }
  const auto back = in.getSwappedIn();
  ListColumns in_hosts(in.getInHostCounts(), in.getInHostBlocks(), back.size(),
                       "inHostCounts do not add up");
  ListColumns in_blocks(in.getInCounts(), in.getInBlocks(), back.size(), "inCounts do not add up");
  for (unsigned i = 0; i < back.size(); ++i) {
    plan.swapped_in.push_back({back[i], in_hosts.next(i), in_blocks.next(i)});
  }
}

StepPlan read_plan(wire::Plan::Reader in) {
  StepPlan plan;
  plan.epoch = in.getEpoch();
  plan.step = in.getStep();
  plan.widened_layers = read_list<std::int32_t>(in.getWidenedLayers());
  plan.released = read_list<SequenceId>(in.getReleased());
  const auto started = in.getStarted();
  plan.started.resize(started.size());
  for (unsigned i = 0; i < started.size(); ++i) read_sequence(started[i], plan.started[i]);
  read_swaps(in, plan);

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

/// Reads a set of logprob columns and stores row i's share of them in `member` of results[i].
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
  result.shared_positions = in.getSharedPositions();
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
    // Every field is read once, so an honest message never needs more than its own size; a small
    // message whose pointers share targets to look large exceeds this.
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

Result<StepPlan> decode_plan(std::span<const std::byte> bytes) {
  return decode<wire::Plan, StepPlan>(bytes, "step plan", read_plan);
}

Result<StepResult> decode_result(std::span<const std::byte> bytes) {
  return decode<wire::Result, StepResult>(bytes, "step result", read_result);
}

}  // namespace troupe
