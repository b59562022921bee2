#include "actors/executor/request_tracker.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "actors/executor/resumed_answer.hpp"

namespace troupe {

namespace {

std::uint64_t microseconds(RequestTracker::Clock::duration time) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

}  // namespace

SequenceGroupSpec RequestTracker::begin(std::size_t replica, PreparedRequest request,
                                        Clock::time_point now,
                                        std::vector<SequenceUpdate> progress) {
  Entry& entry = answers_[request.id];
  entry.replica = replica;
  entry.since = now;
  entry.answer = make_answer(std::move(request), tokenizer_);
  for (const SequenceUpdate& update : progress) entry.tokens += update.tokens.size();
  SequenceGroupSpec spec = entry.answer->begin();
  if (!progress.empty()) resume(*entry.answer, std::move(progress), spec);
  return spec;
}

std::vector<SequenceUpdate> RequestTracker::take_progress() {
  std::vector<SequenceUpdate> all;
  for (auto& [request, entry] : answers_) {
    std::vector<SequenceUpdate> updates = entry.progress.take();
    std::ranges::move(updates, std::back_inserter(all));
  }
  return all;
}

RequestTracker::Outcome RequestTracker::take(SequenceUpdate update, Clock::time_point now) {
  const std::uint64_t request = update.request;
  const std::int32_t sequence = update.sequence;
  const auto found = answers_.find(request);
  if (found == answers_.end()) return {};
  if (update.end == SequenceEnd::failed) {
    return fail(request, "not_finite",
                "the model's logits were not finite numbers for this request, or its masks left "
                "no token to choose");
  }
  Entry& entry = found->second;
  Outcome outcome{.known = true, .replica = entry.replica, .request = request};
  const bool ended_by_scheduler = update.end.has_value();
  entry.tokens += update.tokens.size();
  if (!update.tokens.empty()) note_tokens(entry, sequence, update.tokens.size(), now);
  if (keeps_progress_) entry.progress.add(update);
  Answer::Step step = entry.answer->take(std::move(update));
  if (step.ended) {
    entry.last_token_of.erase(sequence);
    if (!ended_by_scheduler) outcome.aborted = sequence;
  }
  outcome.beams = std::move(step.beams);
  if (step.done) {
    outcome.completion = entry.answer->finish();
    if (entry.first_token) {
      outcome.completion->first_token_us = microseconds(*entry.first_token - entry.since);
      outcome.completion->last_token_us = microseconds(entry.last_token - entry.since);
    }
    answers_.erase(found);
  }
  return outcome;
}

void RequestTracker::note_tokens(Entry& entry, std::int32_t sequence, std::size_t tokens,
                                 Clock::time_point now) {
  if (!entry.first_token) entry.first_token = now;
  entry.last_token = now;
  const auto [last, is_first] = entry.last_token_of.try_emplace(sequence, now);
  if (is_first) return;
  inter_token_us_.add(microseconds(now - last->second) / tokens, tokens);
  last->second = now;
}

RequestTracker::Outcome RequestTracker::fail(std::uint64_t request, std::string code,
                                             std::string message) {
  const auto found = answers_.find(request);
  if (found == answers_.end()) return {};
  Outcome outcome{.known = true, .replica = found->second.replica, .request = request};
  outcome.completion = refuse(request, std::move(code), std::move(message));
  answers_.erase(found);
  return outcome;
}

std::uint64_t RequestTracker::drop(std::span<const std::uint64_t> requests) {
  std::uint64_t tokens = 0;
  for (const std::uint64_t request : requests) {
    const auto found = answers_.find(request);
    if (found == answers_.end()) continue;
    tokens += found->second.tokens;
    answers_.erase(found);
  }
  return tokens;
}

}  // namespace troupe
