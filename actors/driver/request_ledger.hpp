#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "actors/api/report.hpp"
#include "actors/api/request_progress.hpp"

namespace troupe {

/// The requests of a step domain that are not answered, each with its progress as last reported:
/// what the next incarnation of the executor is given.
///
/// It also finds the request that makes processes crash: one that was under way in `max_crashes`
/// crashes is given up. One that was in all but one of these is a suspect. Suspects are given to
/// the executor one at a time, beside others, so the last crash has one of them under way.
///
/// A plain class; one thread at a time.
class RequestLedger {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int max_crashes = 3;

  /// Notes requests for replica number `replica` of the domain, which the executor is given.
  void add(std::int32_t replica, const std::vector<Request>& requests, Clock::time_point now);

  /// Takes note of what is answered, dropped and generated. Removes from the report the answers to
  /// requests that are not in the ledger: a former executor has answered them, too. `is_current`:
  /// the report's executor has got all from this ledger, so its progress counts.
  void take(EngineReport& report, bool is_current);

  /// A new executor has none of the requests.
  void take_back_all();

  /// Requests that an executor must forget, and those of them that are to be answered with an
  /// error.
  struct CrashVerdict {
    std::vector<std::uint64_t> taken_back;
    std::vector<std::uint64_t> given_up;
    std::vector<std::string> prompt_hashes;  ///< of given_up
  };
  /// Processes crashed while these requests were under way.
  CrashVerdict note_crash(std::span<const std::uint64_t> under_way);
  /// The requests that the executor has.
  std::vector<std::uint64_t> given() const;

  /// A call's worth of unanswered requests.
  struct Submission {
    std::int32_t replica = 0;
    std::vector<SubmittedRequest> requests;
  };
  /// Returns all requests that the executor does not have and is to be given now, in the order of
  /// their ids, in submissions of a few megabytes; it has them from here on. The time that is left
  /// until their deadlines is that at `now`.
  std::vector<Submission> take_due(Clock::time_point now);

  std::size_t size() const { return unanswered_.size(); }

 private:
  struct Unanswered {
    std::int32_t replica = 0;
    Request request;
    Clock::time_point since;
    RequestProgress progress;
    bool is_long = false;    ///< its progress is more than is kept: it would begin anew
    bool is_given = true;    ///< the executor has it
    bool is_frozen = false;  ///< taken back from this executor, so what it reports may be old
    int crashes = 0;         ///< that it was under way in
    bool is_suspect() const { return crashes >= max_crashes - 1; }
  };
  std::map<std::uint64_t, Unanswered> unanswered_;  ///< by Request::id
  std::size_t held_back_ = 0;                       ///< number of those that are not given
};

}  // namespace troupe
