#pragma once

#include <cstdint>
#include <string>

#include "actors/api/engine_spec.hpp"
#include "launcher/batch/output/error_tally.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/job/job_plan.hpp"
#include "launcher/journal/journal.hpp"
#include "launcher/preflight/preflight.hpp"
#include "launcher/progress/progress_printer.hpp"

namespace troupe {

/// Tells people what happens in a job: on the terminal, as far as the options allow it, and in the
/// log. One thread at a time.
class JobTeller {
 public:
  /// Both outlive the object.
  JobTeller(ProgressPrinter& progress, const RunOptions& options)
      : progress_(progress), options_(options) {}

  /// What a plan's reader should know before the job runs.
  void tell_plan(const JobPlan& plan);
  /// What the journal found of earlier runs, in which `done` of `total` lines were answered.
  void tell_journal(const Journal& journal, std::uint64_t done, std::uint64_t total);
  void tell_preflight(const PreflightReport& report);
  void tell_recovery(const EngineRecovery& recovery);
  /// A layer that computes otherwise from now on.
  void tell_fallback(const WidenedLayer& widened);
  /// Of a wait in which a person can do something, also with --quiet.
  void tell_wait(const std::string& message);
  void tell_errors(const ErrorTally& errors);
  /// Where a finished job's answers, logs and report are.
  void tell_files(const std::string& output, const std::string& folder);

 private:
  void warn(const std::string& warning);
  /// Shows text in any mode; to programs as a JSON object, as every line is.
  void show(const std::string& text);

  ProgressPrinter& progress_;
  const RunOptions& options_;
};

}  // namespace troupe
