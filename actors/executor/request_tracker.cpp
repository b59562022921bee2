#include "actors/executor/request_tracker.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace troupe {

namespace {

std::uint64_t microseconds(RequestTracker::Clock::duration time) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

}  // namespace

std::vector<PlacedSequence> RequestTracker::begin(std::size_t replica, PreparedRequest request,
                                                  Clock::time_point now) {
  const std::uint64_t id = request.id;
  Entry& entry = answers_[id];
  entry.replica = replica;
  entry.since = now;
  entry.answer = make_answer(std::move(request), tokenizer_);
  return name(id, entry, entry.answer->begin());
}

std::vector<PlacedSequence> RequestTracker::name(std::uint64_t request, Entry& entry,
                                                 std::vector<SequenceSpec> specs) {
  std::vector<PlacedSequence> placed;
  for (SequenceSpec& spec : specs) {
    placed.push_back(name_one(request, entry, entry.places++, std::move(spec)));
  }
  return placed;
}

PlacedSequence RequestTracker::name_one(std::uint64_t request, Entry& entry, std::size_t place,
                                        SequenceSpec spec) {
  spec.request = next_name_++;
  places_.emplace(spec.request, Place{request, place});
  entry.names.push_back(spec.request);
  return {entry.replica, std::move(spec)};
}

void RequestTracker::forget(Entry& entry, std::uint64_t name) {
  places_.erase(name);
  std::erase(entry.names, name);
}

RequestTracker::Outcome RequestTracker::take(SequenceUpdate update, Clock::time_point now) {
  const std::uint64_t name = update.request;
  const auto found = places_.find(name);
  if (found == places_.end()) return {};
  if (update.end == SequenceEnd::failed) {
    return fail(name, "not_finite",
                "the model's logits were not finite numbers for this request, or its masks left "
                "no token to choose");
  }
  const std::uint64_t request = found->second.request;
  const std::size_t place = found->second.place;
  Entry& entry = answers_.at(request);
  Outcome outcome{.known = true};
  const bool ended_by_scheduler = update.end.has_value();
  entry.begun = true;
  if (!update.tokens.empty()) note_tokens(entry, found->second, update.tokens.size(), now);
  Answer::Step step = entry.answer->take(place, std::move(update));
  if (step.ended) {
    forget(entry, name);
    if (!ended_by_scheduler) outcome.aborted.push_back({entry.replica, name});
  }
  outcome.started = this->name(request, entry, std::move(step.next));
  if (entry.names.empty()) {
    outcome.completion = entry.answer->finish();
    if (entry.first_token) {
      outcome.completion->first_token_us = microseconds(*entry.first_token - entry.since);
      outcome.completion->last_token_us = microseconds(entry.last_token - entry.since);
    }
    answers_.erase(request);
  }
  return outcome;
}

void RequestTracker::note_tokens(Entry& entry, Place& place, std::size_t tokens,
                                 Clock::time_point now) {
  if (!entry.first_token) entry.first_token = now;
  entry.last_token = now;
  if (place.last_token) {
    inter_token_us_.add(microseconds(now - *place.last_token) / tokens, tokens);
  }
  place.last_token = now;
}

RequestTracker::Outcome RequestTracker::fail(std::uint64_t name, std::string code,
                                             std::string message) {
  const auto found = places_.find(name);
  if (found == places_.end()) return {};
  const std::uint64_t request = found->second.request;
  Entry& entry = answers_.at(request);
  Outcome outcome{.known = true};
  for (const std::uint64_t live : entry.names) {
    outcome.aborted.push_back({entry.replica, live});
    places_.erase(live);
  }
  outcome.completion = refuse(request, std::move(code), std::move(message));
  answers_.erase(request);
  return outcome;
}

RequestTracker::Drained RequestTracker::drain(std::span<const std::uint64_t> names) {
  std::map<std::uint64_t, std::vector<std::uint64_t>> by_request;
  for (const std::uint64_t name : names) {
    if (const auto found = places_.find(name); found != places_.end()) {
      by_request[found->second.request].push_back(name);
    }
  }
  Drained drained;
  for (const auto& [request, waiting] : by_request) {
    Entry& entry = answers_.at(request);
    const bool untouched = !entry.begun && waiting.size() == entry.names.size();
    for (const std::uint64_t name : waiting) {
      const std::size_t place = places_.at(name).place;
      forget(entry, name);
      if (untouched) continue;
      drained.started.push_back(name_one(request, entry, place, entry.answer->again(place)));
    }
    if (!untouched) continue;
    answers_.erase(request);
    drained.dropped.push_back(request);
  }
  return drained;
}

}  // namespace troupe
