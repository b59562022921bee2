#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/api/report.hpp"
#include "actors/telemetry/distribution_sketch.hpp"
#include "launcher/batch/output/answer_format.hpp"
#include "launcher/report/step_series.hpp"
#include "runtime/base/result.hpp"

namespace troupe {

enum class JobOutcome : std::uint8_t {
  answered,              ///< every line has its answer
  answered_with_errors,  ///< every line has its answer or its error line
  failed,                ///< ended early by an error
  drained,               ///< ended early by a signal, after running requests finished
  interrupted,           ///< stopped at once
};

/// The measurements of all runs of a job. Kept in the job's folder, so that a resumed job reports
/// on all of them.
struct JobFigures {
  struct Run {
    std::int64_t began_unix_s = 0;
    double seconds = 0;
    std::uint64_t answers = 0;
    JobOutcome outcome = JobOutcome::failed;

    template <class Archive>
    void fields(Archive& archive) {
      archive(began_unix_s, seconds, answers, outcome);
    }
  };
  std::vector<Run> runs;  ///< in order
  double seconds = 0;
  double serving_seconds = 0;
  double input_wait_seconds = 0;
  std::uint64_t good_answers = 0;
  std::uint64_t prompt_tokens = 0;  ///< of answered requests
  std::uint64_t answer_tokens = 0;  ///< of all choices of answered requests
  EngineStats stats;                ///< counters only; nothing is running or waiting
  DistributionSketch ttft_us;
  DistributionSketch e2e_us;
  DistributionSketch inter_token_us;
  StepSeries steps;  ///< over the serving time of all runs, concatenated

  template <class Archive>
  void fields(Archive& archive) {
    archive(runs, seconds, serving_seconds, input_wait_seconds, good_answers, prompt_tokens,
            answer_tokens, stats, ttft_us, e2e_us, inter_token_us, steps);
  }
};

/// Replaces the file at `path` atomically. Only the same `version` of the program reads it, for the
/// same job. Errors: io.
Result<void> write_figures(const std::string& path, const std::string& version,
                           const JobIdentity& job, const JobFigures& figures);

/// Returns nullopt if there is none, or one of another job, version or form.
std::optional<JobFigures> read_figures(const std::string& path, const std::string& version,
                                       const JobIdentity& job);

}  // namespace troupe
