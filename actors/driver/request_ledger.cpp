#include "actors/driver/request_ledger.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/hash.hpp"

namespace troupe {
namespace {

/// The most progress that is kept of a request. Wide and long searches have more: their executor's
/// death costs all of their steps, which give the same results again.
constexpr std::size_t max_progress_bytes = std::size_t{32} << 20;
constexpr std::size_t submission_bytes = std::size_t{8} << 20;

std::size_t bytes_of(const Request& request) {
  return sizeof(Request) + request.prompt.size() +
         request.prompt_ids.size() * sizeof(std::int32_t) + request.template_variables.size();
}

std::int64_t tokens_of(const Completion& done) {
  std::int64_t tokens = 0;
  for (const Choice& choice : done.choices) tokens += std::ssize(choice.token_ids);
  return tokens;
}

/// Hashes the prompt as it was given: messages, text or token ids.
std::string hash_of_prompt(const Request& request) {
  Hasher128 hasher;
  hasher.add(request.prompt);
  for (const std::int32_t id : request.prompt_ids) hasher.add(fmt::format("{} ", id));
  return to_hex(hasher.hash());
}

}  // namespace

void RequestLedger::add(std::int32_t replica, const std::vector<Request>& requests,
                        Clock::time_point now) {
  for (const Request& request : requests) {
    bytes_ += bytes_of(request);
    unanswered_.insert_or_assign(
        request.id,
        Unanswered{.replica = replica, .request = request, .since = now, .progress = {}});
  }
  bound();
}

void RequestLedger::begin_anew(Unanswered& request) {
  bytes_ -= request.progress.bytes();
  request.progress = {};
  request.is_long = true;
}

void RequestLedger::bound() {
  while (bytes_ > max_bytes_) {
    const auto largest = std::ranges::max_element(
        unanswered_, {}, [](const auto& entry) { return entry.second.progress.bytes(); });
    if (largest == unanswered_.end() || largest->second.progress.bytes() == 0) return;
    begin_anew(largest->second);
  }
}

void RequestLedger::take(EngineReport& report, bool is_current) {
  if (is_current) {
    counted_ = std::max(counted_, static_cast<std::int64_t>(report.stats.output_tokens));
    if (report.resumed) {
      const std::int64_t forgotten =
          static_cast<std::int64_t>(report.resumed->forgotten_tokens) - std::exchange(frozen_, 0);
      saved_ += forgotten;  // counted once
      unsaved_ += forgotten;
    }
  }
  const auto forget = [this, is_current](std::uint64_t id, std::int64_t tokens) {
    const auto found = unanswered_.find(id);
    if (found == unanswered_.end()) return false;
    if (is_current && tokens > 0) saved_ += tokens - found->second.generated;
    if (!found->second.is_given) --held_back_;
    bytes_ -= bytes_of(found->second.request) + found->second.progress.bytes();
    unanswered_.erase(found);
    return true;
  };
  std::erase_if(report.completions,
                [&](const Completion& done) { return !forget(done.id, tokens_of(done)); });
  std::erase_if(report.dropped, [&](std::uint64_t id) { return !forget(id, 0); });
  for (SequenceUpdate& update : report.progress) {
    const auto found = unanswered_.find(update.request);
    if (!is_current || found == unanswered_.end()) continue;
    Unanswered& request = found->second;
    if (request.frozen_in && report.epoch <= *request.frozen_in) continue;
    note_progress(request, update.tokens.size());
    saved_ += std::ssize(update.tokens);
    if (request.is_long) continue;
    bytes_ -= request.progress.bytes();
    request.progress.add(std::move(update));
    bytes_ += request.progress.bytes();
    if (request.progress.bytes() > max_progress_bytes) begin_anew(request);
  }
  bound();
  report.progress.clear();
}

void RequestLedger::count_unsaved() {
  unsaved_ += std::exchange(counted_, 0) - std::exchange(saved_, 0);
  frozen_ = 0;
  for (const auto& [id, request] : unanswered_) {
    if (request.is_long && request.is_given) unsaved_ += request.generated;  // it begins anew
  }
}

std::uint64_t RequestLedger::take_unsaved() {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, std::exchange(unsaved_, 0)));
}

