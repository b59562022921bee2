#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/engine/report.hpp"
#include "actors/telemetry/distribution_sketch.hpp"
#include "actors/telemetry/process_telemetry.hpp"
#include "actors/telemetry/span_recorder.hpp"
#include "launcher/batch/output/error_tally.hpp"
#include "launcher/report/job_figures.hpp"

namespace troupe {

/// What an answer must keep to count as good; absent: it may take any time.
struct ServiceObjectives {
  std::optional<double> ttft_ms = {};
  std::optional<double> itl_ms = {};  ///< mean of a request's
  std::optional<double> e2e_ms = {};

  bool any() const { return ttft_ms || itl_ms || e2e_ms; }
};

/// What is known of a job before it runs.
struct JobFacts {
  std::string name;
  std::string version;  ///< of the launcher
  std::string host;
  int cores = 0;
  std::string input;
  std::string output;
  std::string model_path;
  std::string architecture;
  std::string config_yaml;             ///< all keys, defaults included
  std::int64_t began_unix_s = 0;       ///< wall time
  std::int64_t experts_per_token = 0;  ///< 0: the model has none
  ServiceObjectives objectives;
};

/// Gathers what a job's report tells, in bounded memory. It has no clock: times are arguments, in
/// microseconds of CLOCK_MONOTONIC. One thread at a time.
class JobRecorder {
 public:
  JobRecorder(JobFacts facts, std::int64_t now_us) : facts_(std::move(facts)), began_us_(now_us) {}

  /// The engine takes requests from now on.
  void engine_ready(std::int64_t now_us);
  /// Whether from now on nothing can be done before more input comes, as with a pipe that is silent
  /// while no request is live. Call it as often as convenient.
  void wait_for_input(bool waits, std::int64_t now_us);
  /// Lines that earlier runs of the job have answered already, errors included, and what those runs
  /// have measured. Call it before anything else.
  void go_on(std::uint64_t lines, std::uint64_t errors, JobFigures figures);
  /// The error lines of the output, those of earlier runs included.
  void set_errors(ErrorTally errors) { errors_ = std::move(errors); }
  void take(const EngineReport& report);
  /// The latest of each process counts; spans and counts are kept from the latest that has them.
  void take(ProcessTelemetry telemetry);
  /// Where the thread that reads the input and writes the output notes its time.
  SpanRecorder& spans() { return spans_; }
  void finish(JobOutcome outcome, std::string reason, std::int64_t now_us);

  /// The share of the time between its last two telemetries that each rank spent computing, not
  /// waiting for anybody, 0..1, by rank; empty as long as a rank has not told any.
  std::vector<double> rank_busy() const;
  /// share_outside_model of this run.
  std::optional<double> share_outside_model() const;

  // What has been gathered.
  const JobFacts& facts() const { return facts_; }
  JobOutcome outcome() const { return outcome_; }
  const std::string& reason() const { return reason_; }
  /// What all runs have measured, this one until `now_us` included; once it is finished, until
  /// then.
  JobFigures figures(std::int64_t now_us) const;
  std::uint64_t lines_before() const { return lines_before_; }
  std::uint64_t answers() const { return answers_before_ + answers_; }  ///< of all runs
  const ErrorTally& errors() const { return errors_; }
  std::uint64_t dropped() const { return dropped_; }
  double input_wait_seconds() const;  ///< of this run
  /// Every process that has told of itself, this one's two threads included, by name.
  std::vector<ProcessTelemetry> processes() const;
  std::int64_t began_us() const { return began_us_; }

 private:
  void take(const Completion& completion);
  bool keeps_objectives(const Completion& completion) const;

  struct Process {
    ProcessTelemetry latest;
    SpanTotals totals_before;
    std::int64_t before_ns = 0;
  };

  JobFacts facts_;
  std::int64_t began_us_;
  std::optional<std::int64_t> ready_us_;
  std::optional<std::int64_t> waits_since_us_;  ///< for input
  std::int64_t waited_us_ = 0;                  ///< before that
  std::optional<std::int64_t> finished_us_;
  JobOutcome outcome_ = JobOutcome::failed;
  std::string reason_;
  std::uint64_t lines_before_ = 0;
  std::uint64_t answers_before_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t answers_ = 0;  ///< of this run
  ErrorTally errors_;
  EngineStats stats_;  ///< of this run
  /// Of earlier runs; what grows with each answer and step is of this one, too.
  JobFigures figures_;
  std::map<std::string, Process> processes_;
  SpanRecorder spans_;
};

/// Of the time in which requests were live, that in which no step was inside the model, 0..1, the
/// mean of all domains; nothing before there was any.
std::optional<double> share_outside_model(const EngineStats& stats);

/// How one rank spent the time since it began to serve, in seconds. Exchanges of GPUs are part of
/// the steps that they are enqueued in, so there `exchanging` and `stages` are not known.
struct RankUse {
  double computing = 0;              ///< in steps, but for what follows
  std::optional<double> exchanging;  ///< with the ranks of its stage, waits for them included
  std::optional<double> stages;      ///< with other stages, as above
  double waiting = 0;                ///< for a plan
  double rest = 0;
};
RankUse use_of(const ProcessTelemetry& worker);

}  // namespace troupe
