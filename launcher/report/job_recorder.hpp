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
#include "launcher/report/step_series.hpp"

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

enum class JobOutcome : std::uint8_t {
  answered,              ///< every line has its answer
  answered_with_errors,  ///< or its error line
  failed,                ///< broke off
  drained,               ///< ended early by a signal, after what ran was finished
  interrupted,           ///< stopped at once
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
  /// Lines that an earlier run of the job has answered already.
  void answered_before(std::uint64_t lines) { lines_before_ += lines; }
  /// A line got its error without the engine.
  void line_refused() { ++refused_lines_; }
  void take(const EngineReport& report);
  /// The latest of each process counts; spans and counts are kept from the latest that has them.
  void take(ProcessTelemetry telemetry);
  /// Where the thread that reads the input and writes the output notes its time.
  SpanRecorder& spans() { return spans_; }
  void finish(JobOutcome outcome, std::string reason, std::int64_t now_us);

  /// The share of the time between its last two telemetries that each rank spent computing, not
  /// waiting for anybody, 0..1, by rank; empty as long as a rank has not told any.
  std::vector<double> rank_busy() const;
  /// Of the time in which requests were live, that in which no step was inside the model, 0..1, the
  /// mean of all domains; nothing before there was any.
  std::optional<double> share_outside_model() const;

  // What has been gathered.
  const JobFacts& facts() const { return facts_; }
  JobOutcome outcome() const { return outcome_; }
  const std::string& reason() const { return reason_; }
  double seconds() const;             ///< from start to finish
  double serving_seconds() const;     ///< of these, since the engine was ready
  double input_wait_seconds() const;  ///< of these, waiting for input
  double working_seconds() const { return serving_seconds() - input_wait_seconds(); }
  std::uint64_t lines_before() const { return lines_before_; }
  std::uint64_t answers() const { return answers_; }
  std::uint64_t errors() const { return refused_lines_ + failed_requests_; }
  std::uint64_t dropped() const { return dropped_; }
  std::uint64_t prompt_tokens() const { return prompt_tokens_; }  ///< of answered requests
  std::uint64_t answer_tokens() const { return answer_tokens_; }  ///< of all their choices
  const EngineStats& stats() const { return stats_; }
  const StepSeries& steps() const { return steps_; }
  const DistributionSketch& ttft_us() const { return ttft_us_; }
  const DistributionSketch& e2e_us() const { return e2e_us_; }
  DistributionSketch inter_token_us() const;  ///< of all executors
  /// Answers that kept the objectives, of those with a token.
  std::uint64_t good_answers() const { return good_answers_; }
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
  std::int64_t finished_us_ = 0;
  JobOutcome outcome_ = JobOutcome::failed;
  std::string reason_;
  std::uint64_t lines_before_ = 0;
  std::uint64_t refused_lines_ = 0;
  std::uint64_t failed_requests_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t answers_ = 0;
  std::uint64_t good_answers_ = 0;
  std::uint64_t prompt_tokens_ = 0;
  std::uint64_t answer_tokens_ = 0;
  EngineStats stats_;
  StepSeries steps_;
  DistributionSketch ttft_us_;
  DistributionSketch e2e_us_;
  std::map<std::string, Process> processes_;
  SpanRecorder spans_;
};

/// How one rank spent the time since it began to serve, in seconds.
struct RankUse {
  double computing = 0;   ///< in steps, but for what follows
  double exchanging = 0;  ///< with the ranks of its stage, waits for them included
  double stages = 0;      ///< with other stages, as above
  double waiting = 0;     ///< for a plan
  double rest = 0;
};
RankUse use_of(const ProcessTelemetry& worker);

}  // namespace troupe