void RequestLedger::take_back_all() {
  count_unsaved();
  for (auto& [id, request] : unanswered_) {
    request.is_given = false;
    request.frozen_in.reset();
  }
  held_back_ = unanswered_.size();
}

void RequestLedger::note_progress(Unanswered& request, std::size_t tokens) {
  request.generated += static_cast<std::int64_t>(tokens);
  if (tokens > 0 && request.reach && request.generated > *request.reach) request.crashes = 0;
}

std::vector<RequestLedger::Unanswered> RequestLedger::release_all() {
  count_unsaved();
  std::vector<Unanswered> released;
  released.reserve(unanswered_.size());
  for (auto& [id, request] : unanswered_) released.push_back(std::move(request));
  unanswered_.clear();
  held_back_ = bytes_ = 0;
  return released;
}

void RequestLedger::adopt(std::int32_t replica, Unanswered request) {
  request.replica = replica;
  request.is_given = false;
  request.frozen_in.reset();
  bytes_ += bytes_of(request.request) + request.progress.bytes();
  ++held_back_;
  const std::uint64_t id = request.request.id;
  unanswered_.insert_or_assign(id, std::move(request));
  bound();
}

std::vector<UnderWay> RequestLedger::given() const {
  std::vector<UnderWay> all;
  for (const auto& [id, request] : unanswered_) {
    if (request.is_given) all.push_back({.request = id, .reach = {}});
  }
  return all;
}

RequestLedger::CrashVerdict RequestLedger::note_crash(std::span<const UnderWay> under_way,
                                                      std::uint32_t epoch) {
  CrashVerdict verdict;
  for (const UnderWay& one : under_way) {
    const std::uint64_t id = one.request;
    const auto found = unanswered_.find(id);
    if (found == unanswered_.end()) continue;
    Unanswered& request = found->second;
    if (request.crashes == 0) {
      request.reach = one.reach;
    } else if (request.reach) {
      request.reach = one.reach ? std::optional(std::max(*request.reach, *one.reach)) : one.reach;
    }
    ++request.crashes;
    if (!request.is_suspect()) continue;
    verdict.suspects += request.crashes < max_crashes ? 1 : 0;
    if (std::exchange(request.is_given, false)) {
      ++held_back_;
      request.frozen_in = epoch;
      frozen_ += request.generated;
      verdict.taken_back.push_back(id);
    }
    if (request.crashes < max_crashes) continue;
    verdict.given_up.push_back(id);
    verdict.prompt_hashes.push_back(hash_of_prompt(request.request));
  }
  if (verdict.given_up.empty()) return verdict;
  // The others were there by chance.
  verdict.suspects = 0;
  for (auto& [id, request] : unanswered_) {
    if (request.crashes < max_crashes) request.crashes = 0;
  }
  return verdict;
}

std::vector<RequestLedger::Submission> RequestLedger::take_due(Clock::time_point now) {
  std::vector<Submission> submissions;
  if (held_back_ == 0) return submissions;
  bool has_suspect = std::ranges::any_of(unanswered_, [](const auto& entry) {
    return entry.second.is_given && entry.second.is_suspect();
  });
  std::map<std::int32_t, std::size_t> last;  // the last submission of each replica
  std::map<std::int32_t, std::size_t> bytes;
  for (auto& [id, of] : unanswered_) {
    if (of.is_given || of.is_given_up() || (of.is_suspect() && has_suspect)) continue;
    has_suspect |= of.is_suspect();
    of.is_given = true;
    if (of.is_long) of.generated = 0;  // it begins anew
    --held_back_;
    const auto [place, is_new] = last.try_emplace(of.replica, submissions.size());
    if (is_new || bytes[of.replica] > submission_bytes) {
      place->second = submissions.size();
      bytes[of.replica] = 0;
      submissions.push_back({of.replica, {}});
    }
    bytes[of.replica] += bytes_of(of.request) + of.progress.bytes();
    auto& again = submissions[place->second].requests;
    again.push_back({of.request, of.progress.updates()});
    std::int32_t& deadline_ms = again.back().request.deadline_ms;
    if (deadline_ms == 0) continue;  // none
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - of.since);
    deadline_ms =
        static_cast<std::int32_t>(std::max<std::int64_t>(1, deadline_ms - waited.count()));
  }
  return submissions;
}

}  // namespace troupe
