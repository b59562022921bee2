#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "actors/api/request.hpp"
#include "launcher/bench/faults/answer_book.hpp"
#include "launcher/bench/faults/domain_book.hpp"
#include "launcher/bench/faults/fault_figures.hpp"
#include "launcher/bench/faults/fault_injector.hpp"
#include "launcher/bench/faults/fault_plan.hpp"
#include "launcher/job/engine_session.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/job/replacement_wait.hpp"
#include "launcher/job/stop_signals.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

/// Answers the same requests round after round, the first time undisturbed, and makes faults from
/// then on whenever the engine computes and has recovered from the one before. One thread.
class FaultRun {
 public:
  /// Tells a person a line.
  using Tell = std::function<void(const std::string&)>;

  /// All but `requests` outlive the object; `requests` are not empty. Errors of run() leave what
  /// was found out by then in figures().
  FaultRun(EngineSession& session, const JobPlan& plan, const FaultOptions& options,
           std::vector<Request> requests, StopSignals& signals, Tell tell);

  /// Makes faults of these kinds. Errors: cancelled after a signal; peer_died with the cause if the
  /// engine has ended; timeout if a fault was not recovered from; those of FaultInjector.
  Result<void> run(const std::vector<FaultKind>& kinds, std::uint64_t seed);

  /// What a node that is to take the place of a lost one has to run; empty unless nodes join.
  void set_join_command(std::string command) { waits_.set_join_command(std::move(command)); }

  const FaultFigures& figures() const { return figures_; }

 private:
  using Clock = std::chrono::steady_clock;

  /// Goes on until `is_done` says so; ids from `end` on are not asked.
  Result<void> until(const std::function<bool()>& is_done);
  Result<void> submit();
  Result<void> take_reports();
  void take(const EngineRecovery& recovery);
  void take(const EngineDomainChange& change);
  /// Errors: timed_out if a step domain that was dropped is not back in time.
  Result<void> check_domains() const;
  /// Tells a text of several lines; commands, which are indented, on lines of their own.
  void tell_wait(const std::string& text);
  /// Makes the next fault if it is time and no step domain is away, and ends the one under way once
  /// the job has recovered.
  Result<void> advance_faults();
  void finish_fault();
  void alter_request();
  MemoryReading read_memory();
  double seconds_since_begin() const;

  EngineSession& session_;
  const JobPlan& plan_;
  const FaultOptions& options_;
  std::vector<Request> requests_;
  StopSignals& signals_;
  const Tell tell_;
  FaultInjector injector_;
  ReplacementWait waits_;
  AnswerBook book_;
  DomainBook domains_;
  FaultFigures figures_;
  std::deque<PlannedFault> planned_;
  std::size_t window_ = 1;  ///< the most unanswered requests
  std::uint64_t next_id_ = 1;
  std::uint64_t end_ = 1;  ///< this id and later ones are not asked
  bool makes_faults_ = false;
  bool is_disturbed_ = false;  ///< a loss was reported
  std::uint64_t running_ = 0;  ///< requests that the engine computes, as last reported
  Clock::time_point began_{};  ///< the faults
  Clock::time_point next_fault_{};
  Clock::time_point heard_{};            ///< the last answer or recovery
  Clock::time_point domains_changed_{};  ///< the last time
};

}  // namespace troupe
