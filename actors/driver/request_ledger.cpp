#include "actors/driver/request_ledger.hpp"

#include <algorithm>
#include <utility>

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

}  // namespace

void RequestLedger::add(std::int32_t replica, const std::vector<Request>& requests,
                        Clock::time_point now) {
  for (const Request& request : requests) {
    unanswered_.insert_or_assign(
        request.id,
        Unanswered{.replica = replica, .request = request, .since = now, .progress = {}});
  }
}

void RequestLedger::take(EngineReport& report, bool is_current) {
  std::erase_if(report.completions, [this](const Completion& completion) {
    return unanswered_.erase(completion.id) == 0;
  });
  std::erase_if(report.dropped, [this](std::uint64_t id) { return unanswered_.erase(id) == 0; });
  for (SequenceUpdate& update : report.progress) {
    const auto found = unanswered_.find(update.request);
    if (!is_current || found == unanswered_.end() || found->second.is_long) continue;
    Unanswered& request = found->second;
    request.progress.add(std::move(update));
    request.is_long = request.progress.bytes() > max_progress_bytes;
    if (request.is_long) request.progress = {};
  }
  report.progress.clear();
}

std::vector<RequestLedger::Submission> RequestLedger::unanswered(Clock::time_point now) const {
  std::map<std::int32_t, std::size_t> open;  // the last submission of each replica
  std::map<std::int32_t, std::size_t> bytes;
  std::vector<Submission> submissions;
  for (const auto& [id, of] : unanswered_) {
    const auto [last, is_new] = open.try_emplace(of.replica, submissions.size());
    if (is_new || bytes[of.replica] > submission_bytes) {
      last->second = submissions.size();
      bytes[of.replica] = 0;
      submissions.push_back({of.replica, {}});
    }
    bytes[of.replica] += bytes_of(of.request) + of.progress.bytes();
    auto& again = submissions[last->second].requests;
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
