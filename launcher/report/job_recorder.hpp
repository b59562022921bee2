#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/api/engine_spec.hpp"
#include "actors/api/report.hpp"
#include "actors/telemetry/distribution_sketch.hpp"
#include "actors/telemetry/process_telemetry.hpp"
#include "actors/telemetry/span_recorder.hpp"
#include "launcher/batch/output/error_tally.hpp"
#include "launcher/report/job_figures.hpp"
#include "launcher/report/job_hosts.hpp"

namespace troupe {

/// Targets that an answer must meet to count as good; absent: no target.
struct ServiceObjectives {
  std::optional<double> ttft_ms = {};
  std::optional<double> itl_ms = {};  ///< for the mean of a request
  std::optional<double> e2e_ms = {};

  bool any() const { return ttft_ms || itl_ms || e2e_ms; }
};

/// Facts of a job that are known before it runs.
struct JobFacts {
  std::string name;
  std::string version;  ///< of the launcher
  std::string host;
  int cores = 0;
  std::string input;
  std::string output;
  std::string model_path;
  std::string architecture;
  std::string kv_policy = "full";      ///< kv_cache.policy, with its numbers
  std::string dtype;                   ///< of activations and of matrices that are numbers
  std::string quantization = "none";   ///< model.quantization
  std::string kv_dtype;                ///< of keys and values
  std::string fallback = "none";       ///< precision.fallback
  std::string config_yaml;             ///< all keys, defaults included
  std::int64_t began_unix_s = 0;       ///< wall time
  std::int64_t experts_per_token = 0;  ///< 0: a dense model
  ServiceObjectives objectives;
};

/// Collects the data of a job's report in bounded memory. It has no clock: times are arguments, in
/// microseconds of CLOCK_MONOTONIC. One thread at a time.
class JobRecorder {
 public:
  JobRecorder(JobFacts facts, std::int64_t now_us) : facts_(std::move(facts)), began_us_(now_us) {}

  /// The engine takes requests from now on.
  void engine_ready(std::int64_t now_us);
  /// Notes whether nothing can be done from now on before more input comes, e.g. if a pipe is
  /// silent while no request is live. Call it as often as convenient.
  void wait_for_input(bool waits, std::int64_t now_us);
  /// Sets the lines that earlier runs of the job have answered already, errors included, and those
  /// runs' measurements. Call it first.
  void go_on(std::uint64_t lines, std::uint64_t errors, JobFigures figures);
  /// Sets the other machines that the job runs on.
  void set_hosts(JobHosts hosts) { hosts_ = std::move(hosts); }
  /// Sets the error lines of the output, those of earlier runs included.
  void set_errors(ErrorTally errors) { errors_ = std::move(errors); }
  void take(const EngineReport& report);
  /// Counts a recovery that has ended; of others notes the requests that are given up.
  void take(const EngineRecovery& recovery);
  void take(const EngineDomainChange& change);
  /// Each process's latest telemetry counts; spans and counts are kept from the latest that has
  /// them.
  void take(ProcessTelemetry telemetry);

  static constexpr std::size_t max_recoveries = 256;
  /// A recovery, and the answers there were when it had ended.
  struct Recovered {
    EngineRecovery recovery;
    std::uint64_t answers = 0;
  };
  /// A change of the step domains that serve, and the answers there were then.
  struct DomainChange {
    EngineDomainChange change;
    std::uint64_t answers = 0;
  };
  static constexpr std::size_t max_domain_changes = 256;
  /// Records the time of the thread that reads the input and writes the output.
  SpanRecorder& spans() { return spans_; }
  void finish(JobOutcome outcome, std::string reason, std::int64_t now_us);

  /// The share of the time between its last two telemetries that each rank spent computing, not
  /// waiting, 0..1, by rank; empty while any rank has not sent two.
  std::vector<double> rank_busy() const;
  /// share_outside_model of this run.
  std::optional<double> share_outside_model() const;

  // The collected data.
  const JobFacts& facts() const { return facts_; }
  const JobHosts& hosts() const { return hosts_; }
  JobOutcome outcome() const { return outcome_; }
  const std::string& reason() const { return reason_; }
  /// The measurements of all runs, this one's up to `now_us` or until it finished.
  JobFigures figures(std::int64_t now_us) const;
  std::uint64_t lines_before() const { return lines_before_; }
  std::uint64_t answers() const { return answers_before_ + answers_; }  ///< of all runs
  const ErrorTally& errors() const { return errors_; }
  std::uint64_t dropped() const { return dropped_; }
  /// The recoveries of this run; of the first max_recoveries what was lost.
  std::uint64_t recovery_count() const { return recovery_count_; }
  const std::vector<Recovered>& recoveries() const { return recoveries_; }
  /// The first max_domain_changes of this run.
  const std::vector<DomainChange>& domain_changes() const { return domain_changes_; }
  /// The layers that have fallen back in this run, each once.
  struct Widened {
    std::int32_t domain = 0;
    WidenedLayer layer;
  };
  const std::vector<Widened>& widened() const { return widened_; }
  /// See EngineRecovery::given_up; of this run.
  const std::vector<std::string>& given_up_prompts() const { return given_up_prompts_; }
  /// The sum of EngineRecovery::suspects; of this run.
  std::uint64_t suspects() const { return suspects_; }
  double input_wait_seconds() const;  ///< of this run
  /// The telemetry of every process that has sent some, and of this one's two threads, by name.
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
  JobHosts hosts_;
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
  std::uint64_t recovery_count_ = 0;
  std::vector<std::string> given_up_prompts_;
  std::uint64_t suspects_ = 0;
  std::vector<Recovered> recoveries_;
  std::vector<DomainChange> domain_changes_;
  std::vector<Widened> widened_;
  EngineStats stats_;  ///< of this run
  /// Earlier runs' figures; parts that grow with each answer and step include this run's, too.
  JobFigures figures_;
  std::map<std::string, Process> processes_;
  SpanRecorder spans_;
};

/// The share of the time with live requests in which no step was inside the model, 0..1, the mean
/// of all domains; none before there was any.
std::optional<double> share_outside_model(const EngineStats& stats);

/// How one rank spent the time since it began to serve, in seconds. GPU exchanges are part of the
/// steps that they are enqueued in, so there `exchanging` and `stages` are not known.
struct RankUse {
  double computing = 0;              ///< in steps, except for the rest below
  std::optional<double> exchanging;  ///< with the ranks of its stage, waits included
  std::optional<double> stages;      ///< with other stages, waits included
  double waiting = 0;                ///< for a plan
  double rest = 0;
};
RankUse use_of(const ProcessTelemetry& worker);

}  // namespace troupe
