#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/api/report.hpp"
#include "actors/api/request_progress.hpp"
#include "actors/scheduler/under_way.hpp"

namespace troupe {

/// The requests of a step domain that are not answered, each with its progress as last reported:
/// what the next incarnation of the executor is given.
///
/// It also finds the request that makes processes crash: one that was under way in `max_crashes`
/// crashes is given up. One that was in all but one of these is a suspect. Suspects are given to
/// the executor one at a time, beside others, so the last crash has one of them under way. A
/// request that has got further than it was in its crashes (UnderWay::reach) did not cause them, as
/// its steps compute the same again: they do not count any more.
///
/// Its memory is bounded: if the progress of all requests is more than there is room for, that with
/// the most of it begins anew with another executor. Callers give no more requests while much of it
/// is in use (used_share).
///
/// A plain class; one thread at a time.
class RequestLedger {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int max_crashes = 3;

  /// `max_bytes`: for the requests and their progress, beside one report's.
  explicit RequestLedger(std::size_t max_bytes = std::size_t{1} << 30) : max_bytes_(max_bytes) {}

  /// Notes requests for replica number `replica` of the domain, which the executor is given.
  void add(std::int32_t replica, const std::vector<Request>& requests, Clock::time_point now);

  /// Takes note of what is answered, dropped and generated. Removes from the report the answers to
  /// requests that are not in the ledger: a former executor has answered them, too. `is_current`:
  /// the report's executor has got all from this ledger, so its progress counts.
  void take(EngineReport& report, bool is_current);

  /// A new executor has none of the requests.
  void take_back_all();
  /// Returns the number of tokens that executors have counted in their reports, but that have been
  /// lost with them before they had handed them over, since the last call: they are sampled again.
  /// What an executor had generated since its last report is not known.
  std::uint64_t take_unsaved();

  /// Requests that an executor must forget, and those of them that are to be answered with an
  /// error.
  struct CrashVerdict {
    std::vector<std::uint64_t> taken_back;
    std::vector<std::uint64_t> given_up;
    std::vector<std::string> prompt_hashes;  ///< of given_up
    std::size_t suspects = 0;                ///< that there are more of, now
  };
  /// Processes crashed while these requests were under way, in this epoch or an earlier one.
  CrashVerdict note_crash(std::span<const UnderWay> under_way, std::uint32_t epoch);
  /// The requests that the executor has, for one that does not say which were under way.
  std::vector<UnderWay> given() const;

  /// A call's worth of unanswered requests.
  struct Submission {
    std::int32_t replica = 0;
    std::vector<SubmittedRequest> requests;
  };
  /// Returns all requests that the executor does not have and is to be given now, in the order of
  /// their ids, in submissions of a few megabytes; it has them from here on. The time that is left
  /// until their deadlines is that at `now`.
  std::vector<Submission> take_due(Clock::time_point now);

  /// A request that is not answered.
  struct Unanswered {
    std::int32_t replica = 0;
    Request request;
    Clock::time_point since;
    RequestProgress progress;
    bool is_long = false;  ///< its progress is more than is kept: it would begin anew
    bool is_given = true;  ///< the executor has it
    /// It was taken back from this executor in that epoch, so what that reports of it may be old.
    std::optional<std::uint32_t> frozen_in{};
    std::int64_t generated = 0;           ///< tokens, as reported, of a request with one sequence
    int crashes = 0;                      ///< that it was under way in
    std::optional<std::int64_t> reach{};  ///< of these crashes; none: it is not known
    bool is_suspect() const { return crashes >= max_crashes - 1; }
    bool is_given_up() const { return crashes >= max_crashes; }
  };
  /// Returns all requests, in the order of their ids, and has none any more: another ledger's
  /// executor goes on with them.
  std::vector<Unanswered> release_all();
  /// Takes a request that another ledger has released, for replica number `replica`; it is due.
  void adopt(std::int32_t replica, Unanswered request);

  std::size_t size() const { return unanswered_.size(); }
  /// Approximate memory, and its share of max_bytes.
  std::size_t bytes() const { return bytes_; }
  double used_share() const {
    return static_cast<double>(bytes_) / static_cast<double>(std::max<std::size_t>(1, max_bytes_));
  }

 private:
  /// Counts what the executor had not handed over; it has ended.
  void count_unsaved();
  /// Gives the progress up.
  void begin_anew(Unanswered& request);
  /// Takes the tokens that a request has generated, and acquits it if it is further than it was.
  static void note_progress(Unanswered& request, std::size_t tokens);
  /// Gives progress up until the memory is bounded, the largest first.
  void bound();

  const std::size_t max_bytes_;
  std::size_t bytes_ = 0;                           ///< of requests and their progress
  std::map<std::uint64_t, Unanswered> unanswered_;  ///< by Request::id
  std::size_t held_back_ = 0;                       ///< number of those that are not given

  // Tokens. Of the executor that has the requests:
  std::int64_t counted_ = 0;  ///< in its reports
  std::int64_t saved_ = 0;    ///< of these, in answers and progress
  std::int64_t frozen_ = 0;   ///< in the progress of requests that it is made to forget
  std::int64_t unsaved_ = 0;  ///< see take_unsaved()
};

}  // namespace troupe
