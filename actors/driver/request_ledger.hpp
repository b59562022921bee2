#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "actors/api/report.hpp"
#include "actors/api/request_progress.hpp"

namespace troupe {

/// The requests that the executor of a step domain has not answered, each with its progress as last
/// reported: what the next incarnation of the executor is given. A plain class; one thread at a
/// time.
class RequestLedger {
 public:
  using Clock = std::chrono::steady_clock;

  /// Notes requests for replica number `replica` of the domain.
  void add(std::int32_t replica, const std::vector<Request>& requests, Clock::time_point now);

  /// Takes note of what is answered, dropped and generated. Removes from the report the answers to
  /// requests that are not in the ledger: a former executor has answered them, too. `is_current`:
  /// the report's executor has all requests, so its progress counts.
  void take(EngineReport& report, bool is_current);

  /// A call's worth of unanswered requests.
  struct Submission {
    std::int32_t replica = 0;
    std::vector<SubmittedRequest> requests;
  };
  /// All requests, in the order of their ids, in submissions of a few megabytes. The time that is
  /// left until their deadlines is that at `now`.
  std::vector<Submission> unanswered(Clock::time_point now) const;

  std::size_t size() const { return unanswered_.size(); }

 private:
  struct Unanswered {
    std::int32_t replica = 0;
    Request request;
    Clock::time_point since;
    RequestProgress progress;
    bool is_long = false;  ///< its progress is more than is kept: it would begin anew
  };
  std::map<std::uint64_t, Unanswered> unanswered_;  ///< by Request::id
};

}  // namespace troupe
